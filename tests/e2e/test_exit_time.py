"""The end of a program: in time, with its own exit code, the right status, and nothing of ours on the screen."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.model import names
from stepscope.model.records import Event, Metric

Python = Callable[..., Any]
Read = Callable[..., Any]

# The way out, the exit code, the run's status (None: nobody could say), and what the last event before the end is.
WAYS = {
    "the last line": ("pass", 0, "finished", None),
    "finish": ("run.finish()", 0, "finished", None),
    "finish as failed": ("run.finish('failed')", 0, "failed", None),
    "sys.exit": ("sys.exit()", 0, "finished", None),
    "sys.exit 0": ("sys.exit(0)", 0, "finished", None),
    "sys.exit 3": ("sys.exit(3)", 3, "failed", {"status": "3"}),
    "an exception": ("raise ValueError('shape')", 1, "failed", {"exception.type": "ValueError"}),
    "an exception in a step": (
        "with run.step(1): raise ValueError('shape')",
        1,
        "failed",
        {"exception.type": "ValueError"},
    ),
    "SIGINT": (
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)",
        -signal.SIGINT,
        "failed",
        {"exception.type": "KeyboardInterrupt"},
    ),
    "os._exit": ("run.flush(300); os._exit(4)", 4, None, None),
    "SIGTERM": ("run.flush(300); os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, None, None),
    "SIGKILL": ("run.flush(300); os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, None, None),
    "abort": ("run.flush(300); os.abort()", -signal.SIGABRT, None, None),
}
PROGRAM = """
    import os, signal, sys, time
    import stepscope

    run = stepscope.init(exit_timeout=0.5)
    for index in range(100):
        run.log({{"index": index}}, step=index)
    print(time.monotonic_ns(), flush=True)
    {way}
