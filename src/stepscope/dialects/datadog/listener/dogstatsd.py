"""The DogStatsD server: one thread reads all sockets, submits records four times a second, and counts what was lost."""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from stepscope.dialects.datadog.listener.processes import Processes
from stepscope.dialects.datadog.listener.samples import Samples
from stepscope.dialects.datadog.listener.sockets import Opened, close_socket
from stepscope.dialects.datadog.wire.dogstatsd_lines import BAD_TEXT
from stepscope.extend.receiver import Ingest, Upload, Writers, is_loopback
from stepscope.model.records import Instrument, Metric

MAX_CLIENTS = 10_000
SETTLING_SECONDS = 60.0
"""Clients first seen within this time after the start may have sent datagrams to the previous hub."""


class Loss(NamedTuple):
    """Datagrams lost in transit, and those dropped by the client."""

    lost: int
    unsent: int


class _Client:
    """The datagrams received from one address since its last telemetry."""

    __slots__ = ("received", "trusted")

    def __init__(self, *, trusted: bool) -> None:
        self.received = 0
        self.trusted = trusted
        """Whether all datagrams that it reports were sent to this hub."""


class ClientLoss:
    """Compares sent with received datagrams, by address. Not thread-safe.

    A client reports how many datagrams it has sent since its last report; the report itself counts for the next one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._clients: dict[Hashable, _Client] = {}
        self._reported: dict[str, float] = {}

    def note(self, name: str, value: float) -> None:
        """Store one of the counts in the current datagram."""
        self._reported[name] = self._reported.get(name, 0) + value

    def count(self, sender: Hashable) -> Loss | None:
        """Count a datagram (None for a sender without an address) and return the loss that it reported."""
        client = self._clients.get(sender)
        if client is None:
            while len(self._clients) >= MAX_CLIENTS:
                del self._clients[next(iter(self._clients))]
            trusted = sender is not None and self._clock() - self._began >= SETTLING_SECONDS
            client = self._clients[sender] = _Client(trusted=trusted)
        loss = self._compare(client, sender) if self._reported else None
        client.received += 1
        return loss

    def _compare(self, client: _Client, sender: Hashable) -> Loss | None:
        sent, unsent = (int(self._reported.get(name, 0)) for name in ("packets_sent", "packets_dropped"))
        self._reported.clear()
        lost = max(sent - client.received, 0) if client.trusted else 0
        client.trusted, client.received = sender is not None, 0
        return Loss(lost, unsent) if lost or unsent > 0 else None


NAME = "dogstatsd"
DRAIN_SECONDS, INTERVAL_SECONDS = 0.25, 1.0
"""The interval of submitting records, and the interval over which counts and sets are aggregated."""
STOP_SECONDS, FAILED_SECONDS = 1.0, 0.1
"""How long pending data is read when the hub stops, and the pause after a failure."""
MAX_LINES = 20_000
"""The number of lines after which records are submitted immediately."""
BURST = 256
"""Datagrams read from one socket before the next socket is read."""
DATAGRAM_BYTES = 65_536
LONGEST_FRAME = 65_536
MAX_CONNECTIONS = 200
UNSAFE = "the hub could not write its journal"
LOST, UNSENT = "datagrams lost in transit, by their senders' counts", "datagrams dropped by their senders"
BAD_FRAME = "a frame larger than 64 KiB on a stream"
CUT_FRAME = "a frame that was cut off on a stream"
TOO_MANY_STREAMS = "too many connections to a stream socket"
_COUNT = Instrument("sum", cumulative=False)


class DogStatsd:
    """Listens until it is stopped; malformed lines are counted by reason."""

    def __init__(self, ingest: Ingest, opened: Sequence[Opened], clock: Callable[[], float] = time.monotonic) -> None:
        self._ingest, self._opened, self._clock = ingest, opened, clock
        self._loss = ClientLoss(clock)
        self._samples = Samples(Processes(clock), socket.gethostname(), self._loss.note)
        self._writers = Writers(ingest)
        self._selector = selectors.DefaultSelector()
        self._buffer = bytearray(DATAGRAM_BYTES)
        self._connections = 0
        self._stopping = threading.Event()
        self._due = self._interval_due = 0.0
        self._thread = threading.Thread(target=self._loop, name="stepscope-dogstatsd", daemon=True)

    def start(self) -> None:
        """Start listening."""
        for address, bound in self._opened:
            read = self._accept if address.transport == "unixstream" else self._read_datagrams
            self._selector.register(bound, selectors.EVENT_READ, read)
        self._thread.start()

    def stop(self) -> None:
        """Drain the sockets, submit the records, and close the sockets."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        for each in self._opened:
            close_socket(each)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._turn(DRAIN_SECONDS)
        until = self._clock() + STOP_SECONDS
        while self._turn(0) and self._clock() < until:  # drain the kernel's buffers, for a limited time
            pass
        self._samples.end_interval(time.time_ns())
        done = self._submit()
        with contextlib.suppress(Exception):
            done.result(5.0)

    def _turn(self, seconds: float) -> bool:
        """Read the sockets that are ready; False when none is."""
        try:
            ready = self._selector.select(seconds)
            for key, _ in ready:
                key.data(key.fileobj)
            self._samples.settle()
            self._tick(self._clock())
        except Exception as error:  # a bug must not end the thread: count it and go on
            self._ingest.reject(f"internal error of the hub: {type(error).__name__}")
            self._stopping.wait(FAILED_SECONDS)
            return False
        return bool(ready)

    def _tick(self, now: float) -> None:
        if now >= self._interval_due:
            self._samples.end_interval(time.time_ns())
            self._interval_due = now + INTERVAL_SECONDS
        if now >= self._due or self._samples.lines >= MAX_LINES:
            self._due = now + DRAIN_SECONDS
            self._submit()

    def _submit(self) -> "Future[None]":
        upload = Upload()
        for origin, records in self._samples.drain():
            self._writers.add(upload, origin.writer(), records, None)
        upload.rejected += self._samples.malformed
        self._samples.malformed.clear()
        done = self._ingest.submit(upload)
        done.add_done_callback(lambda found: self._count(found, upload.taken))
        return done

    def _count(self, done: "Future[None]", taken: int) -> None:
        if not done.cancelled() and done.exception() is not None:
            self._ingest.drop(UNSAFE, taken)  # UDP has no retries: they are lost

    def _read_datagrams(self, bound: socket.socket) -> None:
        view = memoryview(self._buffer)
        for _ in range(BURST):
            try:
                size, sender = bound.recvfrom_into(self._buffer)
            except BlockingIOError:
                return
            except OSError as error:
                self._ingest.reject(f"a datagram that cannot be read: {error.strerror}")
                return
            self._take(view[:size], sender or None)

    def _take(self, data: memoryview, sender: Any = None) -> None:
        try:
            text = str(data, "utf-8")
        except UnicodeDecodeError:
            text = self._readable(bytes(data))
        host = sender[0] if isinstance(sender, tuple) and not is_local(sender[0]) else ""
        self._samples.take(text, time.time_ns(), host)
        loss = self._loss.count(sender if isinstance(sender, Hashable) else None)
        if loss is not None:
            self._report(loss)

    def _readable(self, data: bytes) -> str:
        """Return the lines of a datagram that are valid UTF-8."""
        kept = []
        for line in data.split(b"\n"):
            try:
                kept.append(line.decode())
            except UnicodeDecodeError:
                self._samples.malformed[BAD_TEXT] += 1
        return "\n".join(kept)

    def _report(self, loss: Loss) -> None:
        """Count a client's loss, and record it in the client's run."""
        self._ingest.drop(LOST, loss.lost)
        self._ingest.drop(UNSENT, loss.unsent)
        process = self._samples.last
        if process is not None:
            values = {"dropped/datagrams": loss.lost, "dropped/unsent_datagrams": loss.unsent}
            kept: dict[str, Any] = {key: count for key, count in values.items() if count}
            at = process.track
            process.records.append(Metric(time.time_ns(), at.step, at.axis, "stepscope", kept, {}, _COUNT))

    def _accept(self, bound: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = bound.accept()
            if self._connections >= MAX_CONNECTIONS:
                connection.close()
                self._ingest.reject(TOO_MANY_STREAMS)
                return
            connection.setblocking(False)
            self._connections += 1
            frames = _Frames(self._take, self._ingest.reject, self._end_connection)
            self._selector.register(connection, selectors.EVENT_READ, frames.read)

    def _end_connection(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
        self._connections -= 1


class _Frames:
    """One connection of a stream socket, with length-prefixed frames."""

    def __init__(
        self,
        take: Callable[[memoryview], object],
        refuse: Callable[[str], object],
        end: Callable[[socket.socket], object],
    ) -> None:
        self._take, self._refuse, self._end = take, refuse, end
        self._held = bytearray()

    def read(self, connection: socket.socket) -> None:
        """Read available bytes and process the complete frames."""
        try:
            data = connection.recv(4 * LONGEST_FRAME)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._held += data
        whole = self._take_frames()
        if not data and self._held:
            self._refuse(CUT_FRAME)
        if not data or not whole:
            self._end(connection)

    def _take_frames(self) -> bool:
        """Process complete frames; False when one is too large, after which the stream cannot be read."""
        start, held = 0, memoryview(bytes(self._held))
        while len(held) - start >= 4:
            size = int.from_bytes(held[start : start + 4], "little")
            if size > LONGEST_FRAME:
                self._refuse(BAD_FRAME)
                self._held.clear()
                return False
            if len(held) - start - 4 < size:
                break
            self._take(held[start + 4 : start + 4 + size])
            start += 4 + size
        del self._held[:start]
        return True


def is_local(host: str) -> bool:
    """Return whether a datagram came from this machine."""
    return host.startswith("127.") or is_loopback(host)
