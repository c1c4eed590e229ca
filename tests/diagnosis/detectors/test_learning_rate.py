"""Learning rates above the configured one: a jump is a fault, a cycle that passes it is not."""

import math

import pytest

from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric


def one_cycle(step: int) -> float:
    """A cycle up to ten times the configured rate, as OneCycleLR makes it."""
    share = step / 120 if step < 120 else (step - 120) / 280
    low, high = (4e-4, 1e-2) if step < 120 else (1e-2, 4e-8)
    return high + (low - high) * (1 + math.cos(math.pi * share)) / 2


@pytest.mark.parametrize(("jump", "kinds"), [(1.0, []), (5.0, ["lr_schedule"])], ids=["a cycle", "a jump"])
def test_a_cycle_above_the_configured_rate_is_no_jump(jump: float, kinds: list[str]) -> None:
    """Logged every fifth step, its values grow by a quarter from one to the next."""
    made = Diagnosis(config={"lr": 1e-3, "schedule": "onecycle"})
    for step in range(4, 400, 5):
        rate = one_cycle(step) if jump == 1.0 else 1e-3 * (jump if step > 200 else 1.0)
        made.feed(0, Metric((step + 1) * 10**9, step, None, None, {"lr-Adam": rate}))
    assert [each.kind for each in made.findings()] == kinds


@pytest.mark.parametrize(
    ("total", "kinds"), [(240, ["lr_zero"]), (125, []), (None, [])], ids=["early", "end", "unknown"]
)
def test_a_schedule_that_ends_long_before_the_run_is_named(total: int | None, kinds: list[str]) -> None:
    """A linear decay that comes to zero at step 120, of a run with so many steps."""
    made = Diagnosis(config={} if total is None else {"max_steps": total})
    for step in range(130):
        made.feed(0, Metric((step + 1) * 10**9, step, None, None, {"lr": max(1 - step / 120, 0.0) * 1e-3}))
    found = made.findings()
    assert [each.kind for each in found] == kinds
    assert [each.step for each in found] == [120] * len(kinds)


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ({"lr": 1e-3, "warmup_steps": 20}, ["lr_schedule"]),
        ({"lr": 1e-3, "warmup_steps": 20, "max_lr": 0.05}, []),
        ({"lr": 1e-3, "warmup_steps": 300}, []),
        ({"lr": 1e-3}, []),
    ],
    ids=["it goes on", "to a higher peak", "it is that long", "not configured"],
)
def test_a_warm_up_that_does_not_end_is_named(config: dict[str, float], kinds: list[str]) -> None:
    """The rate rises by a twentieth of the configured one at each step, for ever."""
    made = Diagnosis(config=config)
    for step in range(200):
        made.feed(0, Metric((step + 1) * 10**9, step, None, None, {"lr": 1e-3 * (step + 1) / 20}))
    found = made.findings()
    assert [each.kind for each in found] == kinds
    assert all("a warm-up of 20 steps" in each.text and each.step == 20 for each in found)


@pytest.mark.parametrize(("steps", "kinds"), [(240, ["lr_zero"]), (130, [])], ids=["goes on", "ends"])
def test_a_training_that_goes_on_after_its_schedule_is_named(steps: int, kinds: list[str]) -> None:
    """A linear decay that comes to zero at step 120, of a run of unknown length; another rate that goes on is none."""
    for other in (None, 1e-4):
        made = Diagnosis()
        for step in range(steps):
            values = {"lr": max(1 - step / 120, 0.0) * 1e-3} | ({} if other is None else {"lr_head": other})
            made.feed(0, Metric((step + 1) * 10**9, step, None, None, values))
        found = made.findings()
        assert [each.kind for each in found] == (kinds if other is None else [])
        assert all(each.step == 120 and "twice in a step" in each.cause for each in found)


@pytest.mark.parametrize(
    ("config", "kinds"),
    [({}, ["lr_schedule"]), ({"decay_steps": 200}, []), ({"max_steps": 520}, [])],
    ids=["half of the run", "configured", "no part of the run"],
)
def test_a_schedule_at_its_floor_after_half_of_the_run_is_named(config: dict[str, float], kinds: list[str]) -> None:
    """A cosine to a twentieth of its peak that is stepped twice in each step."""
    made = Diagnosis(config={"schedule": "cosine", "max_steps": 400, **config})
    for step in range(380):
        share = min(step / 200, 1.0)
        rate = 1e-3 * (0.05 + 0.95 * (1 + math.cos(math.pi * share)) / 2)
        made.feed(0, Metric((step + 1) * 10**9, step, None, None, {"lr": rate}))
    found = [each for each in made.findings() if each.severity != "INFO"]
    assert [(each.kind, each.step) for each in found] == [(kind, 200) for kind in kinds]
    assert all("one part in 2 of the 400 steps" in each.text for each in found)


def test_a_step_of_the_schedule_in_the_middle_is_left_alone() -> None:
    """A tenth of the rate after a fifth of the run is what a schedule of steps does."""
    made = Diagnosis(config={"schedule": "step_decay", "max_steps": 400})
    for step in range(380):
        made.feed(0, Metric((step + 1) * 10**9, step, None, None, {"lr": 1e-3 if step < 80 else 1e-4}))
    assert [each.kind for each in made.findings()] == []
