"""wandb's artifacts: names for files, which are not kept."""

import os
import tempfile
from typing import IO, Any

from stepscope.compat.absent import Absent, text


class Artifact:
    """Holds what was said of files; what else wandb's artifacts can do does nothing here."""

    version = "v0"

    def __init__(
        self, name: Any = None, type: Any = None, description: Any = None, metadata: Any = None, **named: Any
    ) -> None:
        self.name = text(name) or "artifact"
        self.type = text(type) or "unspecified"
        self.description = description
        self.metadata: Any = {} if metadata is None else metadata
        self.aliases: list[str] = []

    def wait(self, timeout: float | None = None) -> "Artifact":
        """Wait for nothing."""
        return self

    def download(self, root: Any = None, *arguments: Any, **named: Any) -> str:
        """Name the folder in which the files would be; there are none."""
        return os.path.join("artifacts", self.name) if text(root) is None else os.fspath(root)

    def new_file(self, name: str, mode: str = "x", encoding: str | None = None) -> IO[Any]:
        """Open a file that goes when it is closed."""
        return tempfile.TemporaryFile(f"{mode.replace('x', 'w').replace('+', '')}+", encoding=encoding)

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("_"):
            raise AttributeError(name)
        return Absent(f"artifact.{name}")


def artifact_of(given: Any, name: Any = None, type: Any = None) -> Artifact:
    """The artifact that was given, or one for the path or name that was."""
    if isinstance(given, Artifact):
        return given
    return Artifact(text(name) or os.path.basename(text(given) or ""), type)
