"""Prometheus' Alertmanager: alerts are sent to it."""

from stepscope.model.dialects import Dialect

DIALECT = Dialect(
    name="alertmanager",
    notifier="stepscope.dialects.alertmanager.notifier:Alertmanager",
)
