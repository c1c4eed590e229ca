"""Replicas: weights that must be equal on all ranks, and the rank whose are not."""

from stepscope.diagnosis.detectors.desync import CHECKSUM
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric

KEY = CHECKSUM.removeprefix("torch/")


def diagnosed(odd: dict[int, float], ranks: int = 4) -> list[Finding]:
    """Ranks that record the checksum of their weights every 20 steps; some differ from step 40 on."""
    made = Diagnosis(world=ranks)
    for step in range(0, 100, 20):
        for rank in range(ranks):
            value = 7.5 - step / 1000 + (odd.get(rank, 0.0) if step >= 40 else 0.0)
            made.feed(rank, Metric(step * 10**9 + rank, step, None, "torch", {KEY: value}))
    return made.findings()


def test_the_rank_whose_weights_differ_is_named() -> None:
    """One sample is enough, for these numbers are equal to the last bit."""
    (found,) = diagnosed({3: 1e-9})
    assert (found.kind, found.ranks, found.step) == ("replicas_differ", (3,), 40)
    assert found.text == "the weights differ on rank 3 at step 40, and were equal until step 20"


def test_no_rank_is_blamed_where_most_do_not_agree() -> None:
    """Of two ranks that differ, either may be wrong."""
    (found,) = diagnosed({1: 0.5}, ranks=2)
    assert (found.kind, found.ranks) == ("replicas_differ", ())


def test_equal_weights_are_healthy() -> None:
    """Weights change on all ranks together."""
    assert diagnosed({}) == []
