"""Diagnosis of whole runs: faults of the zoo are named, healthy runs are left in peace."""

import math

import pytest

from benchmarks.zoo.evaluate import FAULTS, HEALTHY, diagnose, names, seeded
from stepscope.diagnosis.engine import Diagnosis
from stepscope.model.records import Metric, Span

SEED = 1
QUICK = [
    "nan_rank_layer",
    "spike_3x",
    "spike_early",
    "slow_divergence",
    "not_learning",
    "dead_constant",
    "vanishing_gradients",
    "lr_zero",
    "lr_jump",
    "bad_resume",
    "kl_around_zero",
    "entropy_collapse",
    "clip_saturated",
    "reward_hacking",
    "data_stall",
    "masked_stall",
    "hang",
    "dead_rank",
    "desync",
    "config_differs",
    "clock_skew",
    "batch_size_differs",
    "slower_than_before",
    "memory_creep",
    "retry_storm",
    "retries_counted",
    "new_error",
    "duplicate_steps",
    "missing_steps",
]
LEFT_ALONE = [
    "plain",
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


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_named(name: str) -> None:
    """The kind, the step, the rank and the metric or span of a fault are right."""
    story, truth = FAULTS[name](seeded(name, SEED))
    found = diagnose(story)
    assert any(names(each, truth) for each in found), (truth, found)


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
    """Ranks that are apart in time on one machine are not told to have a wrong clock."""
    second = 10**9
    made = Diagnosis(world=2)
    for step in range(80):
        for rank in range(2):
            id = bytes([rank + 1]) + step.to_bytes(7, "big")
            began = step * second + 5 * second * rank
            made.feed(rank, Span(began, second // 2, step, None, bytes(16), id, None, "train.step"), 1, hosts[rank])
    assert ("clock_skew" in {each.kind for each in made.findings()}) is skewed
