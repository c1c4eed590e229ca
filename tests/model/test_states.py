"""Run states as a function of what the writers reported, whether they live, and what is still to be read."""

import re
from pathlib import Path
from typing import get_args

import pytest

from stepscope.hub.runs.presence import learn
from stepscope.model import names, states
from stepscope.model.records import Event, Metric
from stepscope.model.states import State, WriterFacts, WriterState, beat_interval, ending_of, run_state, writer_state

NOW = 1_000_000.0
AGO = NOW - 1e5


@pytest.mark.parametrize(
    ("silence", "alive", "unread", "state"),
    [
        # Another host: only silence can tell.
        (0, None, False, "running"),
        (19, None, False, "running"),
        (20, None, False, "stalled"),
        (119, None, False, "stalled"),
        (120, None, False, "crashed"),
        (1e6, None, False, "crashed"),
        # This host: a process that exists is never crashed, one that is gone is at once.
        (0, True, False, "running"),
        (20, True, False, "stalled"),
        (1e6, True, False, "stalled"),
        (0, False, False, "crashed"),
        (1e6, False, False, "crashed"),
        # While records are still to be read, silence and death prove nothing.
        (0, None, True, "running"),
        (20, None, True, "importing"),
        (1e6, None, True, "importing"),
        (20, False, True, "importing"),
        (1e6, False, True, "importing"),
        (0, True, True, "running"),
        (1e6, True, True, "importing"),
    ],
)
def test_a_writer_that_reported_no_end(silence: float, alive: bool | None, unread: bool, state: State) -> None:
    """Its process, then its silence decide, and neither before everything is read."""
    assert writer_state(WriterFacts(1, NOW - silence, alive=alive, unread=unread), NOW) == state
    touched = WriterFacts(1, 0.0, touched=NOW - silence, alive=alive, unread=unread)
    assert writer_state(touched, NOW) == state


def test_the_last_records_of_a_process_that_just_ended_are_no_import() -> None:
    """A reader that keeps up says running until it has read the end; one that has read nothing lately is importing."""
    gone = {"alive": False, "unread": True, "touched": NOW}
    assert writer_state(WriterFacts(1, NOW - 19, **gone), NOW) == "running"
    assert writer_state(WriterFacts(1, NOW - 20, **gone), NOW) == "importing"
    assert writer_state(WriterFacts(1, 0.0, **gone), NOW) == "importing"


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (WriterFacts(1, NOW - 299, beats=False), "running"),
        (WriterFacts(1, NOW - 300, beats=False), "stalled"),
        (WriterFacts(1, NOW - 3600, beats=False), "finished"),
        (WriterFacts(1, NOW - 3600, beats=False, unread=True), "importing"),
        (WriterFacts(1, NOW, "failed", AGO, beats=False), "failed"),
        (WriterFacts(1, NOW, "finished", AGO, beats=False, unread=True), "finished"),
        (WriterFacts(1, NOW, main=False), "running"),
        (WriterFacts(1, NOW, main=False, alive=False), "ended"),
        (WriterFacts(1, AGO, main=False), "ended"),
    ],
)
def test_other_writers(facts: WriterFacts, state: WriterState) -> None:
    """Clients without heartbeats are given more time, and their end holds; forked ones never report an end."""
    assert writer_state(facts, NOW) == state


@pytest.mark.parametrize("said", ["finished", "failed", "preempted"])
@pytest.mark.parametrize("alive", [True, False, None])
def test_a_reported_end_stays(said: State, alive: bool | None) -> None:
    """However long ago, whether the process lives, and whichever process touched its files since."""
    facts = WriterFacts(1, AGO, said, AGO, alive=alive, touched=NOW, unread=True)
    assert writer_state(facts, NOW) == said


def test_writes_on() -> None:
    """A writer that continues after its end is running again."""
    assert writer_state(WriterFacts(1, NOW, "finished", NOW - 60), NOW) == "running"
    assert writer_state(WriterFacts(1, NOW - 58, "finished", NOW - 60), NOW) == "finished"


