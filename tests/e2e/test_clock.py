"""Clocks: times are the machine's, durations never run backwards, and a jump is noted."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.model.records import Event, Metric, Span

Python = Callable[..., Any]
Read = Callable[..., Any]


def test_times_are_in_order(python: Python, records: Read, batches: Read) -> None:
    """Records of one thread are in the order of their times, within the life of the process; spans fit parents."""
    before = time.time_ns()
    done = python(
        """
    import stepscope

    run = stepscope.init()
    for index in range(500):
        with run.step(index), run.span("inner"):
            run.log({"a": index})
    """
    )
    after = time.time_ns()
    assert (done.returncode, done.stderr) == (0, "")
    times = [metric.time for metric in records(Metric) if "a" in metric.values]
    assert times == sorted(times)
    assert before < times[0]
    assert times[-1] < after
    spans = {span.span_id: span for span in records(Span)}
    for span in spans.values():
        assert span.duration is not None
        assert span.duration >= 0
        if span.parent_id is not None:
            parent = spans[span.parent_id]
            assert parent.time <= span.time
            assert span.duration <= parent.duration
    writer = batches()[0].writer
    assert before < writer.wall_ns < after
    assert 0 < writer.monotonic_ns < time.monotonic_ns()


def test_ranks_share_a_time_line(start: Any, records: Read) -> None:
    """What two processes log in turn, each waiting for the other, is in that order by its times."""
    source = """
        import os, sys, time
        import stepscope

        rank = int(os.environ["RANK"])
        run = stepscope.init()
        for turn in range(20):
            while turn and not os.path.exists(f"../turn{turn - 1}.{1 - rank if rank else 1}"):
                time.sleep(0.001)
            if rank == 1:
                while not os.path.exists(f"../turn{turn}.0"):
                    time.sleep(0.001)
            run.log({"turn": 2 * turn + rank})
            open(f"../turn{turn}.{rank}", "w").close()
    """
    ranks = [start(source, env={"RANK": str(rank), "WORLD_SIZE": "2"}) for rank in range(2)]
    for program in ranks:
        done = program.wait()
        assert (done.returncode, done.stderr) == (0, "")
    turns = sorted((r.time, r.values["turn"]) for r in records(Metric) if "turn" in r.values)
    assert [turn for _, turn in turns] == list(range(40))


def test_a_jump_is_noted(python: Python, records: Read) -> None:
    """A process whose clocks move against each other says so once, and its spans keep their true length."""
    if os.geteuid() != 0:
        pytest.skip("a time namespace, where clocks can be moved, needs root")
    if not os.path.exists("/proc/self/timens_offsets"):
        pytest.skip("this kernel has no time namespaces")
    done = python(
        """
    import ctypes, os
    import stepscope

    run = stepscope.init()
    run.flush()
    if ctypes.CDLL(None, use_errno=True).unshare(0x80) != 0:
        raise SystemExit("no time namespace: " + os.strerror(ctypes.get_errno()))
    with open("/proc/self/timens_offsets", "w") as offsets:
        offsets.write("monotonic 1000 0\\n")
    if os.fork() == 0:
        with run.span("in the child"):
            run.log({"a": 1.0})
        run.finish()
        os._exit(0)
    os.wait()
    """
    )
    if "no time namespace" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stderr) == (0, "")
    (jump,) = [event for event in records(Event) if event.name == "stepscope.clock_jump"]
    assert abs(jump.attrs["seconds"] + 1000) < 5
    (span,) = [span for span in records(Span) if span.name == "in the child"]
    assert 0 <= span.duration < 1e9
