"""Requests to a running program: to stop and to change its live settings, and what became of them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta

from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Reader, decode_body, one_of, seconds
from stepscope.hub.refusals import bad_request, conflict, not_found, unavailable
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.log_rows import LifeEvent, read_life_events
from stepscope.hub.store.read.run_row import RunRow
from stepscope.journal import layout
from stepscope.journal.run_edits import Edits
from stepscope.model import names
from stepscope.model.records import Seconds
from stepscope.model.run_description import Edit, in_order
from stepscope.model.run_requests import Request, Settings, fitting, kind_of
from stepscope.model.states import UNFINISHED
from stepscope.wire.plain import plain

MAX_EVENTS = 10_000
MAX_CHANGES = 100
_EVENTS = (names.EVENT_STOP, names.EVENT_STOPPED, names.EVENT_LIVE, names.EVENT_LIVE_CHANGED)
StopState = Literal["requested", "received", "stopped", "ended"]
ChangeState = Literal["requested", "applied", "refused", "ended"]


class StopJson(TypedDict):
    """A request to stop, and what became of it."""

    id: str
    who: str
    time: Seconds
    attempt: int
    state: Annotated[StopState, Meta(description="`stopped` in order, or `ended` in another way.")]
    ranks: Annotated[int, Meta(description="Processes that received it.")]
    asks: Annotated[bool | None, Meta(description="Whether the program had looked for a request by then.")]
    heard_step: int | None
    last_step: int | None


class SettingJson(TypedDict):
    """A setting that the program declared as live."""

    name: str
    kind: Annotated[str, one_of(("boolean", "integer", "number", "text"))]
    declared: Any
    value: Annotated[Any, Meta(description="The present one.")]
    requested: Any


class SettingChange(TypedDict):
    """A request to change a setting, and what became of it."""

    id: str
    name: str
    value: Any
    before: Any
    who: str
    time: Seconds
    state: ChangeState
    reason: str
    ranks: int
    step: int | None


class ControlJson(TypedDict):
    """What users asked of a program."""

    run: str
    attempt: Annotated[int, Meta(description="The newest.")]
    allowed: Annotated[bool, Meta(description="Whether something can be asked of the program now.")]
    reason: Annotated[str, Meta(description="If not, why.")]
    stop: StopJson | None
    settings: list[SettingJson]
    changes: Annotated[list[SettingChange], Meta(description="Those of the newest attempt, the newest first.")]


@Endpoint("/api/runs/{run}/control", "describeControl", (RUN,))
def control(reader: Reader, given: dict[str, Any]) -> ControlJson:
    """What users asked of the program: to stop, and to change its live settings, and what became of each request."""
    return _describe(reader, reader.recorded(given["run"]))


@Endpoint("/api/runs/{run}/stop", "stopRun", (RUN,), method="POST")
def stop(reader: Reader, given: dict[str, Any]) -> ControlJson:
    """Ask the program to stop. It is not killed: it hears the request and ends when it is ready.

    A second request changes nothing.
    """
    edits, row = _edits(reader), reader.recorded(given["run"])
    attempt = _newest(edits, row)
    _check_running(reader, row)
    known = edits.requests(row.id).stop
    if known is None or known.attempt < attempt:
        _append(edits, row, reader.who, Request(attempt=attempt, stop=True))
    return _describe(reader, row)


@Endpoint(
    "/api/runs/{run}/live",
    "setLive",
    (RUN,),
    method="POST",
    body=Annotated[
        Settings,
        Meta(min_length=1, description="Settings that the program declared as live, and the values they are to have."),
    ],
)
def change(reader: Reader, given: dict[str, Any]) -> ControlJson:
    """Ask the program to change settings that it declared as live; a second request changes nothing."""
    edits, row = _edits(reader), reader.recorded(given["run"])
    wanted = _settings(given["body"])
    attempt = _newest(edits, row)
    _check_running(reader, row)
    declared = _declared(_recorded(reader, row), attempt)
    for name in wanted:
        if name not in declared:
            known = ", ".join(sorted(declared)) or "none: it calls run.live(NAME=VALUE) to declare them"
            raise conflict(f"the program did not declare {name[:80]!r} as a live setting; there are {known}")
        try:
            wanted[name] = fitting(declared[name], wanted[name])
        except ValueError as error:
            raise bad_request(f"{name[:80]} {error}") from None
    asked = edits.requests(row.id).settings
    fresh = {
        name: value
        for name, value in wanted.items()
        if name not in asked or asked[name].attempt < attempt or asked[name].value != value
    }
    if fresh:
        _append(edits, row, reader.who, Request(attempt=attempt, settings=fresh))
    return _describe(reader, row)


def _edits(reader: Reader) -> Edits:
    if reader.edits is None:
        raise not_found("requests are stored in a home folder: name one with --home")
    return reader.edits


def _newest(edits: Edits, row: RunRow) -> int:
    """The newest attempt, also one of which nothing is stored yet."""
    return max(row.attempts, edits.newest_attempt(row.id))


def _check_running(reader: Reader, row: RunRow) -> None:
    why = _why_not(reader, row)
    if why:
        raise conflict(why)


def _why_not(reader: Reader, row: RunRow) -> str:
    """Why nothing can be asked of a run; empty when it can."""
    state = reader.states.state(row)
    if state not in UNFINISHED:
        return f"the run {row.id} is {state}: only a run that has not ended can be asked to stop or to change"
    if not layout.is_safe(row.id) or not _is_ours(reader.engine, row.number):
        return f"the run {row.id} was not recorded by Stepscope's own client, which alone can be asked to stop"
    return ""


def _is_ours(engine: Engine, run: int) -> bool:
    """Return whether a process of a run uses our own client, whose writers have such names."""
    found = engine.query(f"SELECT countIf(match(id, '^r[0-9]+-a[0-9]+-')) AS ours FROM writers WHERE run = {run}")
    return bool(found["ours"][0])


def _append(edits: Edits, row: RunRow, who: str, request: Request) -> None:
    try:
        edits.append(row.id, who, request=request)
    except OSError as error:
        raise unavailable(f"the request cannot be written: {error.strerror or error}", 5.0) from None


def _settings(body: bytes) -> dict[str, Any]:
    wanted: dict[str, Any] = decode_body(Settings, body, '{"lr_scale": 0.5}')
    if not wanted:
        raise bad_request("nothing to change: send at least one setting")
    return wanted


def _recorded(reader: Reader, row: RunRow) -> list[LifeEvent]:
    """What processes recorded about requests, the oldest first."""
    found = read_life_events(reader.engine, row.number, _EVENTS, MAX_EVENTS)
    return sorted(found, key=lambda event: (event.time, event.rank))


def _declared(events: Sequence[LifeEvent], attempt: int) -> dict[str, Any]:
    """The settings that an attempt declared, with their first values; of several ranks, the lowest declares."""
    found: dict[str, Any] = {}
    for event in sorted(events, key=lambda each: each.rank):
        settings = event.attrs.get("settings")
        if event.name == names.EVENT_LIVE and event.attempt == attempt and isinstance(settings, dict):
            for name, value in settings.items():
                if kind_of(value) is not None:
                    found.setdefault(name, value)
    return found


def _describe(reader: Reader, row: RunRow) -> ControlJson:
    edits = in_order(_edits(reader).of(row.id))
    events = _recorded(reader, row)
    why = _why_not(reader, row)
    attempt = _newest(_edits(reader), row)
    changes = _changes(edits, events, attempt, ended=bool(why))
    declared = _declared(events, attempt)
    now = {each["name"]: each["value"] for each in reversed(changes) if each["state"] == "applied"}
    asked = {each["name"]: each["value"] for each in reversed(changes) if each["state"] == "requested"}
    return {
        "run": row.id,
        "attempt": attempt,
        "allowed": not why,
        "reason": why,
        "stop": _stop(row, edits, events, attempt, ended=bool(why)),
        "settings": [
            {
                "name": name,
                "kind": _kind(value),
                "declared": value,
                "value": now.get(name, value),
                "requested": asked.get(name),
            }
            for name, value in declared.items()
        ],
        "changes": changes[:MAX_CHANGES],
    }


def _kind(value: Any) -> str:
    return {bool: "boolean", int: "integer", float: "number", str: "text"}[type(value)]


def _stop(
    row: RunRow, edits: Sequence[Edit], events: Sequence[LifeEvent], attempt: int, *, ended: bool
) -> StopJson | None:
    """The last request to stop and what became of it; None when there is none."""
    asked = [edit for edit in edits if edit.request is not None and edit.request.stop]
    if not asked:
        return None
    last = asked[-1]
    of = last.request.attempt if last.request is not None else 0
    mine = [event for event in events if event.text("request") == last.id]
    heard = {event.rank: event for event in mine if event.name == names.EVENT_STOP}
    done = {event.rank for event in mine if event.name == names.EVENT_STOPPED}
    over = ended or of < attempt
    state: StopState = "stopped" if done and over else "ended" if over else "received" if heard else "requested"
    return {
        "id": last.id,
        "who": last.who,
        "time": seconds(last.time),
        "attempt": of,
        "state": state,
        "ranks": len(heard),
        "asks": any(event.attrs.get("asks") is True for event in heard.values()) if heard else None,
        "heard_step": max((event.step for event in heard.values() if event.step is not None), default=None),
        "last_step": row.step if state in ("stopped", "ended") and of == attempt else None,
    }


def _changes(edits: Sequence[Edit], events: Sequence[LifeEvent], attempt: int, *, ended: bool) -> list[SettingChange]:
    """The requests to change settings of the newest attempt, the newest first, and what became of each."""
    by_request: dict[tuple[str, str], list[LifeEvent]] = {}
    for event in events:
        if event.name == names.EVENT_LIVE_CHANGED:
            by_request.setdefault((event.text("request"), event.text("name")), []).append(event)
    found: list[SettingChange] = []
    for edit in reversed(edits):
        request = edit.request
        if request is None or request.attempt != attempt:
            continue
        for name, value in request.settings.items():
            mine = by_request.get((edit.id, name), [])
            refused = next((str(event.attrs["refused"]) for event in mine if "refused" in event.attrs), "")
            state: ChangeState = "refused" if refused else "applied" if mine else "ended" if ended else "requested"
            found.append(
                {
                    "id": edit.id,
                    "name": name,
                    "value": value,
                    "before": plain(mine[0].attrs.get("before")) if mine else None,
                    "who": edit.who,
                    "time": seconds(edit.time),
                    "state": state,
                    "reason": refused,
                    "ranks": len({event.rank for event in mine}),
                    "step": max((event.step for event in mine if event.step is not None), default=None),
                }
            )
    return found
