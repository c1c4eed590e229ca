"""Goodput, asked over HTTP: the same as out of the journal."""

from collections import defaultdict

import pytest
from msgspec import structs

from stepscope.hub.service import Hub
from stepscope.journal.run_goodput import Folding
from stepscope.model import names
from stepscope.model.goodput_sums import conclude
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric, Record, Span
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import SECOND, START, STEPS, fill


def test_shares_of_a_run(get: Get) -> None:
    """Two ranks of 120 s, of which 250 ms of each second were productive, and 750 ms of the slow one."""
    found = get("/api/runs/big/goodput")
    assert found["seconds"] == pytest.approx(240.0, rel=0.01)
    assert found["buckets"]["productive"] == pytest.approx(2 * (STEPS * 0.25 + 0.5))
    assert found["goodput"] == found["shares"]["productive"] == pytest.approx(0.252, rel=0.01)
    assert sum(found["shares"].values()) == pytest.approx(1.0)
    assert found["phases"]["train.forward"] == pytest.approx(2 * (STEPS * 0.1 + 0.2))
    assert (found["steps"], found["tokens"], found["tokens_per_second"]) == (STEPS, 0.0, None)
    assert found["steps_per_second"] == pytest.approx(1.0, rel=0.01)


def test_an_unknown_run(get: Get) -> None:
    """An unknown run is a 404."""
    get("/api/runs/nobody/goodput", expect=404)


def nested() -> Batch:
    """A run with nested spans with buckets, tokens, and an unknown bucket."""

    def span(name: str, start: int, lasts: int, id: int, parent: int | None, bucket: str | None = None) -> Span:
        above = None if parent is None else parent.to_bytes(8, "big")
        attrs = {} if bucket is None else {names.ATTR_BUCKET: bucket, "other": 1}
        place = id.to_bytes(8, "big")
        time, lasted = START + start * SECOND, lasts * SECOND
        return Span(time, lasted, 1, None, b"n" * 16, place, above, name, 1, 0, "", attrs)

    records: list[Record] = [
        span("train.data_load", 1, 2, 1, 9),
        span("batch_processing", 3, 5, 2, 9, "nonsense"),
        span("mine", 8, 1, 3, 9, "wasted"),
        span("outer", 1, 9, 9, 10, "overhead"),
        span("train.step", 0, 20, 10, None),
        Metric(START + SECOND, 1, None, "trainer", {"tokens": 4000, "loss": 1.0}),
        Metric(START + 2 * SECOND, 1, "policy_version", None, {"num_tokens": float("nan")}),
    ]
    return Batch(Writer(id="w", run="nested", project="p", wall_ns=START), 1, records)


def test_nested_buckets(hub: Hub, get: Get) -> None:
    """A span's own time is what the bucketed ones right below it did not take."""
    hub.store.write(nested())
    found = get("/api/runs/nested/goodput")
    assert found["buckets"] == {"productive": 5.0, "overhead": 1.0, "idle": 2.0, "wasted": 1.0, "unaccounted": 11.0}
    assert (found["tokens"], found["tokens_per_second"]) == (4000.0, 200.0)


def test_journal_and_store_agree(hub: Hub, get: Get) -> None:
    """Every run of the world has the same goodput by both ways."""
    batches: defaultdict[str, list[Batch]] = defaultdict(list)
    fill(lambda batch: batches[batch.writer.run].append(batch))
    hub.store.write(nested())  # a second time changes nothing
    batches["nested"] = [nested()]
    for run, those in batches.items():
        folding = Folding(hub.home.home, run)
        for batch in those:
            part = batch.writer.rank, batch.writer.attempt
            if batch.writer.wall_ns:
                folding.sums.reach(part, batch.writer.wall_ns, batch.writer.wall_ns)
            folding.take(part, batch.records)
        ours, theirs = conclude(folding.sums), get(f"/api/runs/{run}/goodput")
        assert theirs["buckets"] == pytest.approx(ours.buckets), run
        assert (theirs["steps"], theirs["seconds"]) == (ours.steps, pytest.approx(ours.seconds)), run
        assert theirs["steps_per_second"] == ours.steps_per_second
        assert theirs["tokens"] == ours.tokens


