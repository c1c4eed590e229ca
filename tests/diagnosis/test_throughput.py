"""Steps that take longer than in earlier runs."""

import pytest

from stepscope.diagnosis.detectors.throughput import slower_than_before


@pytest.mark.parametrize(
    ("now", "earlier", "times"),
    [
        (0.30, (0.20, 0.21, 0.19), 1.5),
        (0.21, (0.20, 0.21, 0.19), None),
        (0.30, (0.20,), None),
        (0.30, (0.10, 0.20, 0.35), None),
        (0.0, (0.2, 0.2), None),
    ],
    ids=["half as long again", "as usual", "one earlier run", "runs that differ", "no time"],
)
def test_slower_than_before(now: float, earlier: tuple[float, ...], times: float | None) -> None:
    """A median step time is compared with those of earlier runs, and with how much they differ among themselves."""
    assert slower_than_before(now, earlier) == (None if times is None else pytest.approx(times, rel=0.01))
