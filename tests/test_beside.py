"""What the benchmark beside real loops makes of its rounds."""

from benchmarks.measures import beside


def _round(alone: float, again: float, hub: float) -> dict[str, dict[str, float]]:
    found = {"nothing": alone, "nothing again": again, "hub": hub}
    return {case: {"hub_s": 0.1} | dict.fromkeys(("mean", "median", "p99"), ms) for case, ms in found.items()}


def test_a_case_is_compared_with_both_loops_alone() -> None:
    """The noise is what the two loops alone differ by, whichever is faster."""
    rounds = [_round(3.0, 3.0, 3.3), _round(2.0, 4.0, 3.3), _round(4.0, 2.0, 3.3)]
    assert round(beside._stats(rounds, "hub")["mean_pct"], 6) == 10.0
    assert beside._stats(rounds, "nothing again")["noise_pct"] == 50.0
    assert beside._stats(rounds, "nothing again")["mean_pct"] == 0.0
