"""An optimizer that is no longer called while gradients are still computed is named."""

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Record, Span

MS = 10**6


def spans(until: int, every: int = 1, passes: int = 10**6) -> list[Record]:
    """Steps with backward passes up to a step, and an optimizer that is called at every so many steps, up to one."""
    made: list[Record] = []
    for step in range(400):
        now, ids = 10**18 + step * 30 * MS, [(3 * step + at + 1).to_bytes(8, "big") for at in range(3)]
        if step < passes:
            made.append(Span(now, 10 * MS, step, None, bytes(16), ids[0], ids[2], "train.backward"))
        if step < until and step % every == every - 1:
            made.append(Span(now + 10 * MS, 5 * MS, step, None, bytes(16), ids[1], ids[2], "train.optimizer_step"))
        made.append(Span(now, 20 * MS, step, None, bytes(16), ids[2], None, "train.step"))
    return made


def found_in(records: list[Record], together: bool = True) -> list[Finding]:
    """Diagnose them, all at once or one by one."""
    made = Diagnosis()
    if together:
        made.feed_many(0, records)
    else:
        for each in records:
            made.feed(0, each)
    return [each for each in made.findings() if each.severity != "INFO"]


@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
@pytest.mark.parametrize(("every", "step"), [(1, 200), (4, 200)])
def test_an_optimizer_that_is_no_longer_called_is_named(every: int, step: int, together: bool) -> None:
    """With the first step without a call."""
    (found,) = found_in(spans(200, every), together)
    assert (found.kind, found.severity, found.step) == ("weights_frozen", "ERROR", step)
    assert "has not been called since step 200" in found.text


def test_steps_without_gradients_and_accumulated_ones_are_left_alone() -> None:
    """Neither an evaluation at the end nor sixteen backward passes for one call are a fault."""
    assert found_in(spans(200, passes=200)) == []
    assert found_in(spans(400, every=16)) == []
