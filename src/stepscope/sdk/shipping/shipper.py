"""Delivery from the trainer's side: request it, keep a shipper process running, or deliver in threads."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stepscope.journal import quarantine
from stepscope.journal.atomic_files import Locked, holder
from stepscope.journal.following import Following
from stepscope.journal.layout import host_name, shipping_folder
from stepscope.model import formatting
from stepscope.sdk.run import Run
from stepscope.sdk.shipping import sink_requests
from stepscope.sdk.shipping.shipper_process import lock_home
from stepscope.sdk.shipping.sink_requests import GIVE_UP_SECONDS
from stepscope.sdk.shipping.sink_worker import COUNT_SECONDS, SinkWorker, counters, stop_all
from stepscope.sinks.registry import Chosen

ENSURE_SECONDS = 5.0
THREAD_BYTES = 4 * 1024
"""Bytes a thread of the trainer reads at a time."""
REFUSALS_SECONDS = 0.5
"""Time limit for counting records in quarantine."""
STOP_SECONDS = 0.05
"""How long to wait for stopped threads; one that is blocked by its sink ends with the process."""
LEAVE_SECONDS = 0.3
"""How long the end of a run waits for sinks in its own process, beyond what is left of its own time limit."""


def begin(run: Run) -> None:
    """Start delivery for a run. Does no I/O: the flusher's thread starts what is needed."""
    remote = tuple(each for each in run.settings.sinks if each.config.remote)
    run.delivery.undelivered = lambda: undelivered(run, remote)
    if remote:
        run.delivery.refusals = lambda: _refusals(run)
        if run.settings.shipper != "none":
            run.delivery.request = lambda: _request(run, remote)
            run.delivery.on_undelivered = lambda left: _announce(run, remote, left)
    near = [each for each in run.settings.sinks if not each.config.remote]
    if run.settings.shipper == "thread":
        near += remote
    if remote and run.settings.shipper == "process":
        call = Call(run, remote)
        run.periodic.collectors.append(call)
        run.finishing.append(call.leave)
    if near:
        threads = _Threads(run, near)
        threads.start()
        run.periodic.collectors.append(threads)
        run.periodic.closing.append(threads.report_counters)
        run.finishing.append(threads.leave)


def _request(run: Run, sinks: Sequence[Chosen]) -> None:
    """Register the sinks of a run; a shipper delivers what a process that was killed could not."""
    server = os.getpid() if run.settings.shipper == "thread" else 0
    try:
        sink_requests.register(run.home, run.id, host_name(), sinks, server=server)
    except OSError as error:
        run.outcomes.notice(
            "shipper",
            "request",
            f"the sinks of this run cannot be noted in {shipping_folder(run.home)} ({error}); "
            "if it is killed, name them: `stepscope ship --sink SINK`",
        )


def _announce(run: Run, sinks: Sequence[Chosen], left: int | None) -> None:
    """Warn that the end of a run leaves something to deliver, and name the process that goes on with it."""
    if run.rank or run.settings.quiet:
        return
    amount = "an unknown amount" if left is None else formatting.size(left)
    names = ", ".join(map(repr, sinks))
    doing = "`stepscope ship` delivers it"
    if run.settings.shipper == "process":
        pid = holder(shipping_folder(run.home) / f"{host_name()}.lock")
        doing = (
            f"a background process{f' (pid {pid})' if pid else ''} goes on with it, for at most "
            f"{GIVE_UP_SECONDS / 3600:g} hours; `stepscope ship --status` shows it"
        )
    run.outcomes.notice_text(f"not delivered yet to {names}: {amount}; {doing}")


def undelivered(run: Run, sinks: Iterable[Chosen]) -> int | None:
    """Return how many bytes of this process's journal the slowest sink lacks; None if unknown. Never raises."""
    pid, host = os.getpid(), host_name()
    try:
        left = [
            Following(
                run.home, each.id, runs=lambda: (run.id,), wanted=lambda name: name.pid == pid and name.host == host
            ).unread()
            for each in sinks
        ]
    except OSError:  # unreadable cursors
        return None
    return max(left, default=0)


def _refusals(run: Run) -> tuple[int, int] | None:
    """Count the records of this process that sinks rejected, and those in quarantine. Never raises."""
    pid, host = os.getpid(), host_name()
    until = time.monotonic() + REFUSALS_SECONDS
    try:
        return quarantine.refusals(
            run.home, run.started, lambda writer: (writer.run, writer.pid, writer.host) == (run.id, pid, host), until
        )
    except OSError:
        return None


