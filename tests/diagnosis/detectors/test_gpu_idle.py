"""Idle GPUs: what the machine is short of meanwhile is the cause, and a batch that is too small is a remark."""

import random

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric


def found_in(readings: dict[str, float], use: float, steps: int = 200) -> list[Finding]:
    """Diagnose a run with these readings of its machine, and a use of its GPU."""
    made, rng = Diagnosis(), random.Random(1)
    for step in range(steps):
        now = (step + 1) * 5 * 10**9
        values = {"gpu/0/utilization": use * rng.uniform(0.9, 1.1), **readings}
        made.feed(0, Metric(now, step, None, "system", values))
    return made.findings()


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ({"cpu/utilization": 0.97}, "waits for the CPUs, which are 97% busy"),
        ({"psi/io": 0.7}, "waits for the storage: tasks wait for it 70% of the time"),
        ({}, "for data or for the host"),
    ],
    ids=["cpu", "storage", "unknown"],
)
def test_the_cause_of_an_idle_gpu_is_what_the_machine_is_short_of(readings: dict[str, float], words: str) -> None:
    """A GPU that is used by 5 % names CPUs or storage where they are the bottleneck."""
    (found,) = found_in(readings, 0.05)
    assert found.kind == "gpu_idle"
    assert words in found.cause


def test_a_gpu_that_is_used_little_from_the_start_is_idle() -> None:
    """A use of a quarter is low where it was never higher; one of 80 % is none."""
    assert [each.kind for each in found_in({}, 0.25)] == ["gpu_idle"]
    assert found_in({}, 0.8) == []


def test_a_small_batch_is_a_remark() -> None:
    """Where GPU, memory and CPUs all have room the batch may be larger; where the memory is full it may not."""
    room = {"gpu/0/memory_utilization": 0.3, "cpu/utilization": 0.2}
    assert [(each.kind, each.severity) for each in found_in(room, 0.55)] == [("small_batch", "INFO")]
    assert found_in({**room, "gpu/0/memory_utilization": 0.9}, 0.55) == []
    assert found_in(room, 0.9) == []
