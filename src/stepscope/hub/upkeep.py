"""What the hub does now and then beside moving records: drop the runs that are too old or too many."""

import threading
from collections.abc import Callable

FIRST_SECONDS = 60.0
EVERY_SECONDS = 600.0


class Upkeep:
    """A thread that calls some work again and again; a failure is remembered and does not end it."""

    def __init__(
        self,
        work: Callable[[], object],
        *,
        first: float = FIRST_SECONDS,
        every: float = EVERY_SECONDS,
    ) -> None:
        self._work = work
        self._first, self._every = first, every
        self._stopping = threading.Event()
        self.trouble = ""
        """Why the work failed last; empty when it did not."""
        self._thread = threading.Thread(target=self._loop, name="stepscope-upkeep", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, waiting for work under way."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _loop(self) -> None:
        wait = self._first
        while not self._stopping.wait(wait):
            wait = self._every
            try:
                self._work()
                self.trouble = ""
            except Exception as error:
                self.trouble = f"upkeep of the store failed: {error}"
