"""Time lost between steps, in runs without a span for what is done there."""

import random

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.names import SPAN_STEP
from stepscope.model.records import Metric, Span

AT = 150


def found_in(gap: float, took: float = 0.02, psi: float = 0.0, evaluated: int = 0) -> list[Finding]:
    """Diagnose a run whose steps are this far apart from a step on, on a machine with this pressure."""
    made, rng, clock = Diagnosis(), random.Random(1), 10**12
    for step in range(300):
        lasted = int((took if step >= AT else 0.02) * rng.lognormvariate(0, 0.1) * 1e9)
        made.feed(0, Span(clock, lasted, step, None, b"t" * 16, step.to_bytes(8, "big"), None, SPAN_STEP))
        clock += lasted
        if evaluated and step % evaluated == 0:
            clock += 10**9
            made.feed(0, Metric(clock, step, None, None, {"val/loss": 1 / (step + 1)}))
        clock += int((gap if step >= AT else 0.002) * rng.lognormvariate(0, 0.2) * 1e9)
        if step % 20 == 0:
            made.feed(0, Metric(clock, None, None, "system", {"psi/cpu": psi}))
    return made.findings()


@pytest.mark.parametrize("psi", [0.0, 0.6], ids=["quiet", "busy"])
def test_time_between_steps_is_named_with_its_step(psi: float) -> None:
    """Also on a busy machine, where the steps themselves take as long as before."""
    (found,) = [each for each in found_in(0.05, psi=psi) if each.severity != "INFO"]
    assert found.kind == "throughput_loss"
    assert abs((found.step or 0) - AT) <= 5
    assert "the time between two steps went from 2.0" in found.text
    assert "waits for its next batch" in found.cause


@pytest.mark.parametrize(
    ("gap", "more"),
    [(0.002, {}), (0.004, {}), (0.002, {"evaluated": 10}), (0.006, {"took": 0.06, "psi": 0.6})],
    ids=["as before", "two milliseconds", "evaluations", "a busy machine"],
)
def test_other_time_between_steps_is_left_alone(gap: float, more: dict[str, float]) -> None:
    """A little more, evaluations, and a machine on which the steps became as much slower."""
    assert [each for each in found_in(gap, **more) if each.severity != "INFO"] == []  # type: ignore[arg-type]
