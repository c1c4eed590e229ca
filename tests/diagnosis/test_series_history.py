"""The bounded memory of a series."""

import math
import random

from stepscope.diagnosis.roles import Role
from stepscope.diagnosis.series_history import MAX_BLOCKS, RECENT, Series, jitter, spread, trend


def test_a_series_of_any_length_takes_bounded_memory() -> None:
    """A hundred thousand values leave at most so many recent ones and blocks, and the blocks cover all steps."""
    series = Series("loss", 0, Role("loss"))
    for step in range(100_000):
        series.add(step, step, 1.0 + step)
    assert len(series.values) == RECENT
    assert len(series.middles) == len(series.firsts) == len(series.lasts) < MAX_BLOCKS
    assert series.firsts[0] == 0
    assert series.lasts[-1] > 99_000
    assert all(last + 1 == first for last, first in zip(series.lasts, series.firsts[1:], strict=False))
    assert all(first < middle - 1 < last for first, middle, last in zip(*_blocks(series), strict=True))


def _blocks(series: Series) -> tuple[list[int], list[float], list[int]]:
    return series.firsts, series.middles, series.lasts


def test_jitter_ignores_the_trend_and_spread_ignores_outliers() -> None:
    """Noise is measured around the course of a series, and one outlier changes neither estimate much."""
    rng = random.Random(1)
    rising = [0.1 * at + rng.gauss(0, 1.0) for at in range(2000)]
    assert 0.8 < jitter(rising) < 1.2
    flat = [rng.gauss(0, 1.0) for _ in range(2000)]
    assert math.isclose(spread(flat), spread([*flat[:-1], 1e9]), rel_tol=0.02)


def test_trend_tells_rising_from_falling() -> None:
    """A steady rise is 1, a steady fall -1, noise about 0."""
    rng = random.Random(2)
    assert trend(list(range(50))) == 1.0
    assert trend(list(range(50, 0, -1))) == -1.0
    assert abs(trend([rng.random() for _ in range(400)])) < 0.4
