"""Saved views of projects: how the workspace of a project looks, by name; HOME/views has one file for each project."""

import hashlib
from collections.abc import Callable
from typing import Annotated

import msgspec

from stepscope.hub.texts import Texts, version_of

LONGEST_NAME, LONGEST_QUERY = 100, 8192
LONGEST = 256 * 1024
"""All views of one project as text."""
MAX_VIEWS, MAX_PROJECTS = 100, 1000

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME, pattern=r"\S")]
Query = Annotated[str, msgspec.Meta(max_length=LONGEST_QUERY)]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A view: the query of its address on the page, who saved it last and when (seconds since 1970)."""

    id: str
    name: Name
    query: Query
    default: bool = False
    """Whether the project opens with it; true of one view at most."""
    who: str = ""
    time: float = 0.0


class Views(msgspec.Struct, frozen=True):
    """The text of a project."""

    project: str
    views: list[View]


class Full(OSError):
    """A limit is reached."""


_decode = msgspec.json.Decoder(Views).decode


class SavedViews:
    """The views of all projects."""

    def __init__(self, own: Texts) -> None:
        self._own = own

    def of(self, project: str) -> list[View]:
        """List the views of a project by name; none where the file is damaged."""
        return sorted(_read(self._own.read(_key(project))), key=lambda view: (view.name.lower(), view.id))

    def change(self, project: str, make: Callable[[list[View]], list[View]]) -> None:
        """Replace the views of a project; Refused when another change came first, OSError when it cannot be saved."""
        key = _key(project)
        text = self._own.read(key)
        if text is None and len(self._own.names()) >= MAX_PROJECTS:
            raise Full(f"{MAX_PROJECTS} projects have views already: delete some")
        views = make(_read(text))
        if not views:
            self._own.delete(key)
            return
        made = msgspec.json.encode(Views(project, views)).decode()
        if len(views) > MAX_VIEWS or len(made) > LONGEST:
            raise Full(f"the project has {len(views) - 1} views already: delete some")
        self._own.save(key, made, version_of(text))


def _key(project: str) -> str:
    """The name of the text of a project, which may hold any characters itself."""
    return hashlib.sha256(project.encode("utf-8", "replace")).hexdigest()[:32]


def _read(text: str | None) -> list[View]:
    try:
        return [] if text is None else _decode(text).views
    except msgspec.MsgspecError:
        return []
