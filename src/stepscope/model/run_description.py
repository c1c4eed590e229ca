"""The configuration of a run; edits of its name, notes and tags, and the description that results from them."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from stepscope.model.names import EVENT_CONFIG, EVENT_STARTED
from stepscope.model.records import Event
from stepscope.model.redaction import redact
from stepscope.model.run_requests import Request

LONGEST_NAME, LONGEST_NOTES, LONGEST_TAG = 256, 65_536, 256
MAX_TAGS = 100
"""The most tags of one run."""

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, extra_json_schema={"pattern": r"\S"})]
Notes = Annotated[str, Meta(max_length=LONGEST_NOTES)]
TagName = Annotated[str, Meta(min_length=1, max_length=LONGEST_TAG)]
TagText = Annotated[str, Meta(max_length=LONGEST_TAG)]
LARGEST_TAG = 2**53
"""The largest number that a tag may have; beyond it JSON parsers differ."""
TagNumber = Annotated[int, Meta(ge=-LARGEST_TAG, le=LARGEST_TAG)]
TagReal = Annotated[float, Meta(ge=-LARGEST_TAG, le=LARGEST_TAG)]
TagValue = bool | TagNumber | TagReal | TagText
"""The value of a tag; a plain tag, which has none, is True."""
Tags = dict[TagName, TagValue]


class Change(Struct, frozen=True, forbid_unknown_fields=True):
    """What an edit changes: a field that is left out stays as it is.

    None as the name or the notes restores what was recorded; None as the value of a tag removes the tag.
    """

    name: Name | UnsetType | None = UNSET
    notes: Notes | UnsetType | None = UNSET
    tags: Annotated[dict[TagName, TagValue | None], Meta(max_length=MAX_TAGS)] | UnsetType = UNSET
    archived: bool | UnsetType = UNSET

    def __bool__(self) -> bool:
        return any(each is not UNSET for each in (self.name, self.notes, self.tags, self.archived))


class Edit(Struct, frozen=True, kw_only=True):
    """One edit of one run: who made it, when, and what it changed; with `deleted` it is the run's tombstone.

    With a `request` it changes nothing itself: it asks something of the program.
    """

    run: str
    time: int
    id: str
    """Orders edits of the same time."""
    who: str = ""
    change: Change = field(default_factory=Change)
    deleted: bool = False
    request: Request | None = None


class Description(Struct, frozen=True):
    """Name, notes and tags of a run."""

    name: str | None = None
    notes: str = ""
    tags: Mapping[str, Any] = {}
    archived: bool = False


def in_order(edits: Iterable[Edit]) -> list[Edit]:
    """Sort edits so that the last one wins, and leave out those made before the run was deleted."""
    found = sorted(edits, key=lambda edit: (edit.time, edit.id))
    last = max((at for at, edit in enumerate(found) if edit.deleted), default=-1)
    return found[last + 1 :]


def apply(recorded: Description, edits: Iterable[Edit]) -> Description:
    """Apply edits to what was recorded: for each field, and for each tag, the last edit wins."""
    ordered = in_order(edits)
    if not ordered:
        return recorded
    name, notes, archived = recorded.name, recorded.notes, recorded.archived
    tags = dict(recorded.tags)
    for edit in ordered:
        change = edit.change
        if change.name is not UNSET:
            name = recorded.name if change.name is None else change.name
        if change.notes is not UNSET:
            notes = recorded.notes if change.notes is None else change.notes
        if change.archived is not UNSET:
            archived = change.archived
        for tag, value in ({} if change.tags is UNSET else change.tags).items():
            tags.pop(tag, None)
            if value is not None:
                tags[tag] = value
    return Description(name, notes, tags, archived)


def safe_change(change: Change) -> Change:
    """Copy a change with the secrets in it masked."""
    return Change(
        name=redact(change.name) if isinstance(change.name, str) else change.name,
        notes=redact(change.notes) if isinstance(change.notes, str) else change.notes,
        tags=redact(change.tags) if isinstance(change.tags, dict) else change.tags,
        archived=change.archived,
    )


def undo(recorded: Description, before: Description, change: Change) -> Change:
    """The change that restores what a change replaces."""
    return Change(
        name=UNSET if change.name is UNSET else None if before.name == recorded.name else before.name,
        notes=UNSET if change.notes is UNSET else None if before.notes == recorded.notes else before.notes,
        tags=UNSET if change.tags is UNSET else {tag: before.tags.get(tag) for tag in change.tags},
        archived=UNSET if change.archived is UNSET else before.archived,
    )


def read_tags(given: Any) -> dict[str, Any]:
    """Read tags as scripts, variables and foreign clients give them: a mapping, a list, or comma-separated text.

    `name=value` is a tag with a value. Blank ones are left out; values that are not numbers or text become text. A list
    may hold mappings and lists.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {tag: _value(value) for name, value in given.items() if (tag := _text(name)) and value is not None}
    several = given.split(",") if isinstance(given, str) else given if isinstance(given, Iterable) else (given,)
    found: dict[str, Any] = {}
    for each in several:
        found |= read_tags(each) if isinstance(each, Mapping) else _plain_tags(each)
    return found


def _plain_tags(given: Any) -> dict[str, Any]:
    """Read one tag, or the tags of a list within a list."""
    found: dict[str, Any] = {}
    for each in given if isinstance(given, (list, tuple, set, frozenset)) else (given,):
        name, sign, value = _text(each).partition("=")
        if name.strip():
            found[name.strip()] = value.strip() if sign else True
    return found


def _text(given: Any) -> str:
    return str(given).strip()[:LONGEST_TAG]


def _value(given: Any) -> Any:
    plain = isinstance(given, bool) or (isinstance(given, (int, float)) and abs(given) <= LARGEST_TAG)
    return given if plain else _text(given)


def tag_text(name: str, value: Any) -> str:
    """Format a tag: its name, and its value where it has one."""
    return name if value is True else f"{name}={value}"


def config_of(event: Event) -> Mapping[str, Any] | None:
    """The configuration at a start, or the settings that an event adds or changes later; None for other events."""
    if event.name == EVENT_CONFIG:
        return event.attrs
    config = event.attrs.get("config") if event.name == EVENT_STARTED else None
    return config if isinstance(config, dict) else None
