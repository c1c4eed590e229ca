"""The list of runs is read anew only where commits touched it, and is never stale."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from stepscope.hub.questions.runs.run_fields import duration
from stepscope.hub.store.columns import Answer
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.maintenance import retain
from stepscope.hub.store.read import run_catalog as runs
from stepscope.hub.store.read.run_catalog import list_runs, read_writers
from stepscope.hub.store.store import Store, open_store
from stepscope.model.names import EVENT_CONFIG, EVENT_STARTED
from stepscope.model.ports import Batch
from stepscope.model.records import Event, Log, Metric, Span
from tests.hub.store.contract import T, losses, writer

pytest.importorskip("tests.chdb")

DAY = 86_400 * 10**9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An open store."""
    made = open_store(tmp_path / "store")
    yield made
    made.close()


def steps(store: Store, *keys: str) -> dict[str, int | None]:
    """The furthest step of each run in the list."""
    return {row.id: row.step for row in list_runs(store.engine, keys=keys)}


def test_what_was_touched_is_read_again_and_the_rest_is_not(store: Store) -> None:
    """New records, new runs and new metrics show at once; a run without any is the same row as before."""
    for run in ("a", "b"):
        store.write(Batch(writer(run), 0, losses([(1, 2.0)])))
    assert steps(store, "trainer/loss") == {"a": 1, "b": 1}
    before = {row.id: row for row in list_runs(store.engine)}
    store.write_many([Batch(writer("a"), 1, losses([(5, 3.0)])), Batch(writer("c"), 0, losses([(9, 1.0)]))])
    after = {row.id: row for row in list_runs(store.engine)}
    assert {run: row.step for run, row in after.items()} == {"a": 5, "b": 1, "c": 9}
    assert after["b"] is before["b"]
    assert {row.id: row.values["trainer/loss"].value for row in list_runs(store.engine, keys=["trainer/loss"])} == {
        "a": 3.0,
        "b": 2.0,
        "c": 1.0,
    }


def test_metrics_that_are_asked_for_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shows its latest values, whichever were asked for before, and however many there were."""
    monkeypatch.setattr(runs, "_MAX_KEYS", 2)
    names = ["k0", "k1", "k2", "k3"]

    def write(run: str, seq: int) -> None:
        values = {name: float(seq * 10 + at) for at, name in enumerate(names)}
        store.write(Batch(writer(run), seq, [Metric(T + seq, seq, None, None, values)]))

    def latest(*keys: str) -> list[dict[str, float]]:
        return [{key: row.values[key].value for key in keys} for row in list_runs(store.engine, keys=keys)]

    write("a", 0)
    assert latest() == [{}]
    for seq in (1, 2):
        for keys in (["k0"], ["k1"], ["k0", "k1"], ["k2"], names, ["k3", "k1"]):
            assert latest(*keys) == [{key: seq * 10 - 10.0 + names.index(key) for key in keys}]
        write("a", seq)
        assert latest("k1", "k0") == [{"k1": seq * 10.0 + 1, "k0": seq * 10.0}]


def test_many_runs_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more was touched than is worth picking out, all is read, and nothing is missing or twice."""
    monkeypatch.setattr(runs, "_FEW", 3)
    for count in (2, 4, 9):
        store.write_many([Batch(writer(f"r{index}"), count, losses([(count, 2.0)])) for index in range(count)])
        assert steps(store) == dict.fromkeys([f"r{index}" for index in range(count)], count)


class Replicas:
    """An engine whose answers to some questions come from a replica that has only the first commits of the ledger."""

    shards = 1

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.behind, self.has = "no question", 0

    def query(self, sql: str) -> Answer:
        """Ask one of the replicas."""
        ledger = f"FROM (SELECT * FROM ledger WHERE commit <= {self.has})"
        return self._engine.query(sql.replace("FROM ledger", ledger) if self.behind in sql else sql)

    def query_many(self, questions: Sequence[str]) -> list[Answer]:
        """Ask several questions."""
        return [self.query(each) for each in questions]


@pytest.mark.parametrize("question", ["run % 1 = 0 AND commit >", "AS last_received"])
def test_a_replica_that_is_behind_is_not_remembered(store: Store, question: str) -> None:
    """Which runs have changed, or what they hold, came from a replica without the newest commit: it is asked again."""
    store.write_many([Batch(writer(run), 0, losses([(1, 2.0)])) for run in ("a", "b")])
    replicas = Replicas(store.engine)
    engine = cast(Any, replicas)
    assert {row.id: row.step for row in list_runs(engine)} == {"a": 1, "b": 1}
    replicas.has = store.engine.query("SELECT max(commit) AS newest FROM ledger").one("newest")
    store.write(Batch(writer("a"), 1, losses([(5, 3.0)])))
    replicas.behind = question
    assert {row.id: row.step for row in list_runs(engine)} == {"a": 1, "b": 1}
    replicas.behind = "no question"
    assert {row.id: row.step for row in list_runs(engine)} == {"a": 5, "b": 1}


