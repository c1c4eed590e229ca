"""How runs fare, as a function of what their writers said and when they were last heard of."""

import pytest

from stepscope.hub.presence import learn
from stepscope.hub.states import State, WriterFacts, run_state, writer_state
from stepscope.model import names
from stepscope.model.records import Event, Metric

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("silence", "state"),
    [(0, "running"), (19, "running"), (20, "stalled"), (119, "stalled"), (120, "crashed"), (1e6, "crashed")],
)
def test_silence(silence: float, state: State) -> None:
    """A writer that beats is stalled after some silence and crashed after more."""
    assert writer_state(WriterFacts(1, NOW - silence), NOW) == state


@pytest.mark.parametrize(("silence", "state"), [(299, "running"), (300, "stalled"), (3600, "finished")])
def test_silence_of_strangers(silence: float, state: State) -> None:
    """A client that promised no beat is given more time and ends without a word."""
    assert writer_state(WriterFacts(1, NOW - silence, beats=False), NOW) == state


@pytest.mark.parametrize("said", ["finished", "failed", "preempted"])
def test_said(said: State) -> None:
    """What a writer said of its end stays, however long ago."""
    assert writer_state(WriterFacts(1, NOW - 1e6, said, NOW - 1e6), NOW) == said


def test_writes_on() -> None:
    """A writer that goes on after its end is running again."""
    assert writer_state(WriterFacts(1, NOW, "finished", NOW - 60), NOW) == "running"
    assert writer_state(WriterFacts(1, NOW - 58, "finished", NOW - 60), NOW) == "finished"


@pytest.mark.parametrize("last", ["finished", "failed", "preempted", None])
def test_comes_back(last: State | None) -> None:
    """A run that comes back is running again, whatever its last attempt said."""
    old = WriterFacts(1, NOW - 1e5, last, NOW - 1e5)
    assert run_state([old, WriterFacts(2, NOW)], NOW) == "running"


def test_worst_rank_wins() -> None:
    """Of the ranks of an attempt the one to look at first decides."""
    ranks = [WriterFacts(1, NOW), WriterFacts(1, NOW, "finished", NOW)]
    assert run_state(ranks, NOW) == "running"
    assert run_state([*ranks, WriterFacts(1, NOW - 30)], NOW) == "stalled"
    assert run_state([*ranks, WriterFacts(1, NOW - 300)], NOW) == "crashed"
    assert run_state([*ranks, WriterFacts(1, NOW, "failed", NOW)], NOW) == "failed"


def test_forked_writers() -> None:
    """A forked process does not decide how its run fares, unless nobody else is known."""
    silent = WriterFacts(1, NOW - 1e4, main=False)
    assert run_state([WriterFacts(1, NOW, "finished", NOW), silent], NOW) == "finished"
    assert run_state([silent], NOW) == "crashed"
    assert run_state([], NOW) is None


def test_learn() -> None:
    """Records tell when a writer was there, that it beats, and how it ended; the future counts as now."""
    facts = WriterFacts(1, 0.0, beats=False)
    beat = Metric(int((NOW - 5) * 1e9), None, None, "stepscope", {"written/metric": 1})
    end = Event(int((NOW + 99) * 1e9), None, None, None, None, 9, names.EVENT_FINISHED, {"status": "failed"})
    assert learn(facts, [beat], NOW) == WriterFacts(1, pytest.approx(NOW - 5), beats=True)
    assert learn(facts, [beat, end], NOW) == WriterFacts(1, NOW, "failed", NOW)
