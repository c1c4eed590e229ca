"""Evaluations that no longer improve are a remark."""

import random

import pytest

from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric


@pytest.mark.parametrize(("stops", "kinds"), [(20, ["overtraining"]), (60, [])], ids=["stops", "improves"])
def test_a_held_out_loss_that_no_longer_improves_is_a_remark(stops: int, kinds: list[str]) -> None:
    """Ten evaluations without a better one say where the best was, and how far it is from the training loss."""
    made, rng = Diagnosis(), random.Random(4)
    for step in range(40 * 10):
        values = {"train/loss": (0.3 + 2 / (1 + step / 50)) * rng.uniform(0.97, 1.03)}
        if step % 10 == 9:
            values["val/loss"] = (
                0.6 + 2 / (1 + min(step // 10, stops) / 5) + (step // 10 > stops) * rng.uniform(0, 0.01)
            )
        made.feed(0, Metric((step + 1) * 10**9, step, None, None, values))
    found = [each for each in made.findings() if each.kind != "generalization_gap"]
    assert [(each.kind, each.severity) for each in found] == [(kind, "INFO") for kind in kinds]
    assert all("from train/loss" in each.text and each.step == 209 for each in found)


@pytest.mark.parametrize("key", ["loss", "accuracy"])
@pytest.mark.parametrize("wide", [True, False])
def test_a_wide_gap_between_training_and_held_out_data_is_a_remark(key: str, wide: bool) -> None:
    """It is one while both still improve, in losses and in accuracies."""
    made, rng = Diagnosis(), random.Random(4)
    for step in range(200):
        learnt = 1 - 1 / (1 + step / 50)
        train = {"loss": 2.5 - 2 * learnt, "accuracy": 0.9 * learnt}[key] * rng.uniform(0.98, 1.02)
        apart = {"loss": 1.0 if wide else 0.05, "accuracy": -0.2 if wide else -0.02}[key]
        values = {f"train/{key}": train}
        if step % 20 == 19:
            values[f"val/{key}"] = max(train + apart, 0.0)
        made.feed(0, Metric((step + 1) * 10**9, step, None, None, values))
    found = [(each.kind, each.severity) for each in made.findings()]
    assert found == ([("generalization_gap", "INFO")] if wide else [])


def test_only_the_same_measure_is_compared() -> None:
    """Exact answers are rarer than right tokens, whatever data they are measured on."""
    made = Diagnosis()
    for step in range(200):
        values = {"mean_token_accuracy": 0.95}
        if step % 20 == 19:
            values |= {"eval_exact_match": 0.1, "eval_mean_token_accuracy": 0.94}
        made.feed(0, Metric((step + 1) * 10**9, step, None, None, dict(values)))
    assert made.findings() == []
