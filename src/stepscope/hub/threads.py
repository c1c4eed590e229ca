"""Threads of the hub: a bounded pool, one that repeats some work, topics on which they announce it, queues between."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Generic, ParamSpec, Protocol, TypeVar

from stepscope.hub.refusals import Refusal, Refused
from stepscope.model.ports import Batch

Params = ParamSpec("Params")
Result = TypeVar("Result")

_AHEAD = 4
"""Chunks of a stream that wait for a slow client."""


class Workers:
    """Runs calls on its own threads; only the event loop may use it."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, f"stepscope-{name}")
        self._most = threads + waiting
        self._under_way = 0
        self.large = threading.Lock()
        """Held by a call that needs much memory, so that there is one at a time."""

    async def run(self, call: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Run a call on a thread; Refused with 503 when the queue is full.

        A caller that is cancelled leaves its call to finish, and the call counts until then.
        """
        if self._under_way >= self._most:
            raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once", 1.0))
        future = self._pool.submit(call, *args, **kwargs)
        self._under_way += 1
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda done: _soon(loop, self._count_down))
        return await asyncio.shield(asyncio.wrap_future(future))

    async def stream(self, make: Callable[[], Iterator[bytes]]) -> AsyncIterator[bytes]:
        """Yield what a generator yields; one thread runs it, a few items ahead of the consumer.

        Refused with 503 when the queue is full. Closing this closes the generator, at its next item.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        room, closed = threading.Semaphore(_AHEAD), threading.Event()

        def fill() -> None:
            with contextlib.closing(_generator(make)) as pieces:
                for piece in pieces:
                    room.acquire()
                    if closed.is_set():
                        return
                    loop.call_soon_threadsafe(queue.put_nowait, piece)

        def end(done: "asyncio.Future[None]") -> None:
            queue.put_nowait(None)
            if not done.cancelled():
                done.exception()  # read, for nobody may be waiting for it

        filling = asyncio.ensure_future(self.run(fill))
        filling.add_done_callback(end)
        try:
            while (piece := await queue.get()) is not None:
                room.release()
                yield piece
            await filling
        finally:
            closed.set()
            room.release()

    def _count_down(self) -> None:
        self._under_way -= 1

    def close(self, *, wait: bool = True) -> None:
        """Accept no more calls and drop queued ones; `wait` for those running."""
        self._pool.shutdown(wait=wait, cancel_futures=True)


def _generator(make: Callable[[], Iterator[bytes]]) -> Generator[bytes, None, None]:
    yield from make()


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)


FIRST_SECONDS = 60.0
EVERY_SECONDS = 600.0


class Periodic:
    """A thread that repeats some work; a failure is recorded and does not end it."""

    def __init__(
        self,
        work: Callable[[], object],
        *,
        first: float = FIRST_SECONDS,
        every: float = EVERY_SECONDS,
        what: str = "upkeep of the store",
    ) -> None:
        self._work, self._what = work, what
        self._first, self._every = first, every
        self._stopping = threading.Event()
        self.problem = ""
        """Why the work failed last; empty when it did not."""
        self._thread = threading.Thread(target=self._loop, name="stepscope-upkeep", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, waiting for running work."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _loop(self) -> None:
        wait = self._first
        while not self._stopping.wait(wait):
            wait = self._every
            try:
                self._work()
                self.problem = ""
            except Exception as error:
                self.problem = f"{self._what} failed: {error}"


Thing = TypeVar("Thing")


class Topic(Generic[Thing]):
    """Calls its subscribers in the order in which they subscribed, on the thread that announces; they must be quick.

    Parts subscribe when they are constructed, before anything is announced.
    """

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Thing], object]] = []

    def subscribe(self, subscriber: Callable[[Thing], object]) -> None:
        """Call a function with whatever is announced from now on."""
        self._subscribers.append(subscriber)

    def announce(self, thing: Thing, on_error: Callable[[Exception], object]) -> None:
        """Call every subscriber; one that raises is reported to `on_error` and costs the others nothing."""
        for subscriber in self._subscribers:
            try:
                subscriber(thing)
            except Exception as error:
                on_error(error)


class Stored(Protocol):
    """A batch that was stored, and about how much memory its records take."""

    @property
    def batch(self) -> Batch: ...
    @property
    def bytes(self) -> int: ...


class StoredRecords(Generic[Thing]):
    """Records that were stored, waiting for a thread, in order with other things for it.

    A bounded queue: adding never blocks, and what there is no room for is counted. Safe from several threads.
    """

    def __init__(self, most_records: int, most_bytes: int, wake: threading.Event) -> None:
        self.most_records, self.most_bytes, self._wake = most_records, most_bytes, wake
        self._lock = threading.Lock()
        self._things: deque[Batch | Thing] = deque()
        self.records = self._bytes = 0
        self.runs: set[str] = set()
        """Runs of which records came since the last `take`, for those without room, too."""
        self._missed: set[str] = set()
        self.skipped = 0
        """Records for which there was no room."""

    def add(self, items: Sequence[Stored]) -> None:
        """Add records that were just stored."""
        with self._lock:
            for item in items:
                run, count = item.batch.writer.run, len(item.batch.records)
                self.runs.add(run)
                if self.records + count > self.most_records or self._bytes + item.bytes > self.most_bytes:
                    self._missed.add(run)
                    self.skipped += count
                    continue
                self._things.append(item.batch)
                self.records += count
                self._bytes += item.bytes
        self._wake.set()

    def put(self, things: Iterable[Thing]) -> None:
        """Add things that take no room."""
        with self._lock:
            self._things.extend(things)
        self._wake.set()

    def take(self, note: Callable[[set[str]], object] = lambda runs: None) -> tuple[deque[Batch | Thing], set[str]]:
        """Take everything, and the runs of which records are missing; `note` gets `runs` while they still wait."""
        with self._lock:
            note(self.runs)
            found, missed = self._things, self._missed
            self._things, self._missed, self.runs = deque(), set(), set()
            self.records = self._bytes = 0
            return found, missed
