"""Tasks that are learnt one after another: a new one may begin badly, and an old one must not be forgotten."""

import math
import random

import pytest

from stepscope.diagnosis.roles import role_of
from tests.diagnosis.detectors.test_held_out_and_runaway import Values, found_in


def test_names_of_one_of_many_have_the_role_of_what_is_measured() -> None:
    """The number of a task, a loader or a fold says nothing about what is measured; a layer is no such number."""
    for key in ("acc/task_0", "Top1_Acc_Exp/Task3", "val/accuracy/dataloader_1", "test/f1/fold2"):
        assert role_of(key).name == "accuracy", key
    assert role_of("val/loss/dataset_1").name == "loss"
    assert role_of("val/loss/dataset_1").held_out
    assert role_of("activation/layer_3").name == ""
    assert {role_of(key).name for key in ("task", "task_id", "experience")} == {"stage"}


def tasks(kept: float) -> list[str]:
    """Three tasks, with the loss of the current one and the accuracy on each; `kept` is what the last one leaves."""

    def values(step: int, rng: random.Random) -> Values:
        task, since = divmod(step, 100)
        found = {"loss": 0.1 + 2.4 * math.exp(-since / 12) * rng.lognormvariate(0, 0.1), "task": float(task)}
        if step % 5 == 4:
            for old in range(task + 1):
                level = 0.9 if old == task else 0.85 * (kept if task == 2 else 0.95)
                found[f"acc/task_{old}"] = level + 0.02 * rng.random()
        return found

    return [f"{each.kind} {each.key}" for each in found_in(values, steps=300)]


@pytest.mark.parametrize(("kept", "named"), [(0.95, []), (0.8, []), (0.3, ["accuracy_drop acc/task_0"])])
def test_what_the_next_task_destroys_is_named(kept: float, named: list[str]) -> None:
    """The loss of a new task begins as high as that of the first; a little of the old ones is always lost."""
    found = tasks(kept)
    assert found[:1] == named
    assert all(each.startswith("accuracy_drop acc/task_") for each in found)
