"""A restart is a new attempt of the run; processes of one start agree on it without talking."""

import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.records import Event

Read = Callable[..., Any]

SHORT = """
    import stepscope
    stepscope.init().log({"a": 1.0})
"""
LIVING = """
    import time
    import stepscope
    run = stepscope.init()
    run.log({"a": 1.0})
    run.flush()
    print("up", flush=True)
    time.sleep(600)
"""


def writers(batches: Read) -> list[Writer]:
    """Everyone who wrote, in the order they began."""
    found = {batch.writer.id: batch.writer for batch in batches()}
    return sorted(found.values(), key=lambda writer: writer.wall_ns)


def is_up(program: Any) -> bool:
    """Tell whether a living program has recorded something."""
    return bool((program.place / "out").read_text())


def test_the_same_id_again(python: Callable[..., Any], batches: Read) -> None:
    """Each start with the same run id is the next attempt, by a writer of its own."""
    for _ in range(3):
        assert python(SHORT).returncode == 0
    found = writers(batches)
    assert [writer.attempt for writer in found] == [1, 2, 3]
    assert len({writer.id for writer in found}) == 3


def test_again_in_one_process(python: Callable[..., Any], batches: Read) -> None:
    """Each init in one process is an attempt of its own too, as in a notebook."""
    done = python(
        """
    import stepscope
    for _ in range(4):
        with stepscope.init() as run:
            run.log({"a": 1.0})
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [(writer.attempt, writer.main) for writer in writers(batches)] == [(n, True) for n in range(1, 5)]


def test_killed_and_restarted(start: Any, python: Any, until: Any, batches: Read) -> None:
    """A trainer that was killed a moment ago does not count as living."""
    trainer = start(LIVING)
    until(lambda: is_up(trainer))
    trainer.send(signal.SIGKILL)
    trainer.wait()
    assert python(SHORT).returncode == 0
    assert [(writer.attempt, writer.main) for writer in writers(batches)] == [(1, True), (2, True)]


def test_orphans_are_no_trainer(start: Any, python: Any, until: Any, batches: Read) -> None:
    """Children that outlive a killed trainer do not make its restart part of the old attempt."""
    trainer = start(
        """
    import os, time
    import stepscope
    run = stepscope.init()
    run.flush()
    os.fork()
    run.log({"a": 1.0})
    run.flush()
    print("up", flush=True)
    time.sleep(600)
    """
    )
    until(lambda: (trainer.place / "out").read_text().count("up") == 2)
    trainer.send(signal.SIGKILL)
    trainer.wait()
    assert python(SHORT).returncode == 0
    found = Counter((writer.attempt, writer.main) for writer in writers(batches))
    assert found == {(1, True): 1, (1, False): 1, (2, True): 1}


def test_a_sibling_joins(start: Any, python: Any, until: Any, batches: Read, records: Read) -> None:
    """A second process started while the first lives writes to the same attempt, and its end is not the run's."""
    trainer = start(LIVING)
    until(lambda: is_up(trainer))
    assert python(SHORT).returncode == 0
    assert [(writer.attempt, writer.main) for writer in writers(batches)] == [(1, True), (1, False)]
    assert [event for event in records(Event) if event.name == names.EVENT_FINISHED] == []


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "finished"])
def test_ranks_restart_together(start: Any, until: Any, batches: Read, kill: bool) -> None:
    """Ranks that restart at the same moment agree on the attempt."""
    for _ in range(3):
        ranks = [start(LIVING, env={"RANK": str(rank), "WORLD_SIZE": "2"}) for rank in range(2)]
        until(lambda ranks=ranks: all(map(is_up, ranks)))
        for program in ranks:
            program.send(signal.SIGKILL if kill else signal.SIGINT)
        for program in ranks:
            program.wait()
    found = Counter((writer.rank, writer.attempt) for writer in writers(batches))
    assert found == {(rank, attempt): 1 for rank in range(2) for attempt in (1, 2, 3)}


def test_forked_at_once(python: Any, batches: Read, until: Any) -> None:
    """Children forked before anything was written, in a run with earlier attempts, agree with their parent."""
    for _ in range(6):
        done = python(
            """
        import os
        import stepscope
        run = stepscope.init(flush_interval=0.01)
        for _ in range(3):
            os.fork()
        run.log({"a": 1.0})
        """
        )
        assert (done.returncode, done.stderr) == (0, "")
    until(lambda: len(writers(batches)) == 48)  # a child may end after its parent
    found = writers(batches)
    attempts = Counter(writer.attempt for writer in found)
    assert attempts == dict.fromkeys(range(1, 7), 8)
    assert all(sum(w.main for w in found if w.attempt == attempt) == 1 for attempt in attempts)
