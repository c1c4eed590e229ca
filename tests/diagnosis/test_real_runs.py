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


@pytest.mark.parametrize("name", real_ddp.CASES)
def test_a_fault_of_ddp_is_named(name: str) -> None:
    """Kind, rank and cause are right while it happens and afterwards, without a span by the user."""
    root = Path(__file__).parents[2]
    # Another process, because the ranks are forked from one in which torch has not computed yet.
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.zoo.real_ddp", name], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
