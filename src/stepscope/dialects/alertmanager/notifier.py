"""The notifier for Prometheus Alertmanager, by its API v2."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from stepscope.extend.notifier import Alert, Notification, Poster, convert, host_of, moment
from stepscope.extend.sink import is_address
from stepscope.model.errors import ConfigError

PATH = "/api/v2/alerts"
_LASTS = 8 * 3600 * 1_000_000_000
"""Alertmanager resolves an alert that is not sent again in this time; ours are repeated within 4 hours."""
_SEVERITIES = {"INFO": "info", "WARN": "warning", "ERROR": "error", "FATAL": "critical"}
_encode = msgspec.json.Encoder().encode


class Alertmanager(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address, credentials and labels to add."""

    url: str
    labels: dict[str, str] = {}
    headers: dict[str, str] = {}
    timeout: float = 10.0

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Alertmanager":
        """Read options."""
        made = convert(options, cls)
        if not is_address(made.url):
            raise ConfigError("url must be http://HOST:9093 or https://HOST")
        return made

    @property
    def place(self) -> str:
        """The host."""
        return host_of(self.url)

    def open(self) -> "AlertmanagerNotifier":
        """Make the notifier."""
        return AlertmanagerNotifier(self)


class AlertmanagerNotifier:
    """Posts alerts; Alertmanager identifies an alert by its labels."""

    def __init__(self, config: Alertmanager) -> None:
        self._config = config
        self._poster = Poster(config.url, config.timeout)
        self._path = urlsplit(config.url).path.rstrip("/") + PATH

    def send(self, notification: Notification) -> None:
        """Post all alerts of a notification in one request."""
        body = [self._alert(alert, notification) for alert in notification.alerts]
        self._poster.post(_encode(body), self._config.headers, self._path)

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()

    def _alert(self, alert: Alert, notification: Notification) -> dict[str, Any]:
        about = alert.subject
        labels = {
            "alertname": about.finding or about.rule,
            "rule": about.rule,
            "severity": _SEVERITIES.get(alert.severity, "warning"),
            "project": alert.project,
            "run": about.run,
            "key": about.key,
            "rank": "" if about.rank is None else str(about.rank),
            **self._config.labels,
        }
        resolved = notification.status == "resolved"
        ends = (alert.resolved or notification.time) if resolved else notification.time + _LASTS
        made = {
            "labels": {name: value for name, value in labels.items() if value},
            "annotations": {"summary": notification.title, "description": alert.message},
            "startsAt": moment(min(alert.began, ends)),
            "endsAt": moment(ends),
        }
        return made | ({"generatorURL": notification.url} if notification.url else {})
