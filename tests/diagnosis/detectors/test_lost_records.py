"""Lost records are reported with their cause: the quota, values that cannot be recorded, a network that loses them."""

import pytest

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.detectors.lost_records import LOST, LostRecords


@pytest.mark.parametrize(
    ("key", "cause"),
    [
        ("stepscope/dropped/metric/quota", LOST.cause),
        ("stepscope/rejected/metric", "values that cannot be recorded"),
        ("stepscope/dropped/metric/full", "the disk was full when the process ended"),
        ("stepscope/dropped/datagrams", "UDP lost datagrams between the client and the hub"),
        ("stepscope/dropped/unsent_datagrams", "the client dropped datagrams because its socket was full"),
    ],
)
def test_the_cause_is_that_of_the_reason(key: str, cause: str) -> None:
    """A counter above zero is one finding, with what to do about it."""
    detector = LostRecords(RunState())
    assert detector.watches(key)
    assert detector.take(0, key, 5, 1, 0.0) is None
    found = detector.take(0, key, 5, 1, 3.0)
    assert found is not None
    assert (found.cause, found.step, bool(found.advice)) == (cause, 5, True)
    assert detector.take(0, key, 6, 2, 3.0) is None


def test_all_reasons_are_counted() -> None:
    """The finding has every reason with its newest count, the most frequent first, and stays one finding."""
    detector = LostRecords(RunState())
    first = detector.take(0, "stepscope/rejected/value/str", 5, 1, 3.0)
    detector.take(0, "stepscope/rejected/value/int too large", 5, 1, 4.0)
    last = detector.take(0, "stepscope/rejected/value/str", 9, 2, 7.0)
    assert first is not None
    assert last is not None
    assert first.text == "3 values were rejected on rank 0 (value/str)"
    assert last.text == "11 values were rejected on rank 0 (7 value/str, 4 value/int too large)"
    assert (last.identity, last.value) == (first.identity, 11.0)


def test_many_reasons_are_named_in_part() -> None:
    """The text names the most frequent reasons and how many more there are."""
    detector = LostRecords(RunState())
    found = [detector.take(0, f"stepscope/rejected/value/{at}", 5, 1, 100.0 - at) for at in range(20)][-1]
    assert found is not None
    assert "100 value/0" in found.text
    assert "93 value/7, 1038 for 12 more reasons)" in found.text


def test_each_rank_outcome_and_attempt_has_its_own() -> None:
    """Counts of another rank, of what was dropped, or of an earlier attempt are not added."""
    run = RunState()
    detector = LostRecords(run)
    detector.take(0, "stepscope/rejected/value/str", 5, 1, 3.0)
    run.attempt = 2
    again = detector.take(0, "stepscope/rejected/value/str", 5, 1, 3.0)
    dropped = detector.take(0, "stepscope/dropped/metric/disk", 5, 1, 1.0)
    other = detector.take(1, "stepscope/rejected/value/str", 5, 1, 2.0)
    assert [each and each.value for each in (again, dropped, other)] == [3.0, 1.0, 2.0]
    assert dropped is not None
    assert dropped.text == "1 record was dropped on rank 0 (metric/disk)"
