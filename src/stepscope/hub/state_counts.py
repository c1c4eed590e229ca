"""Run counts by state: the runs of the store, and those heard of since it was last asked."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

from stepscope.hub.presence import Presence
from stepscope.hub.store.read.runs import RunRow
from stepscope.model.states import State, run_state

LOOK_SECONDS = 10.0
WAIT_SECONDS = 1.0


class StateCounts:
    """Counts runs by state for those who ask often: the store is asked every ten seconds at most."""

    def __init__(
        self,
        presence: Presence,
        runs: Callable[[], Iterable[RunRow]],
        state: Callable[[RunRow], State],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._presence, self._runs, self._state = presence, runs, state
        self._clock, self._now = clock, now
        self._due = float("-inf")
        self._stored: dict[str, tuple[RunRow, State]] = {}
        """The runs of the store and their states when it was last asked."""
        self._gone: set[str] = set()
        """Runs heard of that the store does not have any more."""
        self._looking: threading.Thread | None = None
        self._error: Exception | None = None

    def counts(self) -> dict[str, int]:
        """Count the runs by state; what `runs` raises is raised here, and until the next look counted without them.

        A store that takes its time is waited for a second; then the counts are those of the last look.
        """
        if self._clock() >= self._due:
            self._due = self._clock() + LOOK_SECONDS
            if self._looking is None or not self._looking.is_alive():
                self._looking = threading.Thread(target=self._look, name="stepscope-counts", daemon=True)
                self._looking.start()
            self._looking.join(WAIT_SECONDS)
        error, self._error = self._error, None
        if error is not None:
            raise error
        heard = self._presence.runs() - self._gone
        found: Counter[str] = Counter(state for run, (_, state) in self._stored.items() if run not in heard)
        found.update(state for state in map(self._heard, heard) if state is not None)
        return dict(sorted(found.items()))

    def _heard(self, run: str) -> State | None:
        if run in self._stored:
            return self._state(self._stored[run][0])
        return run_state(self._presence.facts(run).values(), self._now())

    def _look(self) -> None:
        heard = self._presence.runs()  # first: what is heard of is stored by then
        try:
            self._stored = {row.id: (row, self._state(row)) for row in self._runs()}
        except Exception as error:
            self._error = error
            return
        self._gone = set(heard - self._stored.keys())
