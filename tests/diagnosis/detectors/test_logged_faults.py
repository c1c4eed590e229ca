"""Faults that show in one or two metrics: named from the step on at which they begin, and silent without them."""

import random

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric
from tests.diagnosis.detectors.logged_faults import LOGGED, STEPS, Logged

CASES = [
    pytest.param(kind, each, id=f"{kind}-{each.values.__name__[1:]}") for kind, all in LOGGED.items() for each in all
]


def found_in(logged: Logged, seed: int, *, wrong: bool) -> list[Finding]:
    """Diagnose a run that logs these values."""
    diagnosis, rng = Diagnosis(), random.Random(seed)
    for step in range(STEPS):
        diagnosis.feed(0, Metric((step + 1) * 10**9, step, None, None, logged.values(step, rng, wrong)))
    return diagnosis.findings()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kind", "logged"), CASES)
def test_a_fault_in_logged_values_is_named(kind: str, logged: Logged, seed: int) -> None:
    """The kind, the step and the words are right."""
    found = [each for each in found_in(logged, seed, wrong=True) if each.kind == kind]
    assert len(found) == 1, found_in(logged, seed, wrong=True)
    assert logged.step is None or abs((found[0].step or 0) - logged.step) <= logged.window, found
    assert logged.says in found[0].text


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kind", "logged"), CASES)
def test_the_same_run_without_the_fault_is_left_alone(kind: str, logged: Logged, seed: int) -> None:
    """Nothing is found in the same values without the fault."""
    assert found_in(logged, seed, wrong=False) == []


def test_a_gradient_that_is_always_clipped_is_a_remark() -> None:
    """A norm above the limit of the settings in every step is INFO; one below it is nothing."""
    found = []
    for limit in (1.0, 10.0):
        diagnosis, rng = Diagnosis(config={"max_grad_norm": limit}), random.Random(1)
        for step in range(200):
            diagnosis.feed(0, Metric((step + 1) * 10**9, step, None, None, {"grad_norm": 3 * rng.uniform(0.8, 1.2)}))
        found.append([(each.kind, each.severity) for each in diagnosis.findings()])
    assert found == [[("always_clipped", "INFO")], []]