def test_a_sampled_phase_counts_for_the_steps_it_stands_for(hub: Hub, get: Get) -> None:
    """One forward pass of eight was timed, with a wait for data inside; the journal says the same."""

    def span(name: str, start: int, lasts: int, id: int, parent: int | None, **attrs: int) -> Span:
        above = None if parent is None else bytes([parent] * 8)
        named = {f"train.{key}": value for key, value in attrs.items()}
        time = START + start * SECOND
        return Span(time, lasts * SECOND, 1, None, b"s" * 16, bytes([id] * 8), above, name, 1, 0, "", named)

    records: list[Record] = [
        span("train.data_load", 1, 1, 1, 2),
        span("train.forward", 1, 3, 2, 9, sampled=8),
        span("train.backward", 4, 2, 3, 9, sampled=8),
        span("train.step", 0, 100, 9, None),
    ]
    batch = Batch(Writer(id="s", run="sampled", project="p", wall_ns=START), 1, records)
    hub.store.write(batch)
    folding = Folding(hub.home.home, "sampled")
    folding.take((0, 1), batch.records)
    found, ours = get("/api/runs/sampled/goodput"), conclude(folding.sums)
    assert found["phases"]["train.forward"] == ours.phases["train.forward"] == 16.0
    assert found["buckets"] == ours.buckets
    assert found["buckets"]["productive"] == 32.0


def test_a_span_with_an_old_start_does_not_lengthen_the_run(hub: Hub, get: Get) -> None:
    """A year before its run, or the epoch, is no time of the run; the journal says the same."""
    who = structs.replace(nested().writer, id="old", run="old", wall_ns=START)
    spans = [
        Span(start, START + 2 * SECOND - start, 1, None, bytes(16), bytes([n] * 8), None, "x")
        for n, start in enumerate((1, START - 10**16, START + 1), 1)
    ]
    batch = Batch(who, 0, list(spans))
    hub.store.write(batch)
    folding = Folding(hub.home.home, "old")
    folding.sums.reach((who.rank, who.attempt), START, START)
    folding.take((who.rank, who.attempt), batch.records)
    assert get("/api/runs/old/goodput")["seconds"] == conclude(folding.sums).seconds == 2.0


def test_a_counter_of_tokens_is_counted_by_its_increase(hub: Hub, get: Get) -> None:
    """The store tells a counter as the journal does, over two attempts of which the later goes back a little."""
    for attempt, first, last in ((1, 0, 100), (2, 80, 200)):
        records: list[Record] = [
            Metric(START + n * SECOND, n, None, "trainer", {"tokens": 512 * (n + 1), "num_tokens": 512})
            for n in range(first, last)
        ]
        writer = Writer(id=f"c{attempt}", run="counter", project="p", attempt=attempt, wall_ns=START + first * SECOND)
        hub.store.write(Batch(writer, 1, records))
    found = get("/api/runs/counter/goodput")
    assert found["tokens"] == pytest.approx(2 * 220 * 512)
    assert found["tokens_counted"] is True


def test_a_run_lasts_until_its_last_span_ends(hub: Hub, get: Get) -> None:
    """A long span at the end of a run is part of its duration."""
    span = Span(START + SECOND, 30 * SECOND, None, None, b"l" * 16, b"l" * 8, None, "checkpoint", 1, 0, "", {})
    hub.store.write(Batch(Writer(id="l", run="lasting", project="p", wall_ns=START), 1, [span]))
    assert get("/api/runs/lasting")["duration"] == 31.0


def test_rates_of_many_runs_are_those_of_their_goodput(get: Get) -> None:
    """The steps per second of several runs, asked for at once, are those of each alone; unknown runs are left out."""
    runs = ["big", "again", "small-3", "nested"]
    found = {each["run"]: each["steps_per_second"] for each in get("/api/rates", run=[*runs, "nobody"])["rates"]}
    assert found == {run: get(f"/api/runs/{run}/goodput")["steps_per_second"] for run in found}
    assert {*runs[:3]} <= set(found)
    assert found["big"] == pytest.approx(1.0, rel=0.01)
