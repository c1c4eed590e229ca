"""The endpoint `/api/live`: server-sent events of what is being stored."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from stepscope.alerts.alert import Expected, findings_json, unexpected
from stepscope.hub.diagnosing.thread import Changed
from stepscope.hub.live import Live, Moment, Subscription, TooMany
from stepscope.hub.questions.logs import RecordJson, record_json
from stepscope.hub.questions.openapi import errors, parameters
from stepscope.hub.questions.toolbox.endpoint import Param, check, check_shared, seconds
from stepscope.hub.questions.traces.stored_spans import SpanJson, SpanRow, span_json
from stepscope.hub.refusals import Refusal, Refused, error_response
from stepscope.hub.security.guard import Access, access_of
from stepscope.hub.store.read.log_rows import LogRow
from stepscope.hub.store.write.finding_rows import worst
from stepscope.model.names import SCOPE_SAMPLES, canonical_key
from stepscope.model.ports import Batch
from stepscope.model.records import KINDS, Log, Metric, Span, Value, kind, mean_of, word


def batch_json(batch: Batch, kinds: Sequence[str] = KINDS, keys: Sequence[str] = ()) -> dict[str, Any] | None:
    """The records of a batch by kind; None when none of them is wanted. Samples are only counted by table."""
    writer = batch.writer
    points: dict[str, dict[str, list[Any]]] = {}
    others: dict[str, list[SpanJson | RecordJson]] = {}
    samples: dict[str, int] = {}
    wanted = frozenset(map(canonical_key, keys))
    for record in batch.records:
        if kind(record) not in kinds:
            continue
        if isinstance(record, Metric):
            _add_points(points, record, wanted)
        elif isinstance(record, Span):
            row = SpanRow(0, writer.rank, writer.attempt, record)
            others.setdefault("spans", []).append(span_json(row, writer.run))
        elif isinstance(record, Log) and record.scope == SCOPE_SAMPLES:
            samples[str(record.body)] = samples.get(str(record.body), 0) + 1
        else:
            entry = record_json(LogRow(0, writer.rank, writer.attempt, record), writer.run)
            others.setdefault(f"{entry['kind']}s", []).append(entry)
    if not points and not others and not samples:
        return None
    who = {"run": writer.run, "writer": writer.id, "rank": writer.rank, "attempt": writer.attempt}
    return {**who, **({"points": points} if points else {}), **({"samples": samples} if samples else {}), **others}


def _add_points(points: dict[str, dict[str, list[Any]]], record: Metric, wanted: frozenset[str]) -> None:
    for key, value in record.points():
        if wanted and canonical_key(key) not in wanted:
            continue
        columns = points.setdefault(key, {"step": [], "time": [], "value": []})
        columns["step"].append(record.step)
        columns["time"].append(seconds(record.time))
        columns["value"].append(_scalar(value))


def _scalar(value: Value) -> float | str | None:
    number = mean_of(value)
    return None if number is None else word(float(number))


def changed_runs(batches: Iterable[Batch]) -> dict[str, Any]:
    """The runs with records in these batches, each with its highest step and latest time."""
    runs: dict[str, dict[str, Any]] = {}
    for batch in batches:
        steps = [record.step for record in batch.records if record.step is not None]
        last = max((record.time for record in batch.records), default=0)
        known = runs.setdefault(batch.writer.run, {"id": batch.writer.run, "step": None, "seen": 0.0})
        known["step"] = max(steps + ([] if known["step"] is None else [known["step"]]), default=None)
        known["seen"] = max(known["seen"], seconds(last) or 0.0)
    return {"runs": list(runs.values())}


PATH = "/api/live"
HEARTBEAT_SECONDS = 10.0
_CHECK_SECONDS = 1.0
"""Seconds between two checks of whether the token is still valid."""
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
PARAMS = (
    Param("run", "text", "a run; without one, only the runs that changed are sent"),
    Param("kind", "choice", "records of this kind only", many=len(KINDS), choices=KINDS),
    Param("key", "text", "points of this metric only, in any spelling of its category", many=64),
    Param("cursor", "text", "resume after this event, as Last-Event-ID does"),
)


def describe() -> dict[str, Any]:
    """Describe the endpoint for OpenAPI."""
    text = (
        "Server-sent events. `hello` comes first; `records` bring points by key, logs, events, alerts and spans of a "
        "run, `runs` names the runs that changed, `findings` has the findings of a run when they change, "
        "`beat` is a heartbeat, and `gap` says that records were skipped, because the cursor is too old, the client "
        "too slow, or another hub could not send them: reload. In the last two cases the stream ends after it."
    )
    good = {"description": "Events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    made = {"operationId": "watch", "summary": "Records as they are stored.", "description": text}
    return {PATH: {"get": {**made, "parameters": parameters(PARAMS), "responses": {"200": good, **errors()}}}}


class LiveEvents:
    """Answers requests for live events."""

    def __init__(
        self,
        live: Live,
        still_valid: Callable[[Access], bool] = lambda access: True,
        heartbeat: float = HEARTBEAT_SECONDS,
        marks: Callable[[], list[Expected]] = list,
    ) -> None:
        self._live, self._marks = live, marks
        self._still_valid = still_valid
        self._heartbeat = heartbeat

    async def answer(self, request: Request) -> Response:
        """Start a stream of events."""
        try:
            given = check(PARAMS, {}, request.query_params.multi_items(), attrs=False)
            check_shared(access_of(request.scope).run, given)
        except Refused as refused:
            return error_response(refused.refusal)
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.set)

        cursor = given["cursor"] or request.headers.get("last-event-id")
        access = access_of(request.scope)
        client = access.token.id if access.token is not None else str(request.client.host if request.client else "")
        try:
            subscription, forgot = self._live.subscribe(
                wake, run=given["run"], project=access.project, cursor=cursor, client=client
            )
        except TooMany as error:
            return error_response(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error), 10.0))
        events = self._events(subscription, arrived, given, access, forgot=forgot)
        return StreamingResponse(events, media_type="text/event-stream", headers=_HEADERS)

    async def _events(
        self, subscription: Subscription, arrived: asyncio.Event, given: dict[str, Any], access: Access, *, forgot: bool
    ) -> AsyncIterator[bytes]:
        try:
            _, _, cursor = self._live.drain(subscription) if forgot else ([], 0, self._live.cursor(subscription.number))
            yield b"retry: 2000\n" + event("hello", {"cursor": cursor}, None)
            if forgot:
                yield event("gap", {"missed": None, "reason": "the cursor is too old"}, cursor)
            while not self._live.closed and self._still_valid(access):
                moments, missed, cursor = self._live.drain(subscription)
                if missed:
                    yield event("gap", {"missed": missed, "reason": subscription.reason}, cursor)
                    return
                for moment in moments:
                    for piece in self._events_of(moment, given):
                        yield piece
                if not await self._wait(arrived, access):
                    yield event("beat", {}, cursor)
                arrived.clear()
        finally:
            self._live.unsubscribe(subscription)

    async def _wait(self, arrived: asyncio.Event, access: Access) -> bool:
        """Wait for events until the next heartbeat while the token is valid; return whether there are any."""
        until = time.monotonic() + self._heartbeat
        while (left := until - time.monotonic()) > 0 and self._still_valid(access):
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(arrived.wait(), min(left, _CHECK_SECONDS))
        return False

    def _events_of(self, moment: Moment, given: dict[str, Any]) -> Iterator[bytes]:
        cursor = self._live.cursor(moment.number)
        if given["run"] is None:
            if moment.batches:
                yield event("runs", changed_runs(moment.batches), cursor)
            if moment.findings:
                marks = self._marks()
                yield event("findings", {"runs": [_counted(each, marks) for each in moment.findings]}, cursor)
            return
        for batch in moment.batches:
            found = batch_json(batch, given["kind"] or KINDS, given["key"])
            if found is not None:
                yield event("records", found, cursor)
        for each in moment.findings:
            named = findings_json(each.findings, each.run, each.project, self._marks())
            yield event("findings", {"run": each.run, "findings": named}, cursor)


def _counted(changed: Changed, marks: list[Expected]) -> dict[str, Any]:
    left = unexpected(changed.findings, changed.run, changed.project, marks)
    return {"id": changed.run, "findings": len(left), "worst": worst(left) or None}


def event(name: str, data: Any, cursor: str | None) -> bytes:
    """Write one event."""
    id = "" if cursor is None else f"id: {cursor}\n"
    return f"{id}event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
