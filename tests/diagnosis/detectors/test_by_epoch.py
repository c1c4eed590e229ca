"""Runs that log once an epoch, and runs that log a loss and nothing else."""

import math
import random
from collections.abc import Callable

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric

Values = dict[str, float]
AT = 16


def epochs(
    change: Callable[[int, Values], object], count: int = 40, seconds: Callable[[int], float] = lambda epoch: 30.0
) -> list[Finding]:
    """Diagnose a classifier that logs loss and accuracy at the end of each epoch."""
    made, rng, now = Diagnosis(), random.Random(3), 10**18
    for epoch in range(count):
        learnt = math.exp(-epoch / 6)
        plain = {
            "loss": 0.25 + 2 * learnt,
            "accuracy": 0.93 - 0.75 * learnt,
            "val_loss": 0.42 + 1.9 * learnt,
            "val_accuracy": 0.88 - 0.72 * learnt,
        }
        values = {key: value * rng.lognormvariate(0, 0.01) for key, value in plain.items()} | {"lr": 1e-3}
        change(epoch, values)
        now += int(seconds(epoch) * rng.lognormvariate(0, 0.03) * 1e9)
        made.feed(0, Metric(now, epoch, None, None, values))
    return [each for each in made.findings() if each.severity != "INFO"]


def guesses(epoch: int, values: Values) -> None:
    """Nothing is learnt."""
    jitter = 1 + 0.001 * math.sin(epoch)
    values |= {"loss": 2.303 * jitter, "val_loss": 2.304 * jitter, "accuracy": 0.1 * jitter, "val_accuracy": 0.1}


def stops(epoch: int, values: Values) -> None:
    """The weights are frozen from some epoch on."""
    level = 0.25 + 2 * math.exp(-min(epoch, AT) / 16)
    values |= {key: level * (1 + 0.003 * math.sin(7 * epoch)) for key in ("loss", "val_loss")}


def evaluates_an_old_copy(epoch: int, values: Values) -> None:
    """The held-out loss stays the same to the last digit."""
    if epoch >= 6:
        values["val_loss"] = 1.2345


def trains_on_held_out_data(epoch: int, values: Values) -> None:
    """The held-out loss is next to nothing at once."""
    if epoch >= AT:
        values |= {"val_loss": 0.004, "val_accuracy": 0.999}


def decays_each_step(epoch: int, values: Values) -> None:
    """The rate becomes a tenth with each epoch."""
    values["lr"] = 1e-3 * 0.1 ** max(epoch - AT, 0)


@pytest.mark.parametrize(
    ("fault", "kind", "step"),
    [
        (guesses, "not_learning", 0),
        (stops, "plateau", AT),
        (evaluates_an_old_copy, "constant", 6),
        (trains_on_held_out_data, "too_good", AT),
        (decays_each_step, "lr_zero", AT),
    ],
)
def test_a_fault_is_named_by_its_epoch(fault: Callable[[int, Values], object], kind: str, step: int) -> None:
    """With few values, each the mean of many steps."""
    (found,) = epochs(fault)
    assert found.kind == kind, found.text
    assert abs((found.step or 0) - step) <= 3


@pytest.mark.parametrize(
    "change",
    [
        lambda epoch, values: None,
        lambda epoch, values: values.update(lr=1e-3 * 0.5 ** (epoch // 12), loss=values["loss"] * 0.9 ** (epoch // 12)),
        lambda epoch, values: values.update(lr=1e-3 * 0.5 * (1 + math.cos(math.pi * epoch / 39)) + 1e-12),
        lambda epoch, values: values.update(loss=0.02 + 2 * math.exp(-epoch / 2), val_loss=0.05 + math.exp(-epoch / 2)),
        lambda epoch, values: values.update(val_loss=0.8 * values["loss"], val_accuracy=0.99),
    ],
    ids=["plain", "the rate is halved", "cosine", "soon learnt", "dropout"],
)
def test_healthy_epochs_have_no_finding(change: Callable[[int, Values], object]) -> None:
    """Also those of a run that is soon at its floor."""
    assert [each.text for each in epochs(change)] == []


def test_epochs_that_take_longer_are_named() -> None:
    """From the times at which they are logged; one long epoch is none."""
    (found,) = epochs(lambda epoch, values: None, seconds=lambda epoch: 30.0 if epoch < AT else 65.0)
    assert (found.kind, found.step) == ("throughput_loss", AT)
    assert epochs(lambda epoch, values: None, seconds=lambda epoch: 200.0 if epoch in (0, AT) else 30.0) == []


def test_a_loop_that_only_logs_a_loss_is_told_when_it_becomes_slower() -> None:
    """Evaluations between two logs, and logs that come in bursts, are left alone."""

    def found(seconds: Callable[[int], float]) -> list[str]:
        made, rng, now = Diagnosis(), random.Random(4), 10**18
        for step in range(600):
            now += int(seconds(step) * rng.lognormvariate(0, 0.08) * 1e9)
            made.feed(
                0, Metric(now, step, None, None, {"loss": (1 + 9 / (1 + step / 50)) * rng.lognormvariate(0, 0.02)})
            )
        return [f"{each.kind} {round((each.step or 0), -2)}" for each in made.findings() if each.severity != "INFO"]

    assert found(lambda step: 0.05 if step < 300 else 0.1) == ["throughput_loss 300"]
    assert found(lambda step: 2.0 if step % 50 == 49 else 0.05) == []
    assert found(lambda step: 3.0 if step % 50 == 49 else 2e-5) == []
