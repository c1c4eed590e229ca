"""Checkpoints that are no longer saved."""

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.names import EVENT_CHECKPOINT
from stepscope.model.records import Event, Span

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
