"""The console process of a trainer: passes on what it prints, and journals it; it survives the trainer's death.

It is started by its path, so that passing on needs nothing but the standard library; the journal is imported later,
on a thread. When the trainer ends it records how: the signal or status, and whether the kernel was out of memory.
"""

import contextlib
import fcntl
import json
import os
import queue
import re
import select
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any

READ_BYTES = 65_536
MAX_QUEUED = 512
"""The most chunks that wait for the journal; further ones are passed on, but not recorded."""
MAX_LINE = 8_192
MAX_LINES_PER_SECOND = 500
SHOW_SECONDS = 30.0
"""A line that does not end, such as a progress bar, is recorded as it is after this time."""
WRITE_SECONDS = 0.2
LAST_SECONDS = 5.0
"""How long the records of a killed trainer are waited for."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,32}[@-~]")
LOG, EVENT = 2, 3
INFO, WARN = 9, 13
"""The severity of a line, and of one that tells of a failure."""
PIDFD_GET_INFO, PIDFD_INFO_EXIT, PIDFD_INFO_BYTES = 0xC040FF0B, 1 << 3, 64
"""The request for what the kernel (6.15 and later) keeps of a process after its parent has reaped it."""
Chunk = tuple[int, str, bytes]


class Lines:
    """Splits one stream into lines; of what a carriage return overwrites, only the last state is kept."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._rest = b""
        self._since = 0

    def take(self, at: int, data: bytes) -> list[tuple[int, str]]:
        """Return the lines that are complete."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            tail = self._rest.rpartition(b"\r")[2]
            whole, self._rest = ([*whole, tail[:MAX_LINE]], b"") if len(tail) > MAX_LINE else (whole, tail)
        if not self._rest or whole:
            self._since = at
        found = [(at, _text(line)) for line in whole]
        if self._rest and at - self._since > SHOW_SECONDS * 1e9:
            self._since = at
            found.append((at, _text(self._rest)))
        return [each for each in found if each[1]]

    def end(self, at: int) -> list[tuple[int, str]]:
        """Return the line that never ended."""
        rest, self._rest = _text(self._rest), b""
        return [(at, rest)] if rest else []


def _text(line: bytes) -> str:
    shown = line.rstrip(b"\r").rpartition(b"\r")[2][:MAX_LINE]
    return _ESCAPES.sub("", shown.decode("utf-8", "replace")).rstrip()


class Recording(threading.Thread):
    """Writes lines to a journal of its own, beside the trainer's."""

    def __init__(self, about: dict[str, Any]) -> None:
        super().__init__(name="stepscope-console", daemon=True)
        self.queue: queue.Queue[Chunk | None] = queue.Queue(MAX_QUEUED)
        self.lost = 0
        self.exit: tuple[int, dict[str, Any]] | None = None
        self._about = about
        self._journal: Any = None
        self._pack: Any = None
        self._class_of: Any = None
        self._second, self._count, self._dropped = 0, 0, 0

    def run(self) -> None:
        """Write what comes until the end, and then how the trainer ended."""
        streams: dict[str, Lines] = {}
        going = True
        while going:
            records: list[bytes] = []
            chunks = [self.queue.get()]
            time.sleep(WRITE_SECONDS)  # one write for many lines
            with contextlib.suppress(queue.Empty):
                while True:
                    chunks.append(self.queue.get_nowait())
            for chunk in chunks:
                if chunk is None:
                    going = False
                    continue
                at, name, data = chunk
                lines = streams.setdefault(name, Lines(name)).take(at, data)
                records += [self._record(name, *line) for line in lines if self._fits(line[0])]
            if not going:
                now = time.time_ns()
                records += [self._record(each.name, *line) for each in streams.values() for line in each.end(now)]
                records += self._ending()
            self._write([each for each in records if each])

    def _fits(self, at: int) -> bool:
        second = at // 1_000_000_000
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        self._dropped += self._count > MAX_LINES_PER_SECOND
        return self._count <= MAX_LINES_PER_SECOND

    def _record(self, name: str, at: int, text: str) -> bytes:
        if self._open() is None:
            return b""
        severity = INFO if self._class_of(text) is None else WARN
        line = (LOG, at, None, None, None, None, severity, text, {"log.iostream": name}, f"console.{name}")
        packed: bytes = self._pack(line)
        return packed

    def _ending(self) -> list[bytes]:
        lost = self.lost + self._dropped
        found = [self._record("stderr", time.time_ns(), f"{lost} lines were not recorded")] if lost else []
        if self.exit is not None and (self.exit[1].get("signal") or self.exit[1].get("status")):
            self._open(LAST_SECONDS)
        if self.exit is not None and self._open() is not None:
            at, how = self.exit
            found.append(self._pack((EVENT, at, None, None, None, None, 17, "process.exited", how)))
        return found

    def _open(self, patience: float = 0.0) -> Any:
        """Open the journal once the trainer's is there, which names the attempt."""
        until = time.monotonic() + patience
        while self._journal is None:
            with contextlib.suppress(Exception):
                self._journal = self._find()
            if self._journal is not None or time.monotonic() >= until:
                break
            time.sleep(0.05)
        return self._journal

    def _find(self) -> Any:
        sys.path[:] = self._about["path"]
        from pathlib import Path

        from msgspec import msgpack
        from msgspec.structs import replace

        from stepscope.diagnosis.failure_classes import class_of
        from stepscope.journal import layout
        from stepscope.journal.segments import Journal, find_writer

        about = self._about
        home, run, start = Path(about["home"]), about["run"], about["start"]
        for name in layout.list_writers(home, run):
            known = layout.parse_writer(name)
            if known is None or known.pid != about["pid"] or not known.token.startswith(start):
                continue
            mine = str(known._replace(pid=os.getpid(), token=start + os.urandom(3).hex()))
            writer = replace(find_writer(layout.writer_folder(home, run, name)), id=mine, pid=os.getpid(), main=False)
            self._pack, self._class_of = msgpack.Encoder().encode, class_of
            return Journal(layout.writer_folder(home, run, mine), writer)
        return None

    def _write(self, records: list[bytes]) -> None:
        if records and self._journal is not None:
            try:
                self._journal.append(records)
            except (OSError, ValueError):  # a full disk
                self.lost += len(records)


