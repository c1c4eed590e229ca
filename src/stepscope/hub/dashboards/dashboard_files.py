"""Where dashboards lie: the built-in ones in the package, a user's own as HOME/dashboards/NAME.yaml."""

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from stepscope.hub.dashboards.dashboard import LONGEST
from stepscope.journal.files import replace_file

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


class Folder:
    """The dashboards of a home; ValueError for a name that could be a path."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "dashboards"

    def names(self) -> list[str]:
        """List all dashboards, the built-in ones first."""
        try:
            paths = sorted(self._folder.iterdir())
        except OSError:
            paths = []
        saved = [path.stem for path in paths if path.suffix == ".yaml" and is_name(path.stem) and path.is_file()]
        return [*BUILTIN, *(name for name in saved if name not in BUILTIN)]

    def read(self, name: str) -> Source | None:
        """Read a dashboard; None when there is none. A text that is too long is truncated and so will not parse."""
        if name in BUILTIN:
            return Source(name, builtin(name), builtin=True)
        try:
            with open(self._path(name), encoding="utf-8", errors="replace") as file:
                return Source(name, file.read(LONGEST + 1), builtin=False)
        except OSError:
            return None

    def write(self, name: str, text: str) -> None:
        """Save a dashboard atomically; OSError when it cannot be saved."""
        path = self._path(name)
        if not path.exists() and len(self.names()) >= MOST:
            raise Full(f"there are {MOST} dashboards already: delete some")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, text.encode(), mode=0o666)

    def delete(self, name: str) -> bool:
        """Delete a dashboard; False when there is none."""
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        return True

    def _path(self, name: str) -> Path:
        if not is_name(name):
            raise ValueError(f"{name[:80]!r} is not a valid dashboard name")
        return self._folder / f"{name}.yaml"


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a dashboard."""
    return _NAME.fullmatch(text) is not None


def builtin(name: str) -> str:
    """The text of a built-in dashboard."""
    return (resources.files("stepscope.hub.dashboards") / "builtin" / f"{name}.yaml").read_text("utf-8")
