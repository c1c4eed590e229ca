"""The Datadog notifier: an event and a service check for each alert, by the Datadog sink."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stepscope.dialects.datadog.sink import Datadog as DatadogSink
from stepscope.extend.notifier import Alert, Notification, severity_number
from stepscope.model import records
from stepscope.model.errors import Reject
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Record
from stepscope.wire.foreign_names import ATTR_CHECK_STATUS

CHECK = "stepscope.alert"
_STATUS = {"INFO": "OK", "WARN": "WARNING"}


class Datadog(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the Datadog sink."""

    sink: DatadogSink

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Datadog":
        """Read the options of the sink and the DD_* variables."""
        return cls(sink=DatadogSink.read(options, env))

    @property
    def place(self) -> str:
        """The Agent's address, or the intake's."""
        return self.sink.place

    def open(self) -> "DatadogNotifier":
        """Make the notifier."""
        return DatadogNotifier(self)


class DatadogNotifier:
    """Sends alerts as events and service checks."""

    def __init__(self, config: Datadog) -> None:
        self._sink = config.sink.open()
        self._number = 0

    def send(self, notification: Notification) -> None:
        """Send the event and the check of each alert; a retry does not repeat what was accepted."""
        first = notification.alerts[0]
        writer = Writer(id="alerts", run=notification.run, project=notification.project, name=first.run_name or None)
        found = [each for alert in notification.alerts for each in _records(alert, notification)]
        refused = self._sink.write([Batch(writer, self._number, found)])
        self._number += 1
        if refused:
            raise Reject("; ".join(refused), ())

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()


def _records(alert: Alert, notification: Notification) -> list[Record]:
    about, firing = alert.subject, notification.status == "firing"
    name = about.finding or about.rule
    attrs: dict[str, Any] = {"rule": about.rule}
    if about.key:
        attrs["key"] = about.key
    if about.rank is not None:
        attrs["rank"] = about.rank
    title = name if firing else f"Resolved: {name}"
    severity = severity_number(alert.severity) if firing else severity_number("INFO")
    status = _STATUS.get(alert.severity, "CRITICAL") if firing else "OK"
    context = (alert.step, None, None, None)
    check = {**attrs, ATTR_CHECK_STATUS: status}
    return [
        records.Alert(notification.time, *context, severity, title, alert.message, attrs),
        Event(notification.time, *context, severity, CHECK, check, alert.message),
    ]
