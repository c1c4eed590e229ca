"""Diagnosis of whole runs: healthy runs have no findings, and a finding is complete."""

import math

import pytest

from benchmarks.zoo.evaluate import HEALTHY, diagnose, seeded
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric, Span

SEED = 1
LEFT_ALONE = [
    "plain",
    "crowded_machine",
    "twenty_steps",
    "converged",
    "to_zero",
    "heavy_tailed_gradients",
    "warm_restarts",
    "curriculum",
    "gan",
    "amp_skips",
    "accumulation",
    "restarted_well",
    "jittery_loader",
    "epochs",
    "chatty",
    "noisy_rewards",
    "rlhf",
    "annealed_entropy",
    "settings_of_losses",
    "odd_metrics",
]


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_a_healthy_run_is_left_in_peace(name: str) -> None:
    """A run that only looks odd has no finding."""
    assert diagnose(HEALTHY[name](seeded(name, SEED))) == []


def test_every_finding_says_what_was_expected_why_and_what_to_do() -> None:
    """A finding about a value has its band; every finding has a cause and an advice."""
    diagnosis = Diagnosis()
    for step in range(200):
        loss = 2.0 / (1 + step / 50) + 0.01 * math.sin(step)
        values = {
            "loss": loss * (30 if step == 150 else 1),
            "grad_norm": math.nan if step == 180 else 1.0 + 0.1 * math.cos(step),
        }
        diagnosis.feed(0, Metric(step, step, None, None, values))
    found = diagnosis.findings()
    assert [(each.kind, each.step) for each in found] == [("spike", 150), ("not_finite", 180)]
    assert all(each.cause and each.advice and each.text for each in found)
    low, high = found[0].expected or (0.0, 0.0)
    assert low < 2.0 / (1 + 150 / 50) < high < (found[0].value or 0.0)


@pytest.mark.parametrize(("hosts", "skewed"), [(("a", "b"), True), (("a", "a"), False)])
def test_ranks_of_one_machine_have_one_clock(hosts: tuple[str, str], skewed: bool) -> None:
    """Ranks that are apart in time on one machine are not reported as having a wrong clock."""
    second = 10**9
    made = Diagnosis(world=2)
    for step in range(80):
        for rank in range(2):
            id = bytes([rank + 1]) + step.to_bytes(7, "big")
            began = step * second + 5 * second * rank
            made.feed(rank, Span(began, second // 2, step, None, bytes(16), id, None, "train.step"), 1, hosts[rank])
    assert ("clock_skew" in {each.kind for each in made.findings()}) is skewed
