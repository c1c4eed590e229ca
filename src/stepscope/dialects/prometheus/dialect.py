"""Prometheus: the latest values are exposed for scraping."""

from stepscope.model.dialects import Dialect

DIALECT = Dialect(
    name="prometheus",
    sink="stepscope.dialects.prometheus.sink:Prometheus",
)