def test_the_newest_comes_first_in_every_project(store: Store) -> None:
    """The order is that of the runs' beginnings, also after an old one was touched."""
    for run in ("a", "b", "c"):
        store.write(Batch(writer(run), 0, losses([(1, 2.0)])))
    store.write(Batch(writer("a"), 1, losses([(2, 2.0)])))
    assert list(steps(store)) == ["c", "b", "a"]
    assert [row.id for row in list_runs(store.engine, project=writer("a").project)] == ["c", "b", "a"]
    assert list_runs(store.engine, project="another") == []


def test_a_run_that_was_dropped_is_gone(store: Store) -> None:
    """A later run of the same name is a new run."""
    store.write(Batch(writer("a"), 0, losses([(7, 2.0)])))
    assert steps(store) == {"a": 7}
    assert retain(store, keep=1.0, clock=lambda: 2**62).runs == 1
    assert steps(store) == {}
    store.write(Batch(writer("a"), 1, losses([(8, 2.0)])))
    assert steps(store) == {"a": 8}


def test_a_run_starts_with_its_first_record_when_that_is_earlier(store: Store) -> None:
    """The start moves back when older records arrive later; the duration is never negative."""
    late = structs.replace(writer("a"), wall_ns=T + 10**12)
    store.write(Batch(late, 0, [Metric(T + 5, 1, None, None, {"k": 1.0}), Metric(T + 9, 2, None, None, {"k": 1.0})]))
    (row,) = list_runs(store.engine)
    assert (row.started, row.seen, duration(row)) == (T + 5, T + 9, 4e-9)
    store.write(Batch(late, 1, [Log(T, None, None, None, None, 9, "x"), Log(0, None, None, None, None, 9, "no time")]))
    (row,) = list_runs(store.engine)
    assert (row.started, row.seen) == (T, T + 9)
    (who,) = read_writers(store.engine, row.number)
    assert (who.started, who.writer.wall_ns) == (T, T + 10**12)


def test_a_run_stored_before_first_records_were_known(store: Store) -> None:
    """Such a run started no later than its latest record."""
    store.write(Batch(structs.replace(writer("a"), wall_ns=T + 10**12), 0, losses([(1, 2.0)])))
    store.engine.execute("ALTER TABLE ledger UPDATE began = 0 WHERE 1")
    (row,) = list_runs(store.engine, ids=["a"])
    assert (row.started, duration(row)) == (T, 0.0)


def test_settings_that_change_later_are_in_the_configuration(store: Store) -> None:
    """Settings are applied in order of time; a newer start event overrides them."""

    def event(at: int, name: str, **attrs: object) -> Event:
        return Event(T + at, None, None, None, None, 9, name, dict(attrs))

    first = [event(1, EVENT_STARTED, config={"lr": 1, "seed": 3}), event(3, EVENT_CONFIG, lr=3, vocab=8)]
    store.write(Batch(writer("a"), 0, [*first, event(2, EVENT_CONFIG, lr=2)]))
    (row,) = list_runs(store.engine)
    assert row.beginning == {"config": {"lr": 3, "seed": 3, "vocab": 8}}
    store.write(Batch(writer("a"), 1, [event(4, EVENT_STARTED, config={"lr": 4})]))
    (row,) = list_runs(store.engine)
    assert row.beginning["config"] == {"lr": 4, "vocab": 8}


def test_a_line_with_a_time_of_its_own_does_not_move_the_run(store: Store) -> None:
    """Lines of last year or of a wrong clock count from when they were observed."""
    odd = [Log(time, None, None, None, None, 9, "old", observed=T + 5) for time in (1, T + 10**18)]
    store.write(Batch(writer("a"), 0, [*losses([(1, 2.0)]), *odd]))
    (row,) = list_runs(store.engine)
    assert (row.started, row.seen) == (min(T, writer("a").wall_ns), T + 5)


@pytest.mark.parametrize("start", [0, 1, T - 365 * DAY])
def test_a_span_with_an_old_start_does_not_move_the_run(store: Store, start: int) -> None:
    """A start that was given explicitly, last year or at the epoch, is that of the span only."""
    old = Span(start, T + 5 - start, 1, None, bytes(15) + b"t", bytes(7) + b"s", None, "old")
    store.write(Batch(writer("a"), 0, [*losses([(1, 2.0)]), old]))
    (row,) = list_runs(store.engine)
    assert (row.started, row.seen) == (min(T, writer("a").wall_ns), T + 5)


def test_a_run_that_is_old_as_a_whole_began_with_its_first_span(store: Store) -> None:
    """An imported run keeps its own time, and a span that began some hours before its process counts."""
    began = T - 365 * DAY
    who = structs.replace(writer("a"), wall_ns=began)
    spans = [
        Span(began - hours * DAY // 24, 9, 1, None, bytes(15) + b"t", bytes(7) + bytes([hours]), None, "s")
        for hours in range(3)
    ]
    store.write(Batch(who, 0, list(spans)))
    (row,) = list_runs(store.engine)
    assert (row.started, row.seen) == (began - DAY // 12, began + 9)
