"""A queue of records stored in the background, so that no request waits for them."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from stepscope.extend.receiver import Ingest, Upload
from stepscope.model.errors import Retry

Work = Callable[[Upload], object]
MAX_WAITING = 20_000
TOO_MANY, FAILED, NOT_STORED = "too many records at once", "conversion failed", "the hub could not store it"
_SECONDS = 0.2
_TRIES = 30


class RecordQueue:
    """Runs queued work, which adds records to an upload, and submits it. Safe to use from any thread."""

    def __init__(self, ingest: Ingest, sleep: Callable[[float], None] = time.sleep) -> None:
        self._ingest = ingest
        self._sleep = sleep
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._waiting: list[Work] = []
        self._came = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, work: Work) -> None:
        """Queue some work; dropped and counted when the queue is full."""
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                self._ingest.reject(TOO_MANY)
                return
            self._waiting.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="stepscope-tinker", daemon=True)
                self._thread.start()
        self._came.set()

    def flush(self) -> None:
        """Store the queued records; returns once they are on disk or have failed."""
        with self._storing:
            with self._lock:
                found, self._waiting = self._waiting, []
            upload = Upload()
            for work in found:
                try:
                    work(upload)
                except Exception:  # recording must not break the proxied requests
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
            self._sleep(_SECONDS)  # batch what arrives meanwhile
            self._came.clear()
            self.flush()