class Call:
    """Checks every few seconds that a shipper is running; called by the flusher's thread."""

    def __init__(self, run: Run, sinks: tuple[Chosen, ...], clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._sinks, self._clock = run, sinks, clock
        self._next = float("-inf")
        self._child: subprocess.Popen[bytes] | None = None

    def __call__(self) -> None:
        if self._clock() < self._next or os.getpid() != self._run.pid:
            return
        self._next = self._clock() + ENSURE_SECONDS
        self._ensure()

    def leave(self, deadline: float, patient_until: float) -> None:
        """Make sure once more that a shipper is running for the last records; it outlives this process."""
        try:
            self._ensure()
        except OSError as error:
            self._run.outcomes.notice("shipper", "start", f"cannot start a shipper ({error}): run `stepscope ship`")
        if self._child is not None and self._child.poll() is None:
            leave_behind(self._child)

    def _ensure(self) -> None:
        home, host = self._run.home, host_name()
        _request(self._run, self._sinks)
        if self._child is not None and self._child.poll() is None:
            return
        try:
            lock_home(home, host).release()
        except Locked:
            return
        self._child = start(home)


def start(home: Path) -> "subprocess.Popen[bytes]":
    """Start a shipper that outlives this process and shares no file or terminal with it; OSError when that fails."""
    path = [str(Path(__file__).parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(each) for each in path if each)}
    log = os.open(shipping_folder(home) / f"{host_name()}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "stepscope", "ship", "--background", "--home", str(home)],
            env=env,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)


def leave_behind(child: "subprocess.Popen[bytes]") -> None:
    """Let a child outlive its Popen object; a thread reaps it, so that it leaves no zombie."""
    child.returncode = 0  # Python would warn of a child left behind, which is what we want
    with contextlib.suppress(RuntimeError):  # Python ends, and the system takes care of the child
        threading.Thread(target=_reap, args=(child.pid,), name="stepscope-reaper", daemon=True).start()


def _reap(pid: int) -> None:
    with contextlib.suppress(OSError):  # reaped elsewhere
        os.waitpid(pid, 0)


class _Threads:
    """Sinks served by threads of the trainer, for its own journal."""

    def __init__(self, run: Run, sinks: list[Chosen]) -> None:
        self._run = run
        self._sinks = [each for each in sinks if each.config.remote or run.rank == 0]
        self._workers: list[SinkWorker] = []
        self._pid = 0
        """The process that serves the sinks; a forked child starts again."""
        self._counted_at = time.monotonic()

    def __call__(self) -> None:
        if os.getpid() != self._run.pid:
            return
        if self._pid != os.getpid():
            self.start()
        if time.monotonic() - self._counted_at >= COUNT_SECONDS:
            self.report_counters()

    def start(self) -> None:
        """Start the threads at once, because Python starts none during shutdown."""
        self._pid = os.getpid()
        self._workers = []
        with contextlib.suppress(RuntimeError):
            for each in self._sinks:
                self._workers.append(self._start_worker(each))

    def report_counters(self) -> None:
        """Record the outcome counters of the remote sinks."""
        self._counted_at = time.monotonic()
        counts = {worker.chosen.id: dict(worker.pump.counts) for worker in self._workers if worker.chosen.config.remote}
        if any(counts.values()):
            self._write_records([counters(counts)])

    def _write_records(self, records: Sequence[bytes]) -> None:
        if not self._run.recorder.closed:
            for packed in records:
                self._run.recorder.put(packed)

    def leave(self, deadline: float, patient_until: float) -> None:
        """Deliver what is left while there is time; the rest stays in the journal for `stepscope ship`.

        After `patient_until` a failing sink is not waited for, unless its retry delay ends in time.
        """
        self()
        for worker in self._workers:
            worker.check_all()
        until = max(deadline, patient_until, time.monotonic() + LEAVE_SECONDS)
        while (now := time.monotonic()) < until and any(
            not worker.drained and (now < patient_until or worker.pump.may_accept_before(until))
            for worker in self._workers
        ):
            time.sleep(0.005)
        drained = all(worker.drained for worker in self._workers if worker.chosen.config.remote)
        stop_all(self._workers, max(until - time.monotonic(), STOP_SECONDS))
        if drained and self._workers:
            sink_requests.forget(self._run.home, self._run.id, host_name(), server=os.getpid())
        self._workers = []

    def _start_worker(self, chosen: Chosen) -> SinkWorker:
        pid = os.getpid()
        return SinkWorker(
            self._run.home,
            chosen,
            runs=lambda: (self._run.id,),
            wanted=lambda name: name.pid == pid and name.host == host_name(),
            remember=chosen.config.remote,
            group_bytes=THREAD_BYTES,
            sliced=True,
            write_records=self._write_records if chosen.config.remote else None,
        )
