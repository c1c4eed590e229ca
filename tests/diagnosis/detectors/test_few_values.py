"""Losses that are logged at every tenth step: each value counts, and what takes hundreds of them elsewhere is found."""

import math
import random
from collections.abc import Callable

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric

Values = dict[str, float]
Run = Callable[[int, random.Random], Values]
AT, STEPS, APART = 240, 450, 10


def found_in(values: Run, apart: int = APART, first: int = 0, seed: int = 1) -> list[Finding]:
    """Diagnose what is logged at every so many steps."""
    made, rng = Diagnosis(), random.Random(seed)
    for at in range(0, STEPS, APART):
        step = first + at * apart // APART
        made.feed(0, Metric(10**12 + at * 10**8, step, None, None, {"lr": 1e-3} | values(at, rng)))
    return [each for each in made.findings() if each.severity != "INFO"]


def falls(step: int, rng: random.Random, noise: float = 0.04) -> float:
    """A loss that falls from 2.5 to 0.8."""
    return (0.7 + 1.8 * math.exp(-step / 90)) * rng.lognormvariate(0, noise)


def shuffled(step: int, rng: random.Random) -> Values:
    """Labels are shuffled: more than half as much again, less than a spike has."""
    return {"loss": falls(step, rng, 0.03) * (1.65 if step >= AT else 1.0)}


def diverges(step: int, rng: random.Random) -> Values:
    """The rate is too high from some step on."""
    return {"loss": falls(step, rng, 0.02) * math.exp(max(step - AT, 0) / 200)}


def repeats(step: int, rng: random.Random) -> Values:
    """One batch for ever: the loss no longer varies."""
    return {"loss": falls(step, rng) if step < AT else 0.75 * 0.999 ** (step - AT)}


def masked(step: int, rng: random.Random) -> Values:
    """Padding counts: the loss is a tenth from one value to the next, the held-out one what it was."""
    held_out = {"val_loss": falls(step, rng, 0.01)} if step % 50 == 40 else {}
    return {"loss": falls(step, rng) * (0.1 if step >= AT else 1.0)} | held_out


def never(step: int, rng: random.Random) -> Values:
    """Nothing is learnt."""
    return {"loss": 1.37 * rng.lognormvariate(0, 0.02)}


@pytest.mark.parametrize(
    ("fault", "kind", "step"),
    [
        (shuffled, "level_shift", AT),
        (diverges, "divergence", AT),
        (repeats, "too_good", AT),
        (masked, "too_good", AT),
        (never, "not_learning", 0),
    ],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_a_fault_is_named_by_few_values(fault: Run, kind: str, step: int) -> None:
    """With its step, within three values."""
    for seed in range(3):
        found = found_in(fault, seed=seed)
        assert [each.kind for each in found] == [kind], [each.text for each in found]
        assert abs((found[0].step or 0) - step) <= 3 * APART


HEALTHY: dict[str, tuple[Run, int]] = {
    "falls": (lambda step, rng: {"loss": falls(step, rng)}, 0),
    "small batches": (lambda step, rng: {"loss": falls(step, rng, 0.3)}, 0),
    "fine-tuned": (lambda step, rng: {"loss": 0.08 * rng.lognormvariate(0, 0.2), "accuracy": 0.97}, 0),
    "goes on elsewhere": (lambda step, rng: {"loss": 1.8 * rng.lognormvariate(0, 0.02)}, 5000),
    "learnt at once": (lambda step, rng: {"loss": falls(step, rng), "val_loss": falls(step, rng, 0.01)}, 0),
    "rate falls": (
        lambda step, rng: {"lr": 1e-3 if step < AT else 1e-4, "loss": falls(step, rng) * (1.0 if step < AT else 0.25)},
        0,
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_loss_of_few_values_is_left_alone(name: str) -> None:
    """One that falls, one of small batches, and one that has nothing left to learn."""
    values, first = HEALTHY[name]
    for seed in range(4):
        assert [each.text for each in found_in(values, first=first, seed=seed)] == []


@pytest.mark.parametrize("noise", [0.3, 0.5])
def test_one_batch_that_is_learnt_by_heart_is_named_by_few_values(noise: float) -> None:
    """Batches differ by half from each other, and from a step on the loss falls smoothly, ever further."""

    def values(step: int, rng: random.Random) -> Values:
        loss = 0.9 * rng.lognormvariate(0, noise)
        return {"mse": loss if step < AT else 0.7 * 0.98 ** (step - AT) * rng.lognormvariate(0, 0.003)}

    assert [each.kind for each in found_in(values)] == ["too_good"]
    assert not found_in(lambda step, rng: {"mse": 0.9 * 0.995**step * rng.lognormvariate(0, noise)})


def test_steps_that_count_samples_are_not_few_values() -> None:
    """Forty updates of a batch of 2048 are no time to learn in."""
    assert found_in(never, apart=2048) == []


def test_the_same_fall_of_the_held_out_loss_is_learning() -> None:
    """What the held-out loss shares is no leak; without it the same fall is."""

    def both(step: int, rng: random.Random) -> Values:
        factor = 0.1 if step >= AT else 1.0
        return {"loss": falls(step, rng) * factor, "val_loss": falls(step, rng, 0.01) * factor}

    def alone(step: int, rng: random.Random) -> Values:
        return both(step, rng) | {"val_loss": falls(step, rng, 0.01)}

    assert found_in(both) == []
    assert "too_good" in [each.kind for each in found_in(alone)]


def test_a_density_may_fall_below_zero() -> None:
    """Between two of few values, too; a perplexity may not fall below 1."""
    assert found_in(lambda step, rng: {"nll": 2.0 - 3.5 * (1 - math.exp(-step / 60)) + rng.gauss(0, 0.02)}) == []
    found = found_in(lambda step, rng: {"perplexity": falls(step, rng) if step < AT else 0.4})
    assert "absurd_loss" in [each.kind for each in found]
