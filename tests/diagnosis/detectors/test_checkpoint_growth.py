"""Checkpoints that are no longer saved, or larger each time."""

from collections.abc import Callable

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.names import ATTR_CHECKPOINT_BYTES, EVENT_CHECKPOINT, EVENT_CHECKPOINT_MEASURED
from stepscope.model.records import Event, Metric, Span

SECOND = 10**9


def found_in(until: int, seconds: int = 2, steps: int = 400, *, recorded: bool = False) -> list[Finding]:
    """Diagnose steps with a checkpoint every 40 of them until a step: a span that saves it, or a record of it."""
    made = Diagnosis()
    for step in range(steps):
        now, root = (step + 1) * seconds * SECOND, (step + 1).to_bytes(8, "big")
        if step % 40 == 39 and step < until:
            save = Span(now, SECOND // 2, step, None, b"t" * 16, b"save" * 2, root, "train.checkpoint.save")
            event = Event(now, step, None, None, None, 9, EVENT_CHECKPOINT, {"path": "/a"})
            made.feed(0, event if recorded else save)
        made.feed(0, Span(now, SECOND, step, None, b"t" * 16, root, None, "train.step"))
    return made.findings()


def test_checkpoints_that_stop_are_named() -> None:
    """The last one is three intervals old, where they came at an interval before."""
    for recorded in (False, True):
        (found,) = found_in(until=200, recorded=recorded)
        assert (found.kind, found.step) == ("checkpoint_old", 199)
        assert "one every 40 steps" in found.text


def test_checkpoints_at_their_interval_are_left_alone() -> None:
    """Neither a run that saves to its end nor one that saved only a few times has a finding."""
    assert found_in(until=400) == found_in(until=400, recorded=True) == []
    assert found_in(until=100) == []


def sizes_in(size: Callable[[int], int], *, recorded: bool) -> list[Finding]:
    """Diagnose twelve checkpoints of these sizes: spans that saved a file, or checkpoints that were measured."""
    made = Diagnosis()
    for at in range(12):
        now, step = (at + 1) * SECOND, 40 * at
        if recorded:
            made.feed(0, Event(now, step, None, None, None, 9, EVENT_CHECKPOINT, {"path": "/a"}))
            measured = {"bytes": size(at), "complete": True}
            made.feed(0, Event(now + 1, None, None, None, None, 9, EVENT_CHECKPOINT_MEASURED, measured))
        else:
            attrs = {ATTR_CHECKPOINT_BYTES: size(at)}
            made.feed(
                0, Span(now, 10**6, step, None, b"t" * 16, b"save" * 2, None, "train.checkpoint.save", attrs=attrs)
            )
    return made.findings()


@pytest.mark.parametrize("recorded", [False, True])
def test_checkpoints_that_grow_are_named_by_their_size(recorded: bool) -> None:
    """However long the saving takes; equal ones, and one part that is added once, are left alone."""
    (found,) = sizes_in(lambda at: 10**6 * (4 + at), recorded=recorded)
    assert (found.kind, found.step) == ("checkpoint_growth", 0)
    assert "4 MB at step 0" in found.text
    assert sizes_in(lambda at: 10**6 * 4, recorded=recorded) == []
    assert sizes_in(lambda at: 10**6 * (4 if at < 2 else 12), recorded=recorded) == []
    assert sizes_in(lambda at: 10**6 * (4 + 4 * (at % 2)), recorded=recorded) == []


def saving(took: list[float], load: float) -> list[Finding]:
    """Diagnose checkpoints that take these milliseconds, on two CPUs with a load."""
    made = Diagnosis()
    for at, each in enumerate(took):
        now, step = (at + 1) * SECOND, 40 * at
        made.feed(0, Metric(now, None, None, "system", {"cpu/load_1m": load, "cpu/count": 2}), 1, "host")
        made.feed(0, Span(now, int(each * 10**6), step, None, b"t" * 16, b"save" * 2, None, "train.checkpoint"))
    return [each for each in made.findings() if each.kind == "checkpoint_growth"]


def test_times_of_six_checkpoints_tell_nothing_on_a_busy_machine() -> None:
    """They vary by what else runs there; twelve that rise do tell, and six where nothing else runs."""
    rising = [3.0, 36.0, 22.0, 56.0, 110.0, 113.0]
    assert saving(rising, load=18.0) == []
    assert [each.kind for each in saving(rising, load=0.5)] == ["checkpoint_growth"]
    assert [each.kind for each in saving([10.0 + 5 * at for at in range(12)], load=18.0)] == ["checkpoint_growth"]
