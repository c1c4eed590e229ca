"""Saved views of a project's workspace: list, save, rename, set as default, delete; and the notes of the project."""

import os
import time
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from stepscope.hub.dashboards.saved_views import Full, Name, Query, SavedViews, View
from stepscope.hub.questions.toolbox.endpoint import Endpoint, Param, Reader, decode_body
from stepscope.hub.refusals import conflict, not_found, unavailable
from stepscope.hub.texts import version_of
from stepscope.model.run_description import LONGEST_NOTES


class NewView(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that saves a view."""

    name: Name
    query: Query
    default: bool = False


class ViewChange(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that changes a view; what is left out stays."""

    name: Name | None = None
    query: Query | None = None
    default: bool | None = None


class NewNotes(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that replaces the notes of a project."""

    notes: Annotated[str, Meta(max_length=LONGEST_NOTES)]
    version: Annotated[str | None, Meta(description="The version that is replaced.")] = None


class ViewList(TypedDict):
    """The saved views of a project, by name."""

    views: list[View]
    notes: Annotated[str, Meta(description="The notes of the project, in Markdown.")]
    version: Annotated[str, Meta(description="The version of the notes, which a change of them names.")]


class DeletedView(TypedDict):
    """A view that was deleted."""

    id: str
    deleted: bool


_PROJECT = Param("project", "text", "the project", required=True)
_ID = Param("view", "hex", "the id of a view", required=True, width=8, place="path")


@Endpoint("/api/views", "listViews", (_PROJECT,))
def listing(reader: Reader, given: dict[str, Any]) -> ViewList:
    """The saved views of a project, by name, and its notes."""
    known = _known(reader, given)
    notes = known.notes_of(given["project"])
    return {"views": known.of(given["project"]), "notes": notes, "version": version_of(notes or None)}


@Endpoint("/api/views", "saveProjectNotes", (_PROJECT,), method="PUT", body=NewNotes)
def note(reader: Reader, given: dict[str, Any]) -> ViewList:
    """Replace the notes of a project, which are Markdown as those of runs; empty ones remove them.

    With the `version` that they had it is refused when somebody else changed them since.
    """
    wanted = decode_body(NewNotes, given["body"], '{"notes": "..."}')
    _saving(lambda: _known(reader, given).note(given["project"], wanted.notes.strip(), wanted.version))
    now: ViewList = listing.answer(reader, given)
    return now


@Endpoint("/api/views", "saveView", (_PROJECT,), method="POST", body=NewView)
def save(reader: Reader, given: dict[str, Any]) -> View:
    """Save how the workspace of a project looks under a name that is not taken."""
    wanted = decode_body(NewView, given["body"], '{"name": "...", "query": "filter=..."}')
    made = View(
        id=os.urandom(8).hex(), name=wanted.name.strip(), query=wanted.query, default=wanted.default,
        who=reader.who, time=round(time.time(), 6),
    )  # fmt: skip
    return _changed(reader, given, lambda views: made)


@Endpoint("/api/views/{view}", "changeView", (_ID, _PROJECT), method="PATCH", body=ViewChange)
def change(reader: Reader, given: dict[str, Any]) -> View:
    """Rename a view, replace its query, or make it the one that the project opens with."""
    wanted = decode_body(ViewChange, given["body"], '{"name": "...", "query": "...", "default": true}')
    changed = {key: value for key, value in msgspec.structs.asdict(wanted).items() if value is not None}
    if wanted.name is not None:
        changed["name"] = wanted.name.strip()
    changed |= {"who": reader.who, "time": round(time.time(), 6)}
    return _changed(reader, given, lambda views: msgspec.structs.replace(_find(given, views), **changed))


@Endpoint("/api/views/{view}", "deleteView", (_ID, _PROJECT), method="DELETE")
def delete(reader: Reader, given: dict[str, Any]) -> DeletedView:
    """Delete a view."""

    def without(views: list[View]) -> list[View]:
        old = _find(given, views)
        return [each for each in views if each is not old]

    _store(reader, given, without)
    return {"id": given["view"].hex(), "deleted": True}


def _changed(reader: Reader, given: dict[str, Any], make: Callable[[list[View]], View]) -> View:
    """Store a new view, or one made of those that are there; a name is given once, and one at most is the default."""
    stored: list[View] = []

    def checked(views: list[View]) -> list[View]:
        made = make(views)
        if any(each.name == made.name and each.id != made.id for each in views):
            raise conflict(f"there is a view {made.name!r} already: choose another name, or change that one")
        stored[:] = [made]
        others = [_not_default(each) if made.default else each for each in views]
        if all(each.id != made.id for each in views):
            return [*others, made]
        return [made if each.id == made.id else each for each in others]

    _store(reader, given, checked)
    return stored[0]


def _not_default(view: View) -> View:
    return msgspec.structs.replace(view, default=False)


def _store(reader: Reader, given: dict[str, Any], make: Callable[[list[View]], list[View]]) -> None:
    _saving(lambda: _known(reader, given).change(given["project"], make))


def _saving(save: Callable[[], None]) -> None:
    try:
        save()
    except Full as error:
        raise conflict(str(error)) from None
    except OSError as error:
        raise unavailable(f"it cannot be saved: {error.strerror or error}", 5.0) from None


def _find(given: dict[str, Any], views: list[View]) -> View:
    id = given["view"].hex()
    for view in views:
        if view.id == id:
            return view
    raise not_found(f"there is no view {id} of this project")


def _known(reader: Reader, given: dict[str, Any]) -> SavedViews:
    if reader.views is None:
        raise not_found("views need a running hub: start one with `stepscope hub`")
    if reader.project not in (None, given["project"]):
        raise not_found(f"there is no project {given['project'][:80]!r}")
    return reader.views
