"""Times of several ranks that one of them logs: the one that takes longer is named."""

import random

import pytest

from stepscope.diagnosis.roles import role_of
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric


def found_in(pattern: str, slow: float, at: int = 150, ranks: int = 4, steps: int = 300) -> list[tuple[str, str, int]]:
    """Diagnose times of which that of rank 2 takes so many times as long from a step on: kind, key and step."""
    made, rng = Diagnosis(), random.Random(3)
    for step in range(steps):
        busy = rng.lognormvariate(0, 0.2)
        values = {
            pattern.format(rank): 0.2 * busy * rng.lognormvariate(0, 0.1) * (slow if rank == 2 and step >= at else 1)
            for rank in range(ranks)
        }
        made.feed(0, Metric(10**12 + step * 10**9, step, None, None, values))
    return [(each.kind, each.key or "", each.step or 0) for each in made.findings() if each.severity != "INFO"]


@pytest.mark.parametrize("pattern", ["perf/step_time_ms/rank_{}", "time/worker{}/forward", "rank{}/step_time"])
def test_one_that_takes_longer_than_the_others_is_named(pattern: str) -> None:
    """With its key and the step since when, though all of them vary together."""
    found = [each for each in found_in(pattern, 1.8) if each[0] == "straggler"]
    assert [(kind, key) for kind, key, _ in found] == [("straggler", pattern.format(2))]
    assert abs(found[0][2] - 150) <= 5


def test_ranks_that_are_alike_are_left_alone() -> None:
    """A few percent are none, and neither are two ranks, of which either may be the odd one."""
    assert found_in("perf/step_time_ms/rank_{}", 1.1) == []
    assert [each for each in found_in("perf/step_time_ms/rank_{}", 1.8, at=0, ranks=3) if each[0] != "straggler"] == []
    assert [each for each in found_in("loss/rank_{}", 1.8) if each[0] == "straggler"] == []


def test_a_rank_whose_cpu_is_busy_now_and_then_is_left_alone() -> None:
    """Half of its times are far longer, and the others as short as those of its peers."""
    made, rng = Diagnosis(), random.Random(3)
    for step in range(300):
        values = {f"step_time_ms/rank_{rank}": 2.2 * rng.lognormvariate(0, 0.05) for rank in range(4)}
        values["step_time_ms/rank_0"] *= 1 if rng.random() < 0.4 else rng.uniform(2, 12)
        made.feed(0, Metric(10**12 + step * 10**9, step, None, None, values))
    assert [each.kind for each in made.findings() if each.kind == "straggler"] == []


def test_a_value_of_a_rank_that_is_no_time_has_another_role() -> None:
    """Losses, rates and readings of a machine keep theirs."""
    assert role_of("perf/step_time_ms/rank_2").name == "rank_time"
    assert role_of("loss/rank_0").name != "rank_time"
    assert role_of("system/gpu/0/temperature_celsius").name == "gpu_temperature"


def weights_of_ranks(odd_from: int, ranks: int = 3, key: str = "param_checksum/rank{}") -> list[tuple[str, str, int]]:
    """Diagnose checksums that one rank logs for all, of which that of rank 2 is its own from a step on."""
    made, rng, sums = Diagnosis(), random.Random(3), 0.0
    for step in range(120):
        sums += rng.gauss(0, 1)
        odd = 1e-3 * (step - odd_from + 1) if step >= odd_from else 0.0
        values = {key.format(rank): sums + (odd if rank == 2 else 0.0) for rank in range(ranks)}
        made.feed(0, Metric(10**12 + step * 10**9, step, None, None, values))
    return [(each.kind, each.key or "", each.step or 0) for each in made.findings() if each.severity != "INFO"]


@pytest.mark.parametrize("key", ["param_checksum/rank{}", "worker_{}/weights/hash", "weight_checksum/gpu{}"])
def test_a_rank_whose_checksum_is_its_own_is_named(key: str) -> None:
    """With the step since when, for one that logs those of all knows as much as each of them."""
    assert weights_of_ranks(60, key=key) == [("replicas_differ", key.format(2), 60)]


def test_checksums_that_are_equal_or_never_were_are_left_alone() -> None:
    """Parts of one model that are kept on several ranks have sums of their own from the start on."""
    assert weights_of_ranks(1000) == []
    assert weights_of_ranks(0) == []


def test_a_loss_of_one_of_several_ranks_is_a_loss() -> None:
    """A rank whose data are spoilt shows in its own; the others' go on as they were."""
    assert role_of("loss/rank1").name == role_of("train/loss/worker_2").name == "loss"
    assert role_of("val_loss/rank_0").held_out
    made, rng = Diagnosis(), random.Random(3)
    for step in range(260):
        values = {f"loss/rank{rank}": 0.6 * rng.lognormvariate(0, 0.15) for rank in range(3)}
        values["loss/rank1"] *= 2.2 if step >= 140 else 1
        made.feed(0, Metric(10**12 + step * 10**9, step, None, None, values))
    (found,) = (each for each in made.findings() if each.severity != "INFO")
    assert (found.kind, found.key, found.step) == ("level_shift", "loss/rank1", 140)
