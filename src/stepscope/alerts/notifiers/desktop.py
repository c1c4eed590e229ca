"""The desktop notifier: shows a desktop notification with `notify-send`."""

import shutil
from collections.abc import Mapping
from typing import Any

import msgspec

from stepscope.alerts.dispatch import Notification
from stepscope.alerts.notifiers.command import Command
from stepscope.alerts.notifiers.registry import convert
from stepscope.model.errors import Reject

_URGENCY = {"INFO": "low", "WARN": "normal"}


class Desktop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The program that shows the notification."""

    program: str = "notify-send"
    timeout: float = 10.0

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Desktop":
        """Read options."""
        return convert(options, cls)

    @property
    def place(self) -> str:
        """This screen."""
        return "this desktop"

    def open(self) -> "Desktop":
        """Return the notifier, which keeps nothing open."""
        return self

    def send(self, notification: Notification) -> None:
        """Show a notification where the program is installed."""
        path = shutil.which(self.program)
        if path is None:
            raise Reject(f"{self.program} is not installed", ())
        urgency = "low" if notification.status == "resolved" else _URGENCY.get(notification.severity, "critical")
        words = [notification.title[:200].replace("\0", ""), notification.text[:1000].replace("\0", "")]
        line = [path, "--app-name", "Stepscope", "--urgency", urgency, "--", *words]
        Command(run=line, timeout=self.timeout).send(notification)

    def close(self) -> None:
        """Nothing is open between two notifications."""
