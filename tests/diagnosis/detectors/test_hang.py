"""A hang: who waits and who is missing is reported once the position of the ranks is known."""

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Span

SECOND = 10**9
STEPS = 40
HUNG = STEPS * SECOND // 10


def running() -> Diagnosis:
    """Three ranks that have taken some steps of a tenth of a second."""
    made = Diagnosis(world=3)
    for step in range(STEPS):
        for rank in range(3):
            id = bytes([rank + 1]) + step.to_bytes(7, "big")
            began = step * SECOND // 10
            made.feed(rank, Span(began, SECOND // 11, step, None, bytes(16), id, None, "train.step"))
    return made


def stuck(made: Diagnosis, rank: int, name: str) -> None:
    """A rank reports that it has been in a span for a while."""
    made.feed(rank, Span(HUNG, None, STEPS, None, bytes(16), bytes([9, rank]) * 4, None, name))


def hangs(made: Diagnosis, seconds: float) -> list[Finding]:
    """What is known of hangs so long after the last step."""
    made.tick(HUNG + int(seconds * SECOND))
    return [each for each in made.findings() if each.kind == "hang"]


def test_nobody_is_blamed_before_all_ranks_have_reported() -> None:
    """Reports of open spans arrive one after another: the rank that is missing is known when all have come."""
    made = running()
    stuck(made, 1, "data_load")
    assert hangs(made, 2.0) == []
    stuck(made, 0, "all_reduce")
    stuck(made, 2, "all_reduce")
    (found,) = hangs(made, 3.0)
    assert (found.ranks, found.span) == ((1,), "all_reduce")


def test_a_rank_that_reports_nothing_is_not_waited_for_long() -> None:
    """Within ten seconds the missing rank is named, though that rank has no span at all."""
    made = running()
    stuck(made, 0, "all_reduce")
    stuck(made, 2, "all_reduce")
    assert hangs(made, 3.0) == []
    (found,) = hangs(made, 6.0)
    assert found.ranks == (1,)


def test_a_rank_that_reports_late_is_no_longer_blamed() -> None:
    """On a busy machine a report takes longer: when it has come, the one finding names the right rank."""
    made = running()
    stuck(made, 0, "all_reduce")
    (early,) = hangs(made, 6.0)
    assert early.ranks == (1, 2)
    stuck(made, 2, "all_reduce")
    (found,) = hangs(made, 9.0)
    assert found.ranks == (1,)
    stuck(made, 0, "all_reduce")
    assert hangs(made, 12.0) == [found]
