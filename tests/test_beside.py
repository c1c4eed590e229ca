"""What the benchmark beside real loops makes of its rounds."""

from benchmarks.measures import beside


def _round(alone: float, again: float, hub: float) -> dict[str, dict[str, float]]:
    found = {"nothing": alone, "nothing again": again, "hub": hub}
    return {case: {"hub_s": 0.1} | dict.fromkeys(("mean", "median", "p99"), ms) for case, ms in found.items()}


def test_a_case_is_compared_with_both_loops_alone() -> None:
    """Round by round; the noise is twice the standard error of the mean, and there is none of a single round."""
    rounds = [_round(3.0, 3.0, 3.3), _round(2.0, 4.0, 3.3), _round(4.0, 2.0, 3.3)]
    found = beside._stats(rounds, "hub")
    assert (round(found["mean_pct"], 6), round(found["noise_pct"], 6)) == (10.0, 0.0)
    again = beside._stats(rounds, "nothing again")
    assert (round(again["mean_pct"], 3), round(again["noise_pct"], 3)) == (16.667, 88.192)
    assert "noise_pct" not in beside._stats(rounds[:1], "hub")
