"""Records made beside requests that nobody waits for: stored by a thread, a few times a second."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from stepscope.hub.receivers.ingest import Ingest, Upload
from stepscope.model.errors import Retry

Work = Callable[[Upload], None]
MOST_WAITING = 20_000
TOO_MANY, FAILED, NOT_STORED = "too many records at once", "record that failed", "record the hub could not store"
_SECONDS = 0.2
_TRIES = 30


class RecordQueue:
    """Takes work from any thread; what that adds to an upload is stored soon after, or by `flush`."""

    def __init__(self, ingest: Ingest, sleep: Callable[[float], None] = time.sleep) -> None:
        self._ingest = ingest
        self._sleep = sleep
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._waiting: list[Work] = []
        self._came = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, work: Work) -> None:
        """Do some work later; dropped and counted when too much waits."""
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                self._ingest.reject(TOO_MANY)
                return
            self._waiting.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="stepscope-tinker", daemon=True)
                self._thread.start()
        self._came.set()

    def flush(self) -> None:
        """Store what waits; returns when it is safe, or cannot be."""
        with self._storing:
            with self._lock:
                found, self._waiting = self._waiting, []
            upload = Upload()
            for work in found:
                try:
                    work(upload)
                except Exception:  # a record is never worth the requests that it is about
                    self._ingest.reject(FAILED)
            if upload.batches:
                self._store(upload)

    def _store(self, upload: Upload) -> None:
        for _ in range(_TRIES):
            safe: Future[None] = self._ingest.submit(upload)
            with contextlib.suppress(Retry):
                safe.result()
                return
            upload.rejected.clear()  # counted by the first try
            upload.cut.clear()
            self._sleep(1.0)
        self._ingest.reject(NOT_STORED, upload.taken)

    def _loop(self) -> None:
        while True:
            self._came.wait()
            self._sleep(_SECONDS)  # what comes meanwhile is stored with it
            self._came.clear()
            self.flush()
