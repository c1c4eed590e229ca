"""SIGTERM: ignored unless asked for; then the run ends as preempted, and the earlier signal handler is called next."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.model import names
from stepscope.model.records import Event, Metric

Read = Callable[..., Any]

TRAINER = """
    import atexit, os, signal, sys
    import stepscope

    {before}
    run = stepscope.init(sigterm={asked}, exit_timeout=30)
    index = 0
    atexit.register(lambda: print("last", index))
    print("up", flush=True)
    while index < 2000000 and not os.path.exists("stop"):
        run.log({{"index": index}}, step=index)
        index += 1
"""


def endings(records: Read) -> list[str]:
    """How the run says it ended."""
    return [event.attrs["status"] for event in records(Event) if event.name == names.EVENT_FINISHED]


def begin(start: Any, until: Any, *, before: str = "pass", asked: bool = True) -> Any:
    """Start a trainer and wait until it trains."""
    program = start(TRAINER.format(before=before, asked=asked))
    until(lambda: (program.place / "out").read_text())
    return program


def test_not_asked_for(start: Any, until: Any, records: Read) -> None:
    """Without the setting SIGTERM kills the process as usual, and the run has no exit record."""
    trainer = begin(start, until, asked=False)
    until(lambda: records(Metric))
    trainer.send(signal.SIGTERM)
    done = trainer.wait(300)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
    assert endings(records) == []


def test_preempted(start: Any, until: Any, records: Read) -> None:
    """With the setting the run ends as preempted, with everything logged so far, and dies of the signal."""
    for _ in range(5):
        trainer = begin(start, until)
        trainer.send(signal.SIGTERM)
        done = trainer.wait(300)
        assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
    assert endings(records) == ["preempted"] * 5


@pytest.mark.parametrize(
    ("before", "code", "printed"),
    [
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))", 9, "last"),
        ("signal.signal(signal.SIGTERM, lambda *_: (print('theirs', flush=True), open('stop', 'w')))", 0, "theirs"),
    ],
    ids=["theirs exits", "theirs goes on"],
)
def test_chained(start: Any, until: Any, records: Read, before: str, code: int, printed: str) -> None:
    """A handler that was there before decides what happens next; the run stays preempted."""
    trainer = begin(start, until, before=before)
    trainer.send(signal.SIGTERM)
    done = trainer.wait(300)
    assert (done.returncode, done.stderr) == (code, "")
    assert printed in done.stdout
    assert endings(records) == ["preempted"]
    last = int(done.stdout.split()[-1])
    recorded = len([record for record in records(Metric) if "index" in record.values])
    assert recorded in (last, last + 1)  # the signal may come between a call of `log` and the next line


def test_other_threads_log_on(start: Any, until: Any, records: Read) -> None:
    """Threads that log at full speed do not delay the end."""
    program = start(
        """
    import threading, time
    import stepscope

    run = stepscope.init(sigterm=True, exit_timeout=30)

    def fire():
        while True:
            run.log({"a": 1.0})

    for _ in range(2):
        threading.Thread(target=fire, daemon=True).start()
    print("up", flush=True)
    time.sleep(60)
    """
    )
    until(lambda: (program.place / "out").read_text())
    program.send(signal.SIGTERM)
    assert program.wait(300).returncode == -signal.SIGTERM
    assert endings(records) == ["preempted"]


def test_ignored_before(start: Any, until: Any, records: Read) -> None:
    """If SIGTERM was ignored, the process continues, and the run is recorded as preempted."""
    trainer = begin(start, until, before="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    trainer.send(signal.SIGTERM)
    until(lambda: endings(records))
    assert trainer.process.poll() is None
    (trainer.place / "stop").touch()
    assert trainer.wait(300).returncode == 0
    assert endings(records) == ["preempted"]


def test_a_pool_is_ended_at_once(python: Any, records: Read) -> None:
    """Children that get SIGTERM from their pool do not keep it waiting, and do not end the run."""
    done = python(
        """
    import multiprocessing, time
    import stepscope

    def work(index):
        stepscope.log({"index": index}, step=index)

    run = stepscope.init(sigterm=True, exit_timeout=30)
    began = time.monotonic()
    for _ in range(10):
        with multiprocessing.get_context("fork").Pool(3) as pool:
            pool.map(abs, range(100))
    with multiprocessing.get_context("fork").Pool(3) as pool:
        pool.map(work, range(100))
        pool.close()
        pool.join()
    assert time.monotonic() - began < 20
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert endings(records) == ["finished"]
    assert sorted(r.step for r in records(Metric) if "index" in r.values) == list(range(100))


def test_a_hung_disk(start: Any, until: Any, hung_disk: Any) -> None:
    """With a disk that never answers the process dies of SIGTERM within the exit timeout."""
    program = start(
        """
    import time
    import stepscope
    run = stepscope.init(sigterm=True, exit_timeout=0.5)
    run.log({"a": 1.0})
    print("up", flush=True)
    time.sleep(60)
    """,
        env={"STEPSCOPE_HOME": str(hung_disk / "home")},
    )
    until(lambda: (program.place / "out").read_text())
    program.send(signal.SIGTERM)
    assert program.wait(300).returncode == -signal.SIGTERM


def test_a_signal_handler_that_logs(python: Any, records: Read) -> None:
    """A program whose own signal handlers log, at any moment of the loop, never waits for itself."""
    done = python(
        """
    import os, signal
    import stepscope

    run = stepscope.init(memory_quota="64KiB")
    signals = 0

    def on_alarm(number, frame):
        global signals
        signals += 1
        with run.span("alarm"):
            run.log({"signal": signals, "text": "refused"}, step=signals)

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    for index in range(150_000):
        run.log({"index": index}, step=index)
        if index % 50 == 0:
            run.log({"text": "refused"}, step=index)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(signals)
    """,
        timeout=300,
    )
    assert done.returncode == 0
    assert int(done.stdout) > 100