def how_it_ended(pid: int, kills_before: int, handle: int = -1) -> dict[str, Any]:
    """Return the signal or status of a process that has just ended, as far as it can be seen."""
    found: dict[str, Any] = {"pid": pid}
    with contextlib.suppress(OSError, ValueError, IndexError):
        code = _code_of_zombie(pid)
        if code is None:
            code = _code_of_reaped(handle)
        number = code & 0x7F
        if number:
            found["signal"] = signal.Signals(number).name
        else:
            found["status"] = code >> 8
    if found.get("signal") == "SIGKILL" and oom_kills() > kills_before:
        found["oom_kill"] = True
    return found


def _code_of_zombie(pid: int) -> int | None:
    """Return the exit code of a process that its parent has not reaped yet; None for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[49])
    except OSError:
        return None


def _code_of_reaped(handle: int) -> int:
    """Return the exit code that the kernel keeps with a process's file descriptor; an old kernel raises OSError."""
    info = bytearray(struct.pack("Q", PIDFD_INFO_EXIT).ljust(PIDFD_INFO_BYTES, b"\0"))
    fcntl.ioctl(handle, PIDFD_GET_INFO, info, True)
    mask, code = struct.unpack_from("Q", info)[0], struct.unpack_from("i", info, PIDFD_INFO_BYTES - 4)[0]
    if not mask & PIDFD_INFO_EXIT:
        raise OSError("the kernel does not know how it ended")
    return int(code)


def oom_kills() -> int:
    """Return how many processes of this control group the kernel has killed for lack of memory."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            place = next(line.rstrip().rpartition(":")[2] for line in file if line.startswith("0::"))
        with open(f"/sys/fs/cgroup{place}/memory.events", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return 0


def _pass_on(target: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more, or its disk is full
        while data:
            try:
                data = data[os.write(target, data) :]
            except BlockingIOError:
                select.select([], [target], [], 1.0)


def _read(source: int) -> bytes | None:
    """Return what is there; None when nothing is, and an empty text at the end."""
    try:
        return os.read(source, READ_BYTES)
    except BlockingIOError:
        return None


def serve(about: dict[str, Any]) -> None:
    """Pass on and record until every writer has closed its end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=about["control"])
    streams = {source: (name, target) for source, name, target in about["streams"]}
    for source in streams:
        os.set_blocking(source, False)
    recording, kills = Recording(about), oom_kills()
    recording.start()
    waiting: set[int] = {*streams, control.fileno()}
    try:
        trainer = os.pidfd_open(about["pid"])
        waiting.add(trainer)
    except (OSError, AttributeError):  # gone already, or an old kernel
        trainer = -1
    while streams:
        ready, _, _ = select.select(list(waiting), [], [], 5.0)
        if trainer in ready:
            recording.exit = time.time_ns(), how_it_ended(about["pid"], kills, trainer)
            waiting.discard(trainer)
        for source in list(streams):
            while source in ready and (data := _read(source)) is not None:
                name, target = streams.get(source, ("", -1))
                if not data:
                    streams.pop(source)
                    waiting.discard(source)
                    break
                _pass_on(target, data)
                try:
                    recording.queue.put_nowait((time.time_ns(), name, data))
                except queue.Full:
                    recording.lost += 1
                if len(data) < READ_BYTES:
                    break
        if control.fileno() in ready:
            _acknowledge(control, streams, recording)
            waiting.discard(control.fileno())
    if recording.exit is None and trainer >= 0 and select.select([trainer], [], [], 0.2)[0]:
        recording.exit = time.time_ns(), how_it_ended(about["pid"], kills, trainer)
    recording.queue.put(None)
    recording.join(LAST_SECONDS + 5.0)


def _acknowledge(control: socket.socket, streams: dict[int, tuple[str, int]], recording: Recording) -> None:
    """Pass on all that is there, and tell the trainer, which has restored its own streams and waits for this."""
    for source, (name, target) in streams.items():
        while data := _read(source):
            _pass_on(target, data)
            with contextlib.suppress(queue.Full):
                recording.queue.put_nowait((time.time_ns(), name, data))
    with contextlib.suppress(OSError):
        control.send(b".")


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
