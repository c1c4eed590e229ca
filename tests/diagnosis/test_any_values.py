"""No record makes the diagnosis raise, whatever its values."""

import math
import random

import pytest

from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Histogram, Log, Metric, Span, Value

KEYS = (
    *("loss", "lr", "grad_norm", "loss_scale", "train/accuracy", "val/loss", "val/accuracy", "kl", "entropy"),
    *("clip_fraction", "explained_variance", "reward", "response_length", "tokens_per_second", "step_time", "epoch"),
    *("system/memory/used_bytes", "system/memory/limit_bytes", "system/disk/free_bytes", "system/gpu/0/utilization"),
    *("stepscope/dropped/metric/quota", "other", "param_norm"),
)
ODD: tuple[Value, ...] = (
    *(0.0, -0.0, 1.0, -1.0, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf, 1e-300, 1e300),
    *(True, False, 2**62, -(2**62), 10**400, Histogram(1, 1.0, 1.0, 1.0, (), (1,))),
)


def _value(rng: random.Random, calm: bool) -> Value:
    if calm:
        return rng.lognormvariate(0, 1)
    return rng.choice((*ODD, rng.gauss(0, 1), rng.lognormvariate(0, 30), float(rng.randrange(3))))


@pytest.mark.parametrize("seed", range(6))
def test_any_values_at_any_steps(seed: int) -> None:
    """Extreme, constant, missing and mixed values at steps that jump about, on one and several ranks."""
    rng = random.Random(seed)
    diagnosis = Diagnosis(world=1 + seed % 3)
    for at in range(1500):
        step = rng.choice((at, at, at, None, 0, -5, 2**62, rng.randrange(1000)))
        calm = at < 400 or seed % 2 == 0
        values = {key: _value(rng, calm or rng.random() < 0.5) for key in KEYS if rng.random() < 0.9}
        diagnosis.feed(at % diagnosis.run.world, Metric(at, step, None, rng.choice((None, "trainer")), values))
        took = rng.choice((None, 0, 1, 10**9, 2**60))
        parent = rng.choice((None, b"root0000"))
        name = rng.choice(("train.step", "train.data_load", "all_reduce", "checkpoint", ""))
        diagnosis.feed(at % diagnosis.run.world, Span(at, took, step, None, b"t" * 16, rng.randbytes(8), parent, name))
        diagnosis.feed(0, Log(at, step, None, None, None, rng.choice((0, 13, 17, 99)), rng.choice((None, "x", {1: 2}))))
        diagnosis.tick(at * 10**9)
    for found in diagnosis.findings():
        assert found.text
        assert found.kind
