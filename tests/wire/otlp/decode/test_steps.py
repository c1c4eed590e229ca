"""Steps under all the names that clients give them."""

from itertools import combinations
from typing import Any

import pytest

from stepscope.model.names import STEP_FIELDS
from stepscope.training.trainer.fields import sort
from stepscope.wire.otlp.decode.steps import take_step
from stepscope.wire.otlp.names import STEPS


@pytest.mark.parametrize("alias", STEPS)
def test_every_alias_is_taken_out(alias: str) -> None:
    """The value becomes the step, the name its axis unless it is the plain one."""
    attrs: dict[str, Any] = {"a": 1, alias: 7, "z": 2}
    assert take_step(attrs) == (7, None if alias in ("train.step", "step") else alias)
    assert attrs == {"a": 1, "z": 2}


def test_the_strongest_wins_and_the_others_stay() -> None:
    """rust_ppo sends two: the policy version is the step, the timesteps remain to be seen."""
    attrs: dict[str, Any] = {"timesteps": 4096, "policy_version": 3}
    assert take_step(attrs) == (3, "policy_version")
    assert attrs == {"timesteps": 4096}


@pytest.mark.parametrize(("strong", "weak"), list(combinations(STEP_FIELDS, 2)))
def test_fields_have_the_order_that_trainers_give_them(strong: str, weak: str) -> None:
    """An event has the same step whether it comes from the trainer or by OTLP."""
    attrs: dict[str, Any] = {weak: 4096, strong: 3}
    assert take_step(attrs)[0] == sort({weak: 4096, strong: 3}).step == 3
    assert attrs == {weak: 4096}


def test_the_name_of_an_axis_travels_beside_the_step() -> None:
    """Our own sinks send the axis as `train.step.name`."""
    attrs: dict[str, Any] = {"train.step": 5, "train.step.name": "tokens"}
    assert take_step(attrs) == (5, "tokens")
    assert attrs == {}


@pytest.mark.parametrize("value", ["7", 7.5, True, None, float("nan"), float("inf"), 1e300, [7]])
def test_only_whole_numbers_are_steps(value: Any) -> None:
    """Anything else stays an attribute."""
    attrs = {"step": value}
    assert take_step(attrs) == (None, None)
    assert attrs == {"step": value}


def test_a_weaker_alias_serves_when_the_stronger_is_no_number() -> None:
    """A text under `step` does not hide the iteration."""
    attrs: dict[str, Any] = {"step": "warmup", "iteration": 8.0}
    assert take_step(attrs) == (8, "iteration")
    assert attrs == {"step": "warmup"}
