"""Runs that wait for data from their first step on."""

import random

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric, Span

MS = 10**6


def found_in(
    loading: float, computing: float, readings: dict[str, float] | None = None, every: int = 1
) -> list[Finding]:
    """Diagnose steps of which 200 load for so many milliseconds, and all compute."""
    made, rng, now = Diagnosis(), random.Random(3), 10**18
    for step in range(200 * every):
        load, compute = (int(MS * each * rng.uniform(0.9, 1.1)) for each in (loading, computing))
        ids = [(3 * step + at + 1).to_bytes(8, "big") for at in range(3)]
        load = load if step % every == 0 else 0
        if load:
            made.feed(0, Span(now, load, step, None, bytes(16), ids[0], ids[2], "train.data_load"))
        made.feed(0, Span(now + load, compute, step, None, bytes(16), ids[1], ids[2], "train.forward"))
        made.feed(0, Span(now, load + compute, step, None, bytes(16), ids[2], None, "train.step"))
        now += load + compute
        made.feed(0, Metric(now, None, None, "system", readings or {"psi/io": 0.0}))
    return made.findings()


def test_a_run_that_waits_for_data_from_the_start_is_named() -> None:
    """It has no past to compare with: the share of each step counts."""
    (found,) = found_in(60, 40)
    assert (found.kind, found.span, found.step) == ("input_bound", "train.data_load", 0)
    assert "of each step of" in found.text


def test_slow_storage_is_the_cause_where_the_kernel_says_so() -> None:
    """Tasks that wait for storage most of the time explain it."""
    (found,) = found_in(60, 40, {"psi/io": 0.8})
    assert "tasks wait for it 80% of the time" in found.cause


def test_loading_in_the_background_or_in_short_steps_is_left_alone() -> None:
    """A fifth of a step is usual, and so are a few milliseconds of a toy."""
    assert found_in(20, 80) == []
    assert found_in(3, 2) == []


def test_loading_in_some_of_the_steps_counts_by_its_share_of_all() -> None:
    """A shard that is read every ten steps."""
    assert found_in(60, 40, every=10) == []
    (found,) = found_in(400, 40, every=10)
    assert found.kind == "input_bound"
    assert "in one of 10 steps, 50% of the time" in found.text
