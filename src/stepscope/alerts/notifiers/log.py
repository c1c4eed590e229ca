"""The log notifier: a line of Python's logging, under the name `stepscope.alerts`."""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from stepscope.alerts.dispatch import Notification
from stepscope.alerts.notifiers.registry import convert

_LEVELS = {"INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL}


class Log(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of the logger."""

    logger: str = "stepscope.alerts"

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Log":
        """Read options."""
        return convert(options, cls)

    @property
    def place(self) -> str:
        """The name of the logger."""
        return f"logging, {self.logger}"

    def open(self) -> "Log":
        """Return the notifier, which keeps nothing open."""
        return self

    def send(self, notification: Notification) -> None:
        """Log a notification; a resolved one as information."""
        firing = notification.status == "firing"
        level = _LEVELS.get(notification.severity, logging.WARNING) if firing else logging.INFO
        logging.getLogger(self.logger).log(level, "%s\n%s", notification.title, notification.text)

    def close(self) -> None:
        """Nothing is open."""
