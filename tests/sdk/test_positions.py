"""A process that stands still reports where: its stacks, and the collective it is in."""

import sys
import threading
from collections.abc import Callable
from typing import Any

import stepscope
from stepscope.model import names
from stepscope.model.records import Event
from stepscope.sdk import positions

Read = Callable[..., list[Any]]


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def look(watch: positions.Positions, clock: Clock, seconds: int) -> None:
    """Let seconds pass, with a look each second, all from the same line."""
    for _ in range(seconds):
        clock.now += 1.0
        watch()


def reports(records: Read, run: stepscope.Run) -> list[Event]:
    """The reports of a run so far."""
    run.flush()
    return [each for each in records(Event) if each.name == names.EVENT_POSITION]


def test_a_step_that_does_not_end_is_reported_once(run: stepscope.Run, records: Read) -> None:
    """The report has the step, the time, and the line at which the main thread is."""
    clock = Clock()
    watch = positions.Positions(run, clock)
    with run.step(7):
        look(watch, clock, 30)
        (found,) = [each for each in reports(records, run) if "look" in each.attrs["stack"]]
    assert found.step == 7
    assert found.attrs["seconds"] >= positions.MIN_SECONDS
    assert found.attrs["stack"].splitlines()[-1].endswith("__call__")
    assert "test_positions.py" in found.attrs["stack"]


def test_steps_that_are_always_long_are_reported_only_when_longer(run: stepscope.Run, records: Read) -> None:
    """A step that takes twice as long as any before is worth a report, one that takes as long is not."""
    clock = Clock()
    watch = positions.Positions(run, clock)
    for step in range(5):
        with run.step(step):
            look(watch, clock, 10)
    seen = {each.step for each in reports(records, run)}
    assert seen == {0}
    with run.step(5):
        look(watch, clock, 70)
    assert {each.step for each in reports(records, run)} == {0, 5}


def test_a_program_without_steps_is_left_alone(run: stepscope.Run, records: Read) -> None:
    """A server that waits for requests does not hang."""
    clock = Clock()
    look(positions.Positions(run, clock), clock, 100)
    assert reports(records, run) == []


def test_other_threads_are_in_the_report(run: stepscope.Run, records: Read) -> None:
    """The thread that holds what the main thread waits for is there by name, and ours are not."""
    clock, done = Clock(), threading.Event()
    thread = threading.Thread(target=done.wait, name="feeder")
    thread.start()
    with run.step(1):
        look(positions.Positions(run, clock), clock, 10)
    done.set()
    thread.join()
    threads = reports(records, run)[0].attrs["threads"]
    assert "feeder" in threads
    assert not any(name.startswith("stepscope") for name in threads)


def test_the_collective_of_a_stack() -> None:
    """The name, size and type of the collective are read from the frame of torch.distributed."""
    library = {"sys": sys, "collective_of": positions.collective_of}
    code = compile(
        "def all_reduce(tensor):\n    return collective_of(sys._getframe())\n", "/x/distributed_c10d.py", "exec"
    )
    exec(code, library)

    class Tensor:
        dtype = "torch.float32"

        def numel(self) -> int:
            return 12

    assert library["all_reduce"](Tensor()) == {"name": "all_reduce", "numel": 12, "dtype": "float32"}  # type: ignore[operator]
    assert positions.collective_of(sys._getframe()) == {}
