"""The periodic part of a run's instruments: journal what changed, ask what must be asked, and once more at the end."""

import time

from stepscope.sdk.otel.meter import MeterProvider
from stepscope.sdk.otel.observables import Observer
from stepscope.sdk.ports import Part

LAST_SECONDS = 1.0
"""How long the end of a run waits for its callbacks."""


class Collector:
    """Journals the instruments of one run; called about once a second by its flusher."""

    def __init__(self, run: Part, meters: MeterProvider) -> None:
        self._run = run
        self._meters = meters
        self._observer = Observer(self._observe)
        self._ended = False

    def after_fork(self) -> None:
        """Leave the parent's thread to the parent."""
        self._observer = Observer(self._observe)

    def __call__(self) -> None:
        if self._ended:
            return
        self._journal()
        if self._meters.sources:
            self._observer.ask()

    def end(self) -> None:
        """Journal everything a last time; whoever measures from now on measures for another run."""
        self._journal()
        self._ended = True
        if self._meters.sources and not self._observer.stop(min(LAST_SECONDS, self._run.settings.exit_timeout)):
            self._run.outcomes.add("failed", "callback", "slow")

    def _journal(self) -> None:
        now = time.time_ns()
        for series in list(self._meters.series):
            try:
                series.journal(self._run, now)
            except Exception as error:
                self._run.outcomes.add("failed", "collect", type(error).__name__)

    def _observe(self) -> None:
        now = time.time_ns()
        for source in list(self._meters.sources):
            try:
                source.journal(self._run, now)
            except Exception as error:
                self._run.outcomes.add("failed", "collect", type(error).__name__)
