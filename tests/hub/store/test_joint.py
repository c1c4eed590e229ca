"""Callers who wait at the same time share a commit."""

import threading
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest

from stepscope.hub.store.joint import Joint
from stepscope.hub.store.write.commit import Outcome
from stepscope.model.errors import Reject, Retry
from stepscope.model.ports import Batch
from stepscope.testing.stores import writer

WRITER = writer("joint")


def test_batches_that_wait_share_a_commit() -> None:
    """While one commit runs the others gather; each caller gets its own outcome."""
    groups: list[list[int]] = []
    running, go_on = threading.Event(), threading.Event()

    def write_many(batches: Sequence[Batch]) -> list[Outcome]:
        groups.append([batch.seq for batch in batches])
        if len(groups) == 1:
            running.set()
            assert go_on.wait(10)
        return [Reject("bad", [0]) if batch.seq == 3 else None for batch in batches]

    joint = Joint(write_many, pace=0)
    outcomes: dict[int, object] = {}

    def call(seq: int) -> None:
        try:
            joint(Batch(WRITER, seq, []))
            outcomes[seq] = None
        except Reject as refusal:
            outcomes[seq] = refusal.where

    threads = [threading.Thread(target=call, args=(seq,)) for seq in range(6)]
    threads[0].start()
    assert running.wait(10)
    for thread in threads[1:]:
        thread.start()
    while len(joint._queue) < 5:
        pass
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert groups[0] == [0]
    assert sorted(groups[1]) == [1, 2, 3, 4, 5]
    assert outcomes == {0: None, 1: None, 2: None, 3: (0,), 4: None, 5: None}


def test_commits_keep_their_pace() -> None:
    """One begins no sooner after the other than the pace."""
    began: list[float] = []

    def write_many(batches: Sequence[Batch]) -> list[Outcome]:
        began.append(time.monotonic())
        return [None] * len(batches)

    joint = Joint(write_many, pace=0.02)
    for seq in range(3):
        joint(Batch(WRITER, seq, []))
    assert all(later - earlier >= 0.02 for earlier, later in pairwise(began))


def test_refusals_and_errors_reach_the_caller() -> None:
    """A Retry is raised, and so is what should not happen; the next call works."""
    answers: list[object] = [[Retry("full")], RuntimeError("bug"), [None]]

    def write_many(batches: Sequence[Batch]) -> list[Outcome]:
        answer = answers.pop(0)
        if isinstance(answer, RuntimeError):
            raise answer
        return answer  # type: ignore[return-value]

    joint = Joint(write_many, pace=0)
    with pytest.raises(Retry, match="full"):
        joint(Batch(WRITER, 0, []))
    with pytest.raises(RuntimeError, match="bug"):
        joint(Batch(WRITER, 0, []))
    joint(Batch(WRITER, 0, []))
