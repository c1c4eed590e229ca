"""Record what this process and its children print: their output goes through a process that passes it on."""

import contextlib
import fcntl
import json
import os
import select
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from stepscope.sdk.run_protocols import Part

PIPE_BYTES = 1024 * 1024
"""What may be printed before the other process reads; the system's own limit may be lower."""
DRAIN_SECONDS = 1.0
_SETPIPE = 1031
"""F_SETPIPE_SZ of Linux."""


class Console:
    """The redirected streams of this process. `check` and `close` are called by the flusher and at the end."""

    def __init__(self, run: Part) -> None:
        self._run, self._pid = run, os.getpid()
        self._saved: dict[int, int] = {}
        """The original of each redirected descriptor."""
        self._ends: list[int] = []
        """Our copies of the reading ends: with them, no write fails when the other process dies."""
        self._child: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def open(self) -> None:
        """Start the process and redirect the streams; on any failure everything is as before."""
        try:
            self._open()
        except (OSError, ValueError) as error:
            self._restore()
            self._run.outcomes.notice("console", "start", f"the console is not recorded: {error}")

    def _open(self) -> None:
        kinds = {number: os.fstat(number) for number in (1, 2)}
        chosen = [number for number, kind in kinds.items() if not os.isatty(number) and not _is_null(kind)]
        if not chosen or not sys.platform.startswith("linux"):
            return
        together = len(chosen) == 2 and os.path.samestat(kinds[1], kinds[2])
        groups = [chosen] if together else [[number] for number in chosen]
        ours, theirs = socket.socketpair()
        self._control = ours
        streams, writers = [], []
        for group in groups:
            reading, writing = os.pipe()
            self._ends.append(reading)
            with contextlib.suppress(OSError):
                fcntl.fcntl(writing, _SETPIPE, PIPE_BYTES)
            saved = os.dup(group[0])
            self._saved.update(dict.fromkeys(group, saved))
            name = "console" if together else "stdout" if group == [1] else "stderr"
            streams.append((reading, name, saved))
            writers.append((writing, group))
        about = {
            "home": str(self._run.home.absolute()), "run": self._run.id, "pid": self._pid,
            "start": self._run.link[0].hex()[:6], "streams": streams, "control": theirs.fileno(),
            "path": [each for each in sys.path if each],
        }  # fmt: skip
        passed = [theirs.fileno(), *(each for stream in streams for each in (stream[0], stream[2]))]
        for number in passed:
            os.set_inheritable(number, True)
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("console_process.py")), json.dumps(about)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=passed,
                start_new_session=True,
            )  # fmt: skip
        finally:
            theirs.close()
            for number in {*self._ends, *self._saved.values()}:
                os.set_inheritable(number, False)
        _flush()
        for writing, group in writers:
            for number in group:
                os.dup2(writing, number)  # inheritable, for children
            os.close(writing)

    def check(self) -> None:
        """Restore the streams if the other process is gone: nothing printed is lost, and no write blocks."""
        if self._child is not None and os.getpid() == self._pid and self._child.poll() is not None:
            self._restore()
            self._run.outcomes.notice("console", "end", "the console is not recorded any more: its process ended")

    def close(self) -> None:
        """Restore the streams, and wait until all that was printed is passed on."""
        if os.getpid() != self._pid or self._child is None or self._control is None:
            return
        control = self._control
        self._redirect_back()
        with contextlib.suppress(OSError):
            control.shutdown(socket.SHUT_WR)
            select.select([control], [], [], DRAIN_SECONDS)
        self._restore()

    def _redirect_back(self) -> None:
        _flush()
        for number, saved in self._saved.items():
            with contextlib.suppress(OSError):
                os.dup2(saved, number)

    def _restore(self) -> None:
        """Redirect back, pass on what the other process did not read, and close everything of ours."""
        self._redirect_back()
        alive = self._child is not None and self._child.poll() is None
        targets = list(dict.fromkeys(self._saved.values()))
        for reading, target in zip(self._ends, targets, strict=False):
            os.set_blocking(reading, False)
            while not alive and (data := _read(reading)):
                with contextlib.suppress(OSError):
                    os.write(target, data)
        for number in {*self._ends, *targets}:
            with contextlib.suppress(OSError):
                os.close(number)
        if self._control is not None:
            self._control.close()
        if alive and self._child is not None:
            self._child.returncode = 0  # it ends when all its writers have; Python would warn of it
        self._saved, self._ends, self._child, self._control = {}, [], None, None


def _read(reading: int) -> bytes:
    try:
        return os.read(reading, 65_536)
    except OSError:
        return b""


def _is_null(kind: os.stat_result) -> bool:
    return stat.S_ISCHR(kind.st_mode) and os.path.samestat(kind, os.stat(os.devnull))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def capture(run: Part, collectors: list[Callable[[], None]]) -> Callable[[], None]:
    """Record the console from now on; the returned function stops it."""
    made = Console(run)
    made.open()
    collectors.append(made.check)
    return made.close
