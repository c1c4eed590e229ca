"""Lost records are reported with their cause: the quota, values that cannot be recorded, a network that loses them."""

import pytest

from stepscope.diagnosis.detectors.lost_records import LOST, LostRecords


@pytest.mark.parametrize(
    ("key", "cause"),
    [
        ("stepscope/dropped/metric/quota", LOST.cause),
        ("stepscope/rejected/metric", "values that cannot be recorded"),
        ("stepscope/dropped/datagrams", "UDP lost datagrams between the client and the hub"),
        ("stepscope/dropped/unsent_datagrams", "the client dropped datagrams because its socket was full"),
    ],
)
def test_the_cause_is_that_of_the_reason(key: str, cause: str) -> None:
    """A counter above zero is one finding, with what to do about it."""
    detector = LostRecords(None)  # type: ignore[arg-type]
    assert detector.watches(key)
    assert detector.take(0, key, 5, 1, 0.0) is None
    found = detector.take(0, key, 5, 1, 3.0)
    assert found is not None
    assert (found.cause, found.step, bool(found.advice)) == (cause, 5, True)
    assert detector.take(0, key, 6, 2, 4.0) is None
