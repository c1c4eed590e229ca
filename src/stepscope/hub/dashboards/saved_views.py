"""Saved views and notes of projects: how a workspace looks, by name; HOME/views has one file for each project."""

import hashlib
from collections.abc import Callable
from typing import Annotated

import msgspec

from stepscope.hub.texts import Texts, check_version, version_of

LONGEST_NAME, LONGEST_QUERY = 100, 8192
LONGEST = 256 * 1024
"""Views and notes of one project as text."""
MAX_VIEWS, MAX_PROJECTS = 100, 1000

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME, pattern=r"\S")]
Query = Annotated[str, msgspec.Meta(max_length=LONGEST_QUERY)]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A view: the query of its address on the page, who saved it last and when (seconds since 1970)."""

    id: str
    name: Name
    query: Annotated[Query, msgspec.Meta(description="The query of its address: `#/project/PROJECT?QUERY`.")]
    default: Annotated[
        bool, msgspec.Meta(description="Whether the project opens with it; true of one view at most.")
    ] = False
    who: str = ""
    time: float = 0.0


class Views(msgspec.Struct, frozen=True):
    """The text of a project."""

    project: str
    views: list[View]
    notes: str = ""
    """Markdown, as notes of runs are."""


class Full(OSError):
    """A limit is reached."""


_decode = msgspec.json.Decoder(Views).decode


class SavedViews:
    """The views of all projects."""

    def __init__(self, own: Texts) -> None:
        self._own = own

    def of(self, project: str) -> list[View]:
        """List the views of a project by name; none where the file is damaged."""
        views = _read(project, self._own.read(_key(project))).views
        return sorted(views, key=lambda view: (view.name.lower(), view.id))

    def notes_of(self, project: str) -> str:
        """Return the notes of a project; empty where there are none."""
        return _read(project, self._own.read(_key(project))).notes

    def change(self, project: str, make: Callable[[list[View]], list[View]]) -> None:
        """Replace the views of a project; Refused when another change came first, OSError when it cannot be saved."""
        self._replace(project, lambda old: msgspec.structs.replace(old, views=make(old.views)))

    def note(self, project: str, notes: str, version: str | None = None) -> None:
        """Replace the notes of a project; raises as `change` does, and where these are not of the version named."""

        def make(old: Views) -> Views:
            check_version("the text of the notes", old.notes or None, version)
            return msgspec.structs.replace(old, notes=notes)

        self._replace(project, make)

    def _replace(self, project: str, make: Callable[[Views], Views]) -> None:
        key = _key(project)
        text = self._own.read(key)
        if text is None and len(self._own.names()) >= MAX_PROJECTS:
            raise Full(f"{MAX_PROJECTS} projects have views already: delete some")
        new = make(_read(project, text))
        if not new.views and not new.notes:
            if text is not None:
                self._own.delete(key, version_of(text))
            return
        made = msgspec.json.encode(new).decode()
        if len(new.views) > MAX_VIEWS:
            raise Full(f"the project has {len(new.views) - 1} views already: delete some")
        if len(made) > LONGEST:
            raise Full(f"views and notes of a project take at most {LONGEST // 1024} KiB: delete some")
        self._own.save(key, made, version_of(text))


def _key(project: str) -> str:
    """The name of the text of a project, which may hold any characters itself."""
    return hashlib.sha256(project.encode("utf-8", "replace")).hexdigest()[:32]


def _read(project: str, text: str | None) -> Views:
    try:
        return Views(project, []) if text is None else _decode(text)
    except msgspec.MsgspecError:
        return Views(project, [])
