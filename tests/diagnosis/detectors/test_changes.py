"""New epochs: they explain what happens at them, and nothing that lasts."""

import itertools
import random

from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric


def kinds(loss: dict[int, float], epoch: int = 50, steps: int = 300) -> list[str]:
    """What is found in a run that logs its epoch; the loss goes in straight lines through these points."""
    made, rng = Diagnosis(), random.Random(5)
    points = sorted(loss.items())
    for step in range(steps):
        (a, was), (b, becomes) = next((p, q) for p, q in itertools.pairwise(points) if p[0] <= step < q[0])
        value = was + (becomes - was) * (step - a) / (b - a)
        values = {"train_loss": value * rng.uniform(0.97, 1.03), "epoch": float(step // epoch)}
        made.feed(0, Metric((step + 1) * 10**9, step, None, None, values))
    return [each.kind for each in made.findings()]


def test_a_loss_that_rises_over_several_epochs_diverges() -> None:
    """Lightning logs the epoch with every value; a new one is no reason for a loss that rises for 150 steps."""
    assert kinds({0: 2.0, 140: 0.5, 300: 1.6}) == ["divergence"]


def test_a_loss_that_falls_over_several_epochs_is_healthy() -> None:
    """The same epochs, and a loss that falls to the end."""
    assert kinds({0: 2.0, 140: 0.9, 300: 0.5}) == []
