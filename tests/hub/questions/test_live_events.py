"""Server-sent events through the application."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

from starlette.requests import Request

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.findings_json import as_json
from stepscope.hub.diagnosing.thread import Changed
from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.live import Live
from stepscope.hub.questions.live_events import LiveEvents
from stepscope.hub.security.guard import ACCESS, Access
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Log, Metric, Span

WRITER = Writer(id="w", run="r", project="p", rank=3)
RECORDS = [
    Metric(2 * 10**9, 7, None, "trainer", {"loss": float("nan"), "lr": 0.1}),
    Log(2 * 10**9, 7, None, None, None, 9, "hello"),
    Alert(2 * 10**9, 7, None, None, None, 17, "nan", "bad"),
    Span(10**9, 10**6, 7, None, bytes(16), bytes(8), None, "train.step"),
]


def watch(live: Live, query: str, use: Callable[[AsyncIterator[bytes]], Any], **options: Any) -> Any:
    """Open a stream and use its pieces."""

    async def run() -> Any:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/live",
            "query_string": query.encode(),
            "headers": [],
            ACCESS: Access(),
        }
        response: Any = await LiveEvents(live, **options).answer(Request(scope))
        if not hasattr(response, "body_iterator"):
            return response
        stream = response.body_iterator
        try:
            return await use(stream)
        finally:
            await stream.aclose()

    return asyncio.run(run())


def parsed(piece: bytes) -> SimpleNamespace:
    """One event."""
    fields = dict(line.split(": ", 1) for line in piece.decode().strip().splitlines())
    return SimpleNamespace(name=fields["event"], data=json.loads(fields["data"]), id=fields.get("id"))


def test_records_of_a_run() -> None:
    """Points come in columns with NaN as a word; logs, alerts and spans as the API shows them."""
    live = Live()

    async def use(stream: AsyncIterator[bytes]) -> Any:
        hello = parsed(await anext(stream))
        live.take([ReceivedBatch("folder", Batch(WRITER, 1, list(RECORDS)))])
        return hello, parsed(await anext(stream))

    hello, told = watch(live, "run=r", use)
    assert (hello.name, told.name) == ("hello", "records")
    assert told.data["points"]["trainer/loss"] == {"step": [7], "time": [2.0], "value": ["NaN"]}
    assert told.data["logs"][0]["body"] == "hello"
    assert told.data["alerts"][0]["rank"] == 3
    assert told.data["spans"][0]["duration_ms"] == 1.0
    assert told.id != hello.data["cursor"]


def test_kinds_and_keys() -> None:
    """Only the requested kinds and metrics are sent."""
    live = Live()

    async def use(stream: AsyncIterator[bytes]) -> Any:
        await anext(stream)
        live.take([ReceivedBatch("folder", Batch(WRITER, 1, list(RECORDS)))])
        return parsed(await anext(stream))

    told = watch(live, "run=r&kind=metric&key=trainer/lr", use)
    assert list(told.data["points"]) == ["trainer/lr"]
    assert "logs" not in told.data


def test_which_runs_moved() -> None:
    """Without a run, the stream has only the ids of changed runs."""
    live = Live()

    async def use(stream: AsyncIterator[bytes]) -> Any:
        await anext(stream)
        live.take([ReceivedBatch("folder", Batch(WRITER, 1, list(RECORDS)))])
        return parsed(await anext(stream))

    assert watch(live, "", use).data == {"runs": [{"id": "r", "step": 7, "seen": 2.0}]}


def test_beats_and_the_end() -> None:
    """Heartbeats are sent while idle; the stream ends when the hub stops."""
    live = Live()

    async def use(stream: AsyncIterator[bytes]) -> Any:
        await anext(stream)
        beat = parsed(await anext(stream))
        live.close()
        return beat, [piece async for piece in stream]

    beat, rest = watch(live, "run=r", use, heartbeat=0.01)
    assert (beat.name, rest) == ("beat", [])


def test_a_slow_client_is_let_go() -> None:
    """A slow reader gets the number of events it missed, and the stream ends."""
    live = Live(most_records=10)

    async def use(stream: AsyncIterator[bytes]) -> Any:
        await anext(stream)
        for _ in range(5):
            live.take([ReceivedBatch("folder", Batch(WRITER, 1, list(RECORDS)))])
        return [parsed(piece) async for piece in stream]

    (gap,) = watch(live, "run=r", use)
    assert (gap.name, gap.data["missed"]) == ("gap", 20)
    assert live.subscribe(lambda: None)[0]


def test_an_expired_cursor_is_reported() -> None:
    """A cursor of another life of the hub brings a gap first."""
    live = Live()

    async def use(stream: AsyncIterator[bytes]) -> Any:
        return [parsed(await anext(stream)) for _ in range(2)]

    assert [event.name for event in watch(live, "run=r&cursor=old-3", use)] == ["hello", "gap"]


def test_wrong_parameters() -> None:
    """A wrong kind is refused before a stream begins."""

    async def use(stream: AsyncIterator[bytes]) -> Any:
        raise AssertionError

    assert watch(Live(), "kind=x", use).status_code == 400


def test_findings_that_change_are_events() -> None:
    """The stream of a run has its findings, the stream of all runs their numbers."""
    found = Finding("spike", "ERROR", "loss spiked", step=7, ranks=(1,), key="loss")
    for query, data in (
        ("run=r", {"run": "r", "findings": [as_json(found)]}),
        ("", {"runs": [{"id": "r", "findings": 1, "worst": "ERROR"}]}),
    ):
        live = Live()

        async def use(stream: AsyncIterator[bytes], live: Live = live) -> Any:
            await anext(stream)
            live.take_findings([Changed("r", "p", [found])])
            return parsed(await anext(stream))

        event = watch(live, query, use)
        assert (event.name, event.data) == ("findings", data)
