"""The dashboards: the built-in ones in the package, and a user's own, HOME/dashboards/NAME.yaml with one hub."""

import re
from dataclasses import dataclass
from importlib import resources

from stepscope.hub.texts import Texts

BUILTIN = ("rl", "service", "system")
MOST = 500
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a dashboard."""

    name: str
    text: str
    builtin: bool


class Full(OSError):
    """The limit on the number of dashboards is reached."""


class Dashboards:
    """The built-in dashboards and a user's own; ValueError for a name that could be a path."""

    def __init__(self, own: Texts) -> None:
        self._own = own

    def names(self) -> list[str]:
        """List all dashboards, the built-in ones first."""
        saved = [name for name in self._own.names() if is_name(name)]
        return [*BUILTIN, *(name for name in saved if name not in BUILTIN)]

    def read(self, name: str) -> Source | None:
        """Read a dashboard; None when there is none."""
        if name in BUILTIN:
            return Source(name, builtin(name), builtin=True)
        text = self._own.read(_checked(name))
        return None if text is None else Source(name, text, builtin=False)

    def write(self, name: str, text: str, version: str | None = None) -> None:
        """Save a dashboard, as `Texts.save` does."""
        if _checked(name) not in self.names() and len(self.names()) >= MOST:
            raise Full(f"there are {MOST} dashboards already: delete some")
        self._own.save(name, text, version)

    def delete(self, name: str) -> bool:
        """Delete a dashboard; False when there is none."""
        return self._own.delete(_checked(name))


def _checked(name: str) -> str:
    if not is_name(name):
        raise ValueError(f"{name[:80]!r} is not a valid dashboard name")
    return name


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a dashboard."""
    return _NAME.fullmatch(text) is not None


def builtin(name: str) -> str:
    """The text of a built-in dashboard."""
    return (resources.files("stepscope.hub.dashboards") / "builtin" / f"{name}.yaml").read_text("utf-8")
