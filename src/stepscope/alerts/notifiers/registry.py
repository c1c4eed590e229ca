"""The kinds of notifiers, and the `notifiers:` section of a rule file."""

import os
import re
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, cast

from stepscope.alerts.dispatch import Notification
from stepscope.model.dialects import Plugins, read_options
from stepscope.model.errors import ConfigError

NOTIFIERS = Plugins(
    "notifier",
    "stepscope.notifiers",
    {
        "command": "stepscope.alerts.notifiers.command:Command",
        "desktop": "stepscope.alerts.notifiers.desktop:Desktop",
        "email": "stepscope.alerts.notifiers.email:Email",
        "log": "stepscope.alerts.notifiers.log:Log",
        "webhook": "stepscope.alerts.notifiers.webhook:Webhook",
    },
)
"""Our own notifiers; those of foreign systems are parts of dialects."""
_VARIABLE = re.compile(r"\$\{(\w+)\}")
Options = TypeVar("Options")


class Notifier(Protocol):
    """A destination of notifications. Each is used by one thread."""

    def send(self, notification: Notification) -> None:
        """Deliver a notification; `Retry` when it may be retried, `Reject` when it will never be accepted."""

    def close(self) -> None:
        """Close connections."""


class NotifierConfig(Protocol):
    """What an entry point names: a frozen msgspec Struct of the options, complete and checked."""

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "NotifierConfig":
        """Read options; ConfigError when they are wrong. Opens nothing."""

    @property
    def place(self) -> str:
        """The destination without secrets, for people."""

    def open(self) -> Notifier:
        """Make the notifier; connections are opened with the first message."""


def names() -> list[str]:
    """Name the kinds of notifier that can be used here."""
    return NOTIFIERS.names()


def read(name: str, given: Mapping[str, Any], env: Mapping[str, str] | None = None) -> NotifierConfig:
    """Read one entry of `notifiers:`, a kind with its options; `${NAME}` in an option is a variable's value."""
    env = os.environ if env is None else env
    ((kind, options),) = given.items()
    found = find(kind)
    try:
        return found.read(_with_variables(name, options or {}, env), env)
    except ConfigError as error:
        raise ConfigError(f"notifier {name}: {error}") from None


def find(kind: str) -> type[NotifierConfig]:
    """Import the options of a kind of notifier; ConfigError names the known ones."""
    return cast(type[NotifierConfig], NOTIFIERS.find(kind))


def convert(options: Mapping[str, Any], kind: type[Options]) -> Options:
    """Read options into a Struct; ConfigError names the option and the known ones, never a value."""
    made = read_options(options, kind)
    timeout = getattr(made, "timeout", 1.0)
    if not 0 < timeout <= 300:
        raise ConfigError("timeout must be a number of seconds above 0, 300 at most")
    return made


def _with_variables(name: str, given: Any, env: Mapping[str, str]) -> Any:
    if isinstance(given, Mapping):
        return {key: _with_variables(name, value, env) for key, value in given.items()}
    if isinstance(given, list):
        return [_with_variables(name, value, env) for value in given]
    if not isinstance(given, str):
        return given

    def value(found: re.Match[str]) -> str:
        if found[1] not in env:
            raise ConfigError(f"notifier {name}: the variable {found[1]} is not set")
        return env[found[1]]

    return _VARIABLE.sub(value, given)
