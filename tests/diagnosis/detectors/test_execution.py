"""Execution: what samples of weights, gradients, inputs and the allocator tell."""

import random
from typing import Any

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.names import EVENT_PARAMETERS
from stepscope.model.records import Event, Metric, Span

SECOND = 10**9


def kinds(key: str, values: list[float], lr: float | None = None) -> list[tuple[str, int | None]]:
    """The kinds and steps of findings about samples, one every 20 steps."""
    made = Diagnosis()
    for at, value in enumerate(values):
        if lr is not None:
            made.feed(0, Metric(at * 20 * SECOND, 20 * at, None, None, {"lr": lr}))
        made.feed(0, Metric(at * 20 * SECOND, 20 * at, None, "torch", {key: value}))
    return [(each.kind, each.step) for each in made.findings() if each.kind != "lr_zero"]


@pytest.mark.parametrize(("key", "healthy", "faulty", "kind"), [
    ("update_ratio", [1e-3] * 4, [0.0] * 3, "weights_frozen"),
    ("stale_gradient", [0.0] * 4, [1.0] * 3, "gradients_not_cleared"),
    ("input_checksum", [3.0, 7.0, 5.0, 9.0], [4.0] * 4, "stuck_batch"),
    ("alloc_retries", [0.0] * 4, [2.0, 3.0, 5.0], "allocator_retries"),
])  # fmt: skip
def test_three_samples_in_a_row_are_a_fault(key: str, healthy: list[float], faulty: list[float], kind: str) -> None:
    """It is named with the step of the first of them; two samples are not enough."""
    assert kinds(key, healthy + faulty[:2]) == []
    ((found, step),) = kinds(key, healthy + faulty)
    assert found == kind
    assert step is not None
    assert 80 <= step <= 100


def test_weights_do_not_change_at_a_rate_of_zero() -> None:
    """The learning rate is the finding then."""
    assert kinds("update_ratio", [0.0] * 6, lr=0.0) == []
    assert kinds("update_ratio", [0.0] * 6, lr=0.1) == [("weights_frozen", 0)]


def test_data_of_one_batch_is_healthy() -> None:
    """A program that never had another input trains on all its data at once."""
    assert kinds("input_checksum", [4.0] * 12) == []


def test_parameters_that_are_not_trained_are_named() -> None:
    """Those in no optimizer and those without a gradient are a finding each."""
    made = Diagnosis()
    attrs = {"parameters": 9, "outside_optimizer": 1, "outside_names": ["head.bias"], "without_gradient": 0}
    made.feed(0, Event(SECOND, 3, None, None, None, 9, EVENT_PARAMETERS, attrs))
    (found,) = made.findings()
    assert (found.kind, found.severity) == ("unused_parameters", "WARN")
    assert found.text == "1 of 9 parameters that require gradients are in no optimizer: head.bias"


@pytest.mark.parametrize(("pause", "named"), [(400.0, True), (20.0, False)], ids=["a third", "little"])
def test_a_garbage_collector_that_takes_a_good_part_of_the_time_is_named(pause: float, named: bool) -> None:
    """The pauses since the last sample are compared with the steps in between."""
    made = Diagnosis()
    for step in range(200):
        now = (step + 1) * 10**8
        if step % 10 == 0:
            made.feed(0, Metric(now, step, None, "torch", {"gc_pause_ms": pause}))
        made.feed(0, Span(now, 10**8, step, None, bytes(16), (step + 1).to_bytes(8, "big"), None, "train.step"))
    assert [each.kind for each in made.findings()] == (["gc_pauses"] if named else [])


EVALUATED = [1.84, 1.52, 1.31, 1.2049131, 1.2049131, 1.2049131]


def evaluated(values: list[float], trained: bool = True, rate: float = 1e-3, key: str = "val/loss") -> list[Finding]:
    """A run with an evaluation every 20 steps; without training, only the evaluations are logged."""
    made, rng = Diagnosis(), random.Random(3)
    for step in range(20 * len(values)):
        logged = {"loss": rng.uniform(1, 1.4), "lr": 1e-3 if step < 60 else rate} if trained else {}
        if step % 20 == 19:
            logged[key] = values[step // 20]
        if logged:
            made.feed(0, Metric((step + 1) * 10**9, step, None, None, logged))
    return made.findings()


def test_a_held_out_loss_that_is_the_same_to_the_last_digit_tells_that_weights_are_frozen() -> None:
    """Without `instrument()`: it is dated between the last two evaluations that differ, as a likely cause."""
    (found,) = evaluated(EVALUATED)
    assert (found.kind, found.severity, found.step) == ("weights_frozen", "WARN", 69)
    assert "no weight has changed since some step after 59" in found.text
    assert "or, less likely, the evaluation uses a copy" in found.cause


@pytest.mark.parametrize(
    ("values", "more"),
    [
        ([1.84, 1.52, 1.31, 1.20491, 1.20490, 1.20489], {}),
        ([1.8, 1.5, 1.3, 1.2, 1.2, 1.2], {}),
        ([1.84, 1.52, 1.52, 1.2049131, 1.2049131, 1.2049131], {}),
        (EVALUATED, {"trained": False}),
        (EVALUATED, {"rate": 1e-6}),
        (EVALUATED, {"key": "val/best_loss"}),
    ],
    ids=["moves", "rounded", "repeated before", "no training", "end of the schedule", "the best"],
)
def test_equal_evaluations_with_another_reason_are_left_alone(values: list[float], more: dict[str, Any]) -> None:
    """A loss with few digits, one that repeats itself, a rate that has come to its end, a best value."""
    assert [each for each in evaluated(values, **more) if each.kind == "weights_frozen"] == []


def test_a_held_out_loss_that_never_changes_tells_that_no_step_changes_a_weight() -> None:
    """From the first evaluation on, as where the optimizer is never called; or after the first, by one more of them."""
    (found,) = evaluated([0.5263391] * 4)
    assert (found.kind, found.step) == ("weights_frozen", 0)
    assert "no weight has ever changed" in found.text
    assert [each.step for each in evaluated([1.46312, *[1.3912345] * 4])] == [29]
