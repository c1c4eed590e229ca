"""The pump between journals and store, with a store that refuses, stumbles and recovers."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stepscope.hub import pump as pumping
from stepscope.hub.backlog import Item
from stepscope.hub.pump import Outcome, Pump, Source
from stepscope.hub.tallies import Tallies
from stepscope.journal.cursors import Cursors
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch
from stepscope.model.records import Log
from stepscope.model.writer import Writer

WRITER = Writer(id="w", run="r", project="p")


class ListSource:
    """A source of the given batches."""

    def __init__(self, count: int) -> None:
        log = Log(1, None, None, None, None, 9, "x")
        self.left = [Item("test", Batch(WRITER, seq, [log, log])) for seq in range(count)]
        self.read_count = self.settled = 0

    def read(self) -> list[Item]:
        """One batch at a time."""
        self.read_count += bool(self.left)
        return [self.left.pop(0)] if self.left else []

    def settle(self) -> bool:
        """Note how far all is stored."""
        moved = self.settled != self.read_count
        self.settled = self.read_count
        return moved


class ScriptedSink:
    """A store that answers as it is told, by the number of the batch."""

    def __init__(self, answer: Callable[[int], Outcome | Exception]) -> None:
        self.answer = answer
        self.taken: list[int] = []

    def write_many(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Answer for each, and keep what is safe."""
        outcomes: list[Outcome] = []
        for batch in batches:
            outcome = self.answer(batch.seq)
            if isinstance(outcome, Exception) and not isinstance(outcome, (Retry, Reject)):
                raise outcome
            outcomes.append(outcome)
        self.taken += [b.seq for b, o in zip(batches, outcomes, strict=True) if not isinstance(o, Retry)]
        return outcomes


Listener = Callable[[Sequence[Item]], None]
Run = Callable[..., tuple[Pump, ScriptedSink, ListSource, Tallies]]


@pytest.fixture
def run_pump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Pump some batches into a scripted store until they are settled."""
    monkeypatch.setattr(pumping, "PACE_SECONDS", 0.01)

    def run(
        answer: Callable[[int], Outcome | Exception], *others: Source, listener: Listener = lambda items: None
    ) -> tuple[Pump, ScriptedSink, ListSource, Tallies]:
        sink, source, tallies = ScriptedSink(answer), ListSource(5), Tallies()
        pump = Pump(sink, [source, *others], Cursors(tmp_path, "x"), tallies, tmp_path / "quarantine")
        pump.listeners.append(listener)
        monkeypatch.setattr(pump, "_patiently", lambda seconds: True)
        pump.start()
        pump.wake()
        pump.stop(10)
        return pump, sink, source, tallies

    return run


def test_all_is_stored(run_pump: Run) -> None:
    """What a source has goes to the store, is counted and settled."""
    pump, sink, source, tallies = run_pump(lambda seq: None)
    assert (sorted(sink.taken), source.settled, tallies.total("stored")) == ([0, 1, 2, 3, 4], 5, 10)
    assert pump.trouble == ""


def test_retry(run_pump: Run) -> None:
    """A batch the store does not take now is offered again until it does."""
    left = {2: 3}

    def answer(seq: int) -> Outcome:
        left[seq] = left.get(seq, 0) - 1
        return Retry("busy") if left[seq] >= 0 else None

    _, sink, source, tallies = run_pump(answer)
    assert (sorted(sink.taken), source.settled) == ([0, 1, 2, 3, 4], 5)
    assert tallies.total("retried", "store") == 3


def test_reject(run_pump: Run) -> None:
    """Records refused for ever are counted by reason, the others as stored."""
    _, _, source, tallies = run_pump(lambda seq: Reject("bad id", [0]) if seq == 1 else None)
    assert source.settled == 5
    assert (tallies.total("stored"), tallies.total("rejected")) == (9, 1)


def test_stumble(run_pump: Run, tmp_path: Path) -> None:
    """A batch on which the store stumbles again and again is set aside; the others are stored."""
    _, sink, source, tallies = run_pump(lambda seq: ZeroDivisionError() if seq == 3 else None)
    assert (sorted(sink.taken), source.settled) == ([0, 1, 2, 4], 5)
    assert tallies.total("dropped") == 2
    assert len(list((tmp_path / "quarantine").iterdir())) == 1


class FailingSource(ListSource):
    """A source that stumbles every second time."""

    def __init__(self) -> None:
        super().__init__(0)
        self.calls = 0

    def read(self) -> list[Item]:
        """Raise, or return nothing."""
        self.calls += 1
        if self.calls % 2:
            raise OSError("a file system that comes and goes")
        return []


def test_failing_source(run_pump: Run) -> None:
    """When one source stumbles nothing that another has given is lost."""
    _, sink, source, tallies = run_pump(lambda seq: None, FailingSource())
    assert (sorted(sink.taken), source.settled) == ([0, 1, 2, 3, 4], 5)
    assert tallies.total("retried", "pump") >= 1


def test_failing_listener(run_pump: Run) -> None:
    """A listener that raises costs its own news only."""

    def listener(items: Sequence[Item]) -> None:
        raise ValueError("no")

    _, sink, source, _ = run_pump(lambda seq: None, listener=listener)
    assert (sorted(sink.taken), source.settled) == ([0, 1, 2, 3, 4], 5)
