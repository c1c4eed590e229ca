"""A machine or GPU that is unlike its peers is a remark."""

import random

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric


def found_in(use: dict[tuple[int, int], float], usual: float = 0.9, reading: str = "clock_mhz") -> list[Finding]:
    """Diagnose four machines with two GPUs each, some of which have another reading than usual, as a share."""
    made, rng = Diagnosis(world=4), random.Random(2)
    for step in range(60):
        for rank in range(4):
            whole = 1900 if reading == "clock_mhz" else 1
            clocks = {
                f"gpu/{gpu}/{reading}": whole * use.get((rank, gpu), usual) * rng.uniform(0.98, 1.02) for gpu in (0, 1)
            }
            made.feed(rank, Metric((step + 1) * 5 * 10**9 + rank, step, None, "system", clocks), host=f"host{rank}")
    return made.findings()


@pytest.mark.parametrize("reading", ["clock_mhz", "utilization"])
@pytest.mark.parametrize("place", [(2, 0), (3, 1)])
def test_a_gpu_with_another_reading_than_its_peers_is_named(place: tuple[int, int], reading: str) -> None:
    """A lower clock, or less work: it is named with its machine, as a remark."""
    (found,) = found_in({place: 0.4}, reading=reading)
    assert (found.kind, found.severity, found.ranks) == ("odd_machine", "INFO", (place[0],))
    assert f"gpu/{place[1]}/{reading}" in found.text


def test_peers_that_agree_or_all_differ_are_left_alone() -> None:
    """Equal ones, and ones that are all different, have no odd one."""
    assert found_in({}) == []
    assert found_in({(rank, gpu): 0.3 + 0.1 * (2 * rank + gpu) for rank in range(4) for gpu in (0, 1)}) == []


@pytest.mark.parametrize("slow", [None, 3])
def test_a_rank_whose_kernels_take_longer_is_named(slow: int | None) -> None:
    """The same phase takes longer on its GPU than on all others, which agree; other phases are not compared with it."""
    made, rng = Diagnosis(world=4), random.Random(2)
    for step in range(60):
        for rank in range(4):
            took = (31 if rank == slow else 20) * rng.uniform(0.98, 1.02)
            values = {"forward_gpu_ms": took, "backward_gpu_ms": 3 * took}
            made.feed(rank, Metric((step + 1) * 10**9 + rank, step, None, "torch", values), host=f"host{rank}")
    found = [(each.kind, each.severity, each.ranks) for each in made.findings()]
    assert found == ([] if slow is None else [("odd_machine", "INFO", (3,))])
