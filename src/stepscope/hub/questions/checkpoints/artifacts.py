"""The artifacts that a run made and used, their versions, and the runs at the other end."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
from msgspec import Meta

from stepscope.hub.questions.toolbox.endpoint import RUN, Attrs, Endpoint, Reader, seconds
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.log_rows import LifeEvent, read_life_events, read_life_events_of_project
from stepscope.model import names
from stepscope.model.records import Seconds
from stepscope.wire.plain import plain

MAX_EVENTS = 20_000
"""Events about artifacts that are read of a project, the oldest: the numbers of versions stay as they are."""
MAX_SHOWN = 500
MAX_USERS = 50
"""Runs that used an artifact, of which as many are listed."""
EVENTS = (names.EVENT_ARTIFACT, names.EVENT_ARTIFACT_MEASURED, names.EVENT_ARTIFACT_USED)
_OWN = frozenset(
    ("id", "name", "kind", "path", "step", "copied", "version", "aliases", "bytes", "files", "manifest", "content")
) | {"complete", "artifact"}


class Made(msgspec.Struct):
    """A version of an artifact that a run made."""

    run: int
    event: LifeEvent
    measured: LifeEvent | None
    version: str = ""

    @property
    def id(self) -> str:
        return self.event.text("id") or f"{self.run}-{self.event.time}"

    @property
    def name(self) -> str:
        return self.event.text("name")

    @property
    def content(self) -> str:
        """What is equal for equal artifacts: a hash of the content or of the manifest, else the reference."""
        found = self.measured or self.event
        return found.text("content") or found.text("manifest") or self.event.text("path") or self.id

    @property
    def aliases(self) -> list[str]:
        given = self.event.attrs.get("aliases")
        return [str(each) for each in given] if isinstance(given, list) else []


class OfProject(NamedTuple):
    """The artifacts that the runs of a project made, with their versions, and the uses of any; the oldest first."""

    made: list[Made]
    uses: list[tuple[int, LifeEvent]]
    more: bool
    """Whether there are newer ones, which are left out."""


def made_in(engine: Engine, project: str) -> OfProject:
    """Read the artifacts of a project."""
    found = read_life_events_of_project(engine, project, EVENTS, MAX_EVENTS + 1)
    mine = found[:MAX_EVENTS]
    measured = {(run, event.text("id")): event for run, event in mine if event.name == names.EVENT_ARTIFACT_MEASURED}
    recorded = [
        Made(run, event, measured.get((run, event.text("id"))))
        for run, event in mine
        if event.name == names.EVENT_ARTIFACT
    ]
    made = list({(each.run, each.id): each for each in recorded}.values())  # recorded again: as it was last, once
    _number(made)
    uses = [(run, event) for run, event in mine if event.name == names.EVENT_ARTIFACT_USED]
    return OfProject(made, uses, len(found) > MAX_EVENTS)


def _number(made: Iterable[Made]) -> None:
    """Number the versions of each name in the order of time; equal content is the same version."""
    known: dict[str, dict[str, str]] = {}
    for each in made:
        of_name = known.setdefault(each.name, {})
        given = each.event.text("version")
        each.version = of_name.setdefault(each.content, given or f"v{len(of_name)}")


class MadeArtifact(TypedDict):
    """A version of an artifact that a run made."""

    id: str
    name: str
    version: str
    kind: str
    path: str
    step: int | None
    attempt: int
    time: Seconds
    bytes: int | None
    files: int | None
    manifest: str | None
    content: str | None
    complete: bool | None
    copied: bool
    copied_files: int | None
    failed_files: int | None
    aliases: list[str]
    attrs: Attrs
    used_by: Annotated[list[str], Meta(description=f"Runs that used this version, at most {MAX_USERS}.")]
    users: int


class UsedArtifact(TypedDict):
    """An artifact that a run used."""

    name: str
    version: str
    kind: str
    path: str
    attempt: int
    time: Seconds
    made_by: Annotated[str | None, Meta(description="The run that made it, where it is known.")]


class ArtifactList(TypedDict):
    """The artifacts that a run made and used, the newest first."""

    made: list[MadeArtifact]
    used: list[UsedArtifact]
    more: Annotated[
        bool,
        Meta(
            description=f"Whether the project has more than {MAX_EVENTS:,} records of artifacts, of which the "
            "oldest are read."
        ),
    ]


@Endpoint("/api/runs/{run}/artifacts", "listArtifacts", (RUN,))
def artifacts(reader: Reader, given: dict[str, Any]) -> ArtifactList:
    """The artifacts that a run made and used, the newest first, with the runs that used or made them."""
    row = reader.recorded(given["run"])
    if not read_life_events(reader.engine, row.number, EVENTS, 1):
        return {"made": [], "used": [], "more": False}
    made, uses, more = made_in(reader.engine, row.project)
    known = _Known(made)
    pairs = [(run, event, known.used(event)) for run, event in uses]
    users: dict[str, set[int]] = {}
    for run, _, target in pairs:
        if target is not None:
            users.setdefault(version_of(target), set()).add(run)
    mine = [each for each in made if each.run == row.number][-MAX_SHOWN:]
    used = [(event, target) for run, event, target in pairs if run == row.number][-MAX_SHOWN:]
    ids = reader.visible_ids(
        {run for each in mine for run in users.get(version_of(each), ())}
        | {target.run for _, target in used if target is not None}
    )
    return {
        "made": [_made_json(each, users, ids) for each in reversed(mine)],
        "used": [_used_json(event, target, ids) for event, target in reversed(used)],
        "more": more,
    }


def version_of(made: Made) -> str:
    """The name with the version, `model:v3`."""
    return f"{made.name}:{made.version}"


class _Known:
    """Artifacts by id, by name with version or alias, and by path, each in the order of time."""

    def __init__(self, made: Iterable[Made]) -> None:
        self._found: dict[tuple[str, str], list[Made]] = {}
        for each in made:
            names_of = (each.version, "latest", *each.aliases)
            places = (("path", each.event.text("path")), *(("name", f"{each.name}:{name}") for name in names_of))
            for place in (("id", each.id), *places):
                self._found.setdefault(place, []).append(each)

    def used(self, event: LifeEvent) -> Made | None:
        """Find what a run used: by its id, its name and version, or its path; the newest that was there then."""
        name, _, version = event.text("name").rpartition("/")[2].partition(":")
        if id := event.text("artifact"):
            place = ("id", id)
        elif name:
            place = ("name", f"{name}:{event.text('version') or version or 'latest'}")
        else:
            place = ("path", event.text("path"))
        found = self._found.get(place, []) if place[1] else []
        at = bisect_right(found, event.time, key=lambda each: each.event.time)
        return found[at - 1] if at else None


def _made_json(made: Made, users: dict[str, set[int]], ids: dict[int, str]) -> MadeArtifact:
    event, sizes = made.event, made.measured or made.event
    used_by = sorted(ids[run] for run in users.get(version_of(made), ()) if run in ids)
    return {
        "id": made.id,
        "name": made.name,
        "version": made.version,
        "kind": event.text("kind"),
        "path": event.text("path"),
        "step": event.step,
        "attempt": event.attempt,
        "time": seconds(event.time),
        "bytes": sizes.integer("bytes"),
        "files": sizes.integer("files"),
        "manifest": sizes.text("manifest") or None,
        "content": sizes.text("content") or None,
        "complete": None if "complete" not in sizes.attrs else sizes.attrs["complete"] is True,
        "copied": event.attrs.get("copied") is True,
        "copied_files": sizes.integer("copied_files"),
        "failed_files": sizes.integer("failed_files"),
        "aliases": made.aliases,
        "attrs": plain({name: value for name, value in event.attrs.items() if name not in _OWN}),
        "used_by": used_by[:MAX_USERS],
        "users": len(used_by),
    }


def _used_json(event: LifeEvent, target: Made | None, ids: dict[int, str]) -> UsedArtifact:
    return {
        "name": event.text("name") if target is None else target.name,
        "version": event.text("version") if target is None else target.version,
        "kind": event.text("kind") or ("" if target is None else target.event.text("kind")),
        "path": event.text("path") or ("" if target is None else target.event.text("path")),
        "attempt": event.attempt,
        "time": seconds(event.time),
        "made_by": None if target is None else ids.get(target.run),
    }
