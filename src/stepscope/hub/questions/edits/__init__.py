"""Changes of a run: edits of its name, notes, tags and archived flag, their history, and deletion."""

from typing import Annotated, Any, TypedDict

from msgspec import Meta

from stepscope.hub.questions.runs import RunJson, run_json
from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Reader, decode_body, seconds
from stepscope.hub.refusals import bad_request, conflict, not_found, unavailable
from stepscope.hub.runs.deletion import Deleted
from stepscope.journal.run_edits import Edits
from stepscope.model.records import Seconds
from stepscope.model.run_description import MAX_TAGS, Change, Description, Edit, apply, in_order, undo
from stepscope.model.states import UNFINISHED


class EditJson(TypedDict):
    """An edit of a run."""

    id: str
    time: Seconds
    who: str
    change: Change


class EditList(TypedDict):
    """The edits of a run, the newest first."""

    edits: list[EditJson]


class EditedRun(TypedDict):
    """A run after an edit."""

    run: RunJson
    edit: EditJson
    undo: Annotated[Change, Meta(description="The body that reverts the edit.")]


class DeletedRun(TypedDict):
    """What the deletion of a run freed on disk."""

    run: str
    deleted: bool
    bytes: int
    freed: Deleted


@Endpoint(
    "/api/runs/{run}",
    "editRun",
    (RUN,),
    method="PATCH",
    body=Annotated[Change, Meta(extra_json_schema={"minProperties": 1})],
)
def change(reader: Reader, given: dict[str, Any]) -> EditedRun:
    """Change the name, notes or tags of a run, or archive it; `undo` of the answer reverts it."""
    edits, recorded = _edits(reader), reader.recorded(given["run"])
    wanted = _change(given["body"])
    row = reader.with_edits(recorded)
    before = Description(row.name or None, row.notes, row.tags, row.archived)
    if len(apply(before, [Edit(run=row.id, time=0, id="", change=wanted)]).tags) > MAX_TAGS:
        raise conflict(f"a run has at most {MAX_TAGS} tags: remove some first")
    latest = max((edit.time for edit in recorded.process_edits), default=0)
    try:
        edit = edits.append(recorded.id, reader.who, wanted, after=latest)
    except OSError as error:
        why = f"the edit cannot be written: {error.strerror or error}"
        raise unavailable(why, 5.0) from None
    now = reader.with_edits(recorded)
    return {
        "run": run_json(now, reader.states.status(now), {}),
        "edit": _shape(edit),
        "undo": undo(recorded.recorded, before, wanted),
    }


@Endpoint("/api/runs/{run}/edits", "listEdits", (RUN,))
def listing(reader: Reader, given: dict[str, Any]) -> EditList:
    """The edits of a run: who, when and what, the newest first."""
    row = reader.recorded(given["run"])
    found = in_order([*row.process_edits, *_edits(reader).of(row.id)])
    return {"edits": [_shape(edit) for edit in reversed(found) if edit.request is None]}


@Endpoint("/api/runs/{run}", "deleteRun", (RUN,), method="DELETE")
def delete(reader: Reader, given: dict[str, Any]) -> DeletedRun:
    """Delete a run that has ended: its journals, quarantined records, stored rows, and uploaded files.

    This cannot be undone.
    """
    row = reader.run(given["run"])
    state = reader.states.state(row)
    if state in UNFINISHED:
        raise conflict(f"the run {row.id} is {state}: end it before you delete it")
    if reader.delete is None:
        raise not_found("deleting runs needs a running hub: start one with `stepscope hub`")
    try:
        freed = reader.delete(row, reader.who)
    except OSError as error:
        why = f"the run cannot be deleted: {error.strerror or error}"
        raise unavailable(why, 5.0) from None
    return {"run": row.id, "deleted": True, "bytes": freed.bytes, "freed": freed}


def _edits(reader: Reader) -> Edits:
    if reader.edits is None:
        raise not_found("edits are stored in a home folder: name one with --home")
    return reader.edits


def _change(body: bytes) -> Change:
    example = '{"name": "...", "notes": "...", "tags": {"name": true}, "archived": true}'
    wanted = decode_body(Change, body, example)
    if not wanted:
        raise bad_request("nothing to change: send a name, notes, tags or archived")
    if isinstance(wanted.name, str) and not wanted.name.strip():
        raise bad_request("a name must not be blank")
    return wanted


def _shape(edit: Edit) -> EditJson:
    return {
        "id": edit.id,
        "time": seconds(edit.time),
        "who": edit.who,
        "change": edit.change,
    }
