"""Diagnosis of real trainings: torch on the processor, a hung collective, a killed rank, DDP in four processes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.zoo import real_ddp, real_ranks
from benchmarks.zoo.real import REAL, diagnosed, is_named
from tests.late import late

torch = late("torch")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Torch computes in one thread: for matrices of this size a second one costs more than it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", REAL)
def test_a_real_training_is_diagnosed(name: str) -> None:
    """What goes wrong is named near its step; a healthy training is left alone."""
    found = diagnosed(REAL[name].train)
    assert is_named(REAL[name], found), found


def test_a_hung_collective_is_named() -> None:
    """Of three ranks in a real all-reduce, the one that never joins is named, where it is, and who waits."""
    found = [each for each in real_ranks.find("hang", "hang") if each.kind == "hang"]
    assert [(each.ranks, each.span) for each in found] == [((real_ranks.FAULTY,), "all_reduce")]
    assert "ranks 0, 2 waiting in all_reduce, rank 1 never arrived (in train.data_load" in found[0].text
    assert abs((found[0].step or 0) - real_ranks.AT) <= 2


def test_a_killed_rank_is_named() -> None:
    """A rank that is killed is named with its step; the ranks that wait for it are not."""
    found = [each for each in real_ranks.find("kill", "dead_rank") if each.severity == "FATAL"]
    assert [(each.kind, each.ranks) for each in found] == [("dead_rank", (real_ranks.FAULTY,))]
    assert abs((found[0].step or 0) - real_ranks.AT) <= 2


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> str:
    """What became of the DDP cases that are tested here, which ran beside each other: most of them wait."""
    here = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    tested = {item.callspec.params.get("case") for item in here}
    cases = [name for name in real_ddp.CASES if name in tested]
    # Another process, because the ranks are forked from one in which torch has not computed yet.
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.zoo.real_ddp", "--at-once", "4", *cases],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("case", real_ddp.CASES)
def test_a_fault_of_ddp_is_named(case: str, outcomes: str) -> None:
    """Kind, rank and cause are right while it happens and afterwards, without a span by the user."""
    assert f"\n{case}: right after " in f"\n{outcomes}", outcomes
