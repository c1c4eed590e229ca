"""A hang: who waits and who is missing is reported once the position of the ranks is known."""

from typing import Any

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model import names
from stepscope.model.records import Event, Metric, Record, Span

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


def standing(
    made: Diagnosis,
    rank: int,
    stack: str,
    begun: int,
    collective: str = "",
    numel: int = 10,
    dtype: str = "float32",
) -> None:
    """A rank reports where it stands still."""
    attrs: dict[str, Any] = {"stack": stack, "groups": {"0": {"begun": begun, "size": 3}}, "seconds": 2.0}
    if collective:
        attrs["collective"] = {"name": collective, "numel": numel, "dtype": dtype}
    made.feed(rank, Event(HUNG + 3 * SECOND, STEPS, None, None, None, 9, names.EVENT_POSITION, attrs))


BACKWARD = "/home/me/train.py:40 main\n/usr/lib/python3.11/site-packages/torch/autograd/graph.py:9 _engine_run_backward"


def test_the_rank_outside_the_backward_pass_is_missing() -> None:
    """Without any span, the stacks tell who waits in the backward pass and who never came there, and at which line."""
    made = running()
    for rank in (0, 2):
        standing(made, rank, BACKWARD, 42)
    standing(made, 1, "/home/me/train.py:33 main\n/home/me/data.py:12 load", 41)
    (found,) = hangs(made, 6.0)
    assert found.ranks == (1,)
    assert "ranks 0, 2 waiting in backward, rank 1 never arrived (at data.py:12 in load)" in found.text
    assert found.symptoms[0] == "rank 1: train.py:33 main > data.py:12 load"
    assert found.symptoms[1].startswith("ranks 0, 2: ")


def test_the_rank_that_began_fewer_collectives_is_missing() -> None:
    """When all ranks are in a collective, the one that has begun fewer is a collective behind."""
    made = running()
    for rank in (0, 2):
        standing(made, rank, BACKWARD, 42, "all_reduce")
    standing(made, 1, BACKWARD, 41, "all_reduce")
    (found,) = hangs(made, 6.0)
    assert found.ranks == (1,)


@pytest.mark.parametrize(("collective", "numel", "dtype", "text"), [
    ("broadcast", 10, "float32", "rank 1 in broadcast of 10 float32, ranks 0, 2 in all_reduce of 10 float32"),
    ("all_reduce", 12, "float32", "rank 1 in all_reduce of 12 float32, ranks 0, 2 in all_reduce of 10 float32"),
    ("all_reduce", 10, "float16", "rank 1 in all_reduce of 10 float16, ranks 0, 2 in all_reduce of 10 float32"),
])  # fmt: skip
def test_collectives_that_do_not_match(collective: str, numel: int, dtype: str, text: str) -> None:
    """The rank whose collective differs from that of the others, in kind, size or type, is named, with both."""
    made = running()
    for rank in (0, 2):
        standing(made, rank, BACKWARD, 42, "all_reduce")
    standing(made, 1, BACKWARD, 42, collective, numel, dtype)
    made.tick(HUNG + 6 * SECOND)
    (found,) = made.findings()
    assert (found.kind, found.ranks) == ("collective_mismatch", (1,))
    assert text in found.text


def test_a_rank_that_reports_nothing_is_said_to() -> None:
    """A stopped process leaves no stack and no heartbeat."""
    made = running()
    for rank in (0, 2):
        standing(made, rank, BACKWARD, 42)
    (found,) = hangs(made, 9.0)
    assert found.ranks == (1,)
    assert "rank 1 never arrived (it reports nothing: stopped, or its machine is unreachable)" in found.text


def goes_on(made: Diagnosis, seconds: float) -> None:
    """The open spans end so long after the last step, and the next steps are taken."""
    end = HUNG + int(seconds * SECOND)
    for rank, name in enumerate(("all_reduce", "data_load", "all_reduce")):
        made.feed(rank, Span(HUNG, end - HUNG, STEPS, None, bytes(16), bytes([9, rank]) * 4, None, name))
    for step in range(STEPS, STEPS + 20):
        for rank in range(3):
            id = bytes([rank + 1]) + step.to_bytes(7, "big")
            began = HUNG if step == STEPS else end + (step - STEPS) * SECOND // 10
            took = end - HUNG if step == STEPS else SECOND // 11
            made.feed(rank, Span(began, took, step, None, bytes(16), id, None, "train.step"))


@pytest.mark.parametrize(("lasted", "left"), [(6.0, []), (600.0, ["WARN"])])
def test_a_hang_after_which_training_goes_on_is_no_longer_fatal(lasted: float, left: list[str]) -> None:
    """A short one is withdrawn, a long one is reported with how long it lasted; until then it is fatal."""
    made = running()
    for rank, name in enumerate(("all_reduce", "data_load", "all_reduce")):
        stuck(made, rank, name)
    assert [each.severity for each in hangs(made, 4.0)] == ["FATAL"]
    goes_on(made, lasted)
    found = hangs(made, lasted + 2.2)
    assert [each.severity for each in found] == left
    assert all("stood still for 10m" in each.text for each in found)


def test_a_hang_that_an_exception_ends_stays() -> None:
    """Spans that end because the process gives up are no progress."""
    made = running()
    for rank, name in enumerate(("all_reduce", "data_load", "all_reduce")):
        stuck(made, rank, name)
    hangs(made, 4.0)
    end = HUNG + 600 * SECOND
    for rank in range(3):
        made.feed(rank, Span(HUNG, end - HUNG, STEPS, None, bytes(16), bytes([9, rank]) * 4, None, "all_reduce"))
    assert [each.severity for each in hangs(made, 605.0)] == ["FATAL"]


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ([], True),
        ([Metric(30 * 10**9, 0, None, None, {"loss": 1.0})], False),
        ([Metric(30 * 10**9, None, None, None, {"requests": 1.0})], False),
    ],
    ids=["nothing", "a step", "no loop"],
)
def test_a_first_step_that_never_comes_is_named(records: list[Record], named: bool) -> None:
    """Twenty minutes after the start without a step, unless it records values that belong to no step."""
    made = Diagnosis()
    made.feed(0, Event(10**9, None, None, None, None, 9, names.EVENT_STARTED, {}))
    for record in records:
        made.feed(0, record)
    made.tick(600 * 10**9)
    assert made.findings() == []
    made.tick(1300 * 10**9)
    made.tick(1400 * 10**9)
    assert [each.kind for each in made.findings()] == (["no_first_step"] if named else [])
