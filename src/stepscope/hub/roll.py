"""How many runs fare how: those of the store and those heard of since it was last asked."""

import time
from collections import Counter
from collections.abc import Callable, Iterable

from stepscope.hub.presence import Presence
from stepscope.hub.query.runs import state_of
from stepscope.hub.store.read.runs import RunRow

LOOK_SECONDS = 10.0


class Roll:
    """Counts runs by state for those who ask often: the store is asked every ten seconds at most."""

    def __init__(
        self,
        presence: Presence,
        runs: Callable[[], Iterable[RunRow]],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._presence, self._runs = presence, runs
        self._clock, self._now = clock, now
        self._due = float("-inf")
        self._stored: dict[str, str] = {}
        """The states of the store's runs by what is stored of them."""
        self._gone: set[str] = set()
        """Runs heard of that the store does not have any more."""

    def counts(self) -> dict[str, int]:
        """Count the runs by state; what `runs` raises is raised here, and until the next look counted without them."""
        if self._clock() >= self._due:
            self._due = self._clock() + LOOK_SECONDS
            self._look()
        live = self._presence.states()
        found: Counter[str] = Counter(state for run, state in live.items() if run not in self._gone)
        found.update(state for run, state in self._stored.items() if run not in live)
        return dict(sorted(found.items()))

    def _look(self) -> None:
        heard = self._presence.states().keys()  # first: what is heard of is stored by then
        now = self._now()
        self._stored = {row.id: state_of(row, now) for row in self._runs()}
        self._gone = heard - self._stored.keys()