"""


def endings(records: Read) -> list[str]:
    """How the run says it ended."""
    return [event.attrs["status"] for event in records(Event) if event.name == names.EVENT_FINISHED]


def ended_late(start: Any, way: str, done: list[Any], env: dict[str, Any]) -> float:
    """How many seconds later a program ended than one that records nothing, which this machine ends just as slowly."""
    done.append(start(PROGRAM.format(way=way), env=env).wait(300))
    ended = time.monotonic_ns()
    plain = start(PROGRAM.format(way=way), env={"STEPSCOPE_DISABLED": "1"}).wait(300)
    without = time.monotonic_ns() - int(plain.stdout)
    return (ended - int(done[-1].stdout) - without) / 1e9


def end_in_time(start: Any, way: str, env: dict[str, Any]) -> list[Any]:
    """Let a program end within its timeout and half a second: once in many tries, since others use the machine too."""
    done: list[Any] = []
    assert any(ended_late(start, way, done, env) < 0.5 + 0.5 for _ in range(20))
    return done


@pytest.mark.parametrize("way", WAYS)
def test_ways_out(python: Python, records: Read, way: str) -> None:
    """Whatever way a program ends, all it logged is there, with its exit code, status and reason, and no noise."""
    line, code, status, reason = WAYS[way]
    done = python(PROGRAM.format(way=line))
    assert done.returncode == code, done.stderr
    assert [record.step for record in records(Metric) if "index" in record.values] == list(range(100))
    assert endings(records) == ([] if status is None else [status])
    noted = [event for event in records(Event) if event.name in ("exit", names.EVENT_EXCEPTION)]
    assert len(noted) == (reason is not None)
    assert all(event.attrs[key] == value for event in noted for key, value in (reason or {}).items())
    if reason and "exception.type" in reason:
        assert done.stderr.count("Traceback") == 1
        assert "stepscope/sdk" not in done.stderr
        assert "program.py" in noted[0].attrs["exception.stacktrace"]
    else:
        assert done.stderr == ""


GOES_ON = {
    "threads that Python waits for": (
        "late = lambda: (threading.main_thread().join(), run.log({'after': 1})); "
        "threading.Thread(target=late).start(); raise ValueError('shape')",
        1,
        "failed",
        True,
    ),
    "a hook called to print": (
        "error = ValueError('shape'); sys.excepthook(ValueError, error, None); run.log({'after': 1})",
        0,
        "finished",
        False,
    ),
    "a prompt": (
        "sys.ps1, prompt = '> ', code.InteractiveConsole({'run': run}); "
        "prompt.push('undefined'); prompt.push('run.log(dict(after=1))')",
        0,
        "finished",
        False,
    ),
}


@pytest.mark.parametrize("way", GOES_ON)
def test_an_exception_after_which_the_program_goes_on(python: Python, records: Read, way: str) -> None:
    """The exception is recorded, and so is what comes after it; the run ends when its program does."""
    line, code, status, uncaught = GOES_ON[way]
    done = python(PROGRAM.format(way=f"import code, threading; {line}"))
    assert done.returncode == code, done.stderr
    assert [record.step for record in records(Metric) if "after" in record.values] != []
    assert [event.attrs["uncaught"] for event in records(Event) if event.name == names.EVENT_EXCEPTION] == [uncaught]
    assert endings(records) == [status]


@pytest.mark.parametrize("again", ["run.finish()", "pass"])
def test_a_finish_that_ctrl_c_interrupts(python: Python, records: Read, again: str) -> None:
    """Ctrl-C during `finish` reaches the program, and the run ends with the next call or with the program."""
    interrupt = "run.on_finish(lambda: signal.raise_signal(signal.SIGINT))"
    caught = "try: run.finish('preempted')\n    except KeyboardInterrupt: print('caught', flush=True)"
    done = python(
        PROGRAM.format(
            way=f"signal.signal(signal.SIGINT, signal.default_int_handler); {interrupt}\n    {caught}\n    {again}"
        )
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("caught\n")
    assert endings(records) == ["preempted"]


def test_sys_exit_with_a_text(python: Python, records: Read) -> None:
    """The text given to sys.exit is printed by Python, once, and is the reason of the failure."""
    done = python(PROGRAM.format(way="sys.exit('no data')"))
    assert (done.returncode, done.stderr) == (1, "no data\n")
    assert endings(records) == ["failed"]
    assert [event.attrs for event in records(Event) if event.name == "exit"] == [{"status": "no data"}]


@pytest.mark.parametrize("way", WAYS)
def test_a_disk_that_hangs(start: Any, hung_disk: Any, way: str) -> None:
    """With a disk that never answers the program ends within its exit timeout, with the same exit code."""
    line, code, _, _ = WAYS[way]
    line = line.replace("run.flush(300)", "run.flush(0.2)")
    for done in end_in_time(start, line, {"STEPSCOPE_HOME": str(hung_disk / "home")}):
        assert done.returncode == code, done.stderr
        assert "stepscope/" not in done.stderr


@pytest.mark.parametrize("disk", ["healthy", "hung"])
def test_with_everything_on(start: Any, request: pytest.FixtureRequest, home: Any, disk: str) -> None:
    """With probes, logs and OpenTelemetry, as by default, the end comes as fast and as quietly."""
    place = home if disk == "healthy" else request.getfixturevalue("hung_disk") / "home"
    for done in end_in_time(start, "pass", {"STEPSCOPE_HOME": str(place), "STEPSCOPE_PROBES": None}):
        assert (done.returncode, done.stderr) == (0, "")


def test_a_second_finish_does_not_wait(python: Python, hung_disk: Any) -> None:
    """Finish waits for a hung disk once and says so; flush and the end of the program add nothing."""
    done = python(
        """
    import time
    import stepscope
    run = stepscope.init(exit_timeout=0.5)
    run.log({"a": 1.0})
    began = time.monotonic()
    assert not run.flush(0.2) and not run.finish()
    run.finish()
    stepscope.finish()
    assert 0.6 < time.monotonic() - began < 5
    """,
        env={"STEPSCOPE_HOME": str(hung_disk / "home")},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_during_the_end(python: Python, records: Read) -> None:
    """Daemon threads that log while the interpreter goes down make no noise and no crash."""
    done = python(
        """
    import threading
    import stepscope

    run = stepscope.init()

    def fire():
        index = 0
        while True:
            with run.step(index), run.span("shot"):
                run.log({"index": index, "text": "refused"})
                stepscope.event("shot", {"index": index})
            index += 1

    for _ in range(4):
        threading.Thread(target=fire, daemon=True).start()
    while not run.outcomes.snapshot().get("written/metric"):
        pass
    """
    )
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if "was rejected (string)" not in line] == []
    assert endings(records) == ["finished"]


def test_threads_that_end_later(python: Python, records: Read) -> None:
    """What threads and exit functions log after the last line of the program is recorded too."""
    done = python(
        """
    import atexit, threading
    import stepscope

    run = stepscope.init()
    atexit.register(lambda: run.log({"at exit": 1.0}))

    def late():
        threading.main_thread().join()
        run.log({"late": 1.0})

    threading.Thread(target=late).start()
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = {key for record in records(Metric) for key in record.values}
    assert {"late", "at exit"} <= found
    assert endings(records) == ["finished"]


def test_hooks_of_others_are_called(python: Python, records: Read) -> None:
    """Hooks that were there before us still run, and after finish everything is as it was."""
    done = python(
        """
    import atexit, sys, threading
    import stepscope

    def hook(kind, error, where):
        print("theirs:", kind.__name__)

    sys.excepthook = hook
    before = (sys.excepthook, sys.exit, threading.excepthook)
    run = stepscope.init()
    run.finish()
    assert (sys.excepthook, sys.exit, threading.excepthook) == before
    stepscope.init()
    raise ValueError
    """
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "theirs: ValueError\n", "")
    assert endings(records) == ["finished", "failed"]


def test_the_end_is_not_slow(python: Python) -> None:
    """A healthy program does not wait for anything at its end: a hundred runs fit into a moment."""
    done = python(
        """
    import stepscope, time
    began = time.monotonic()
    for number in range(100):
        with stepscope.init(run_id=f"run{number}") as run:
            run.log({"a": 1.0})
    print(time.monotonic() - began)
    """
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 100 * 0.05


def test_killed_while_it_ends(start: Any, until: Any, hung_disk: Any) -> None:
    """A program that waits for a hung disk at its end can be interrupted with Ctrl-C."""
    program = start(
        """
    import stepscope
    run = stepscope.init(exit_timeout=600)
    run.log({"a": 1.0})
    print("leaving", flush=True)
    """,
        env={"STEPSCOPE_HOME": str(hung_disk / "home")},
    )
    until(lambda: (program.place / "out").read_text())
    deadline = time.monotonic() + 300
    while program.process.poll() is None and time.monotonic() < deadline:
        os.kill(program.pid, signal.SIGINT)
        time.sleep(0.05)
    assert program.process.poll() is not None
