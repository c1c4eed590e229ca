"""The command notifier: runs a user's program with the notification as JSON on its standard input."""

import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

import msgspec

from stepscope.alerts.dispatch import Notification
from stepscope.alerts.notifiers.registry import convert
from stepscope.alerts.notifiers.shapes import plain
from stepscope.model.errors import ConfigError, Reject, Retry

TEMPORARY = 75
"""The exit code that requests a retry, `EX_TEMPFAIL`."""
_encode = msgspec.json.Encoder().encode


class Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The program, which runs once for each notification, and its arguments; no shell reads them."""

    run: list[str]
    timeout: float = 30.0

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Command":
        """Read options."""
        made = convert(options, cls)
        if not made.run or not made.run[0]:
            raise ConfigError("run must be a list: the program, then its arguments")
        return made

    @property
    def place(self) -> str:
        """The program; its arguments may hold secrets."""
        return self.run[0]

    def open(self) -> "Command":
        """Return the notifier, which keeps nothing open."""
        return self

    def send(self, notification: Notification) -> None:
        """Run the program; exit code 75 requests a retry."""
        (body,) = plain(notification)
        fields = {"STATUS": notification.status, "TITLE": notification.title, "SEVERITY": notification.severity}
        env = {**os.environ, **{f"STEPSCOPE_ALERT_{name}": value.replace("\0", "") for name, value in fields.items()}}
        try:
            code, error = self._run(_encode(body), env)
        except OSError as problem:
            raise Reject(f"{self.run[0]}: {problem.strerror or problem}", ()) from None
        except subprocess.TimeoutExpired:
            raise Retry(f"{self.run[0]} did not exit within {self.timeout:g} s") from None
        if code == TEMPORARY:
            raise Retry(f"{self.run[0]} exited with 75, which asks for a retry: {error}")
        if code:
            raise Reject(f"{self.run[0]} exited with {code}: {error}", ())

    def close(self) -> None:
        """Nothing is open between two runs."""

    def _run(self, body: bytes, env: Mapping[str, str]) -> tuple[int, str]:
        process = subprocess.Popen(
            self.run,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # kill its children with it
        )
        try:
            _, error = process.communicate(body, timeout=self.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return process.returncode, error[-200:].decode("utf-8", "replace").strip()
