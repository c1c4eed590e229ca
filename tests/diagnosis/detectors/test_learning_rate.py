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