RUNNING, ENDED = WriterFacts(1, NOW), WriterFacts(1, NOW, "finished", NOW)
FORKED = WriterFacts(1, AGO, main=False)


@pytest.mark.parametrize(
    ("writers", "state"),
    [
        ([], None),
        ([ENDED, ENDED], "finished"),
        ([ENDED, RUNNING], "running"),
        ([ENDED, RUNNING, WriterFacts(1, NOW - 30)], "stalled"),
        ([ENDED, RUNNING, WriterFacts(1, NOW, alive=False)], "crashed"),
        ([RUNNING, WriterFacts(1, NOW, "failed", NOW)], "failed"),
        ([ENDED, WriterFacts(1, NOW, "preempted", NOW)], "preempted"),
        ([ENDED, WriterFacts(1, AGO, unread=True)], "importing"),
        ([RUNNING, WriterFacts(1, AGO, unread=True)], "running"),
        ([ENDED, FORKED], "finished"),
        ([FORKED], "finished"),
    ],
)
def test_ranks_are_summed_up_by_what_needs_attention(writers: list[WriterFacts], state: State | None) -> None:
    """One failed rank fails the run; a forked process counts only if no other is known."""
    assert run_state(writers, NOW) == state


@pytest.mark.parametrize("last", ["finished", "failed", "preempted", None])
def test_comes_back(last: State | None) -> None:
    """A run that comes back is running again, whatever its last attempt reported."""
    assert run_state([WriterFacts(1, AGO, last, AGO), WriterFacts(2, NOW)], NOW) == "running"


@pytest.mark.parametrize(
    ("word", "state"),
    [("finished", "finished"), ("Failed", "failed"), ("error", "failed"), ("killed", "failed"), ("odd", "finished")],
)
def test_words_for_an_end(word: str, state: State) -> None:
    """Words of other trackers mean one of ours; an unknown one is a good end."""
    assert ending_of(word) == state


def test_learn() -> None:
    """Records tell when a writer was there, that it beats, and how it ended; the future counts as now."""
    facts = WriterFacts(1, 0.0, beats=False)
    beat = Metric(int((NOW - 5) * 1e9), None, None, "stepscope", {"written/metric": 1})
    end = Event(int((NOW + 99) * 1e9), None, None, None, None, 9, names.EVENT_FINISHED, {"status": "failed"})
    assert learn(facts, [beat], NOW) == WriterFacts(1, pytest.approx(NOW - 5), beats=True)
    assert learn(facts, [beat, end], NOW) == WriterFacts(1, NOW, "failed", NOW)


@pytest.mark.parametrize(("silence", "state"), [(119, "running"), (120, "stalled"), (719, "stalled"), (720, "crashed")])
def test_a_client_with_slow_heartbeats_is_given_more_time(silence: float, state: State) -> None:
    """One that beats every 30 s is stalled and crashed after as many missed beats as one that beats every 5 s."""
    interval = beat_interval({names.ATTR_HEARTBEAT: 30.0})
    assert writer_state(WriterFacts(1, NOW - silence, interval=interval), NOW) == state
    assert beat_interval({}) == beat_interval({names.ATTR_HEARTBEAT: "soon"}) == 5.0


@pytest.mark.parametrize(("file", "name"), [("runs/filter.js", "STATUSES"), ("parts/controls.js", "SIGNS")])
def test_the_page_knows_every_state(file: str, name: str) -> None:
    """The filter of runs offers the same states as the API has, and each has a sign."""
    source = (Path(states.__file__).parents[1] / "hub" / "web" / file).read_text()
    (listed,) = re.findall(rf"^const {name} = [\[{{](.*?)[\]}}];", source, re.M | re.S)
    assert set(re.findall(r"\b[a-z]{6,}\b", listed)) == set(get_args(states.State))
