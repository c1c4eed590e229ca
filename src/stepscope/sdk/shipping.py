"""The shipper itself: serves every sink that the runs of a home ask for, and ends when all is delivered."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stepscope.journal import layout
from stepscope.journal.layout import host_name
from stepscope.journal.living import is_alive
from stepscope.journal.read import find_writer
from stepscope.sdk import registrations
from stepscope.sdk.lines import Line, Report
from stepscope.sdk.sink_news import COUNT_SECONDS, MOST_RUNS, Voice, counters
from stepscope.sinks.registry import Chosen

LOOK_SECONDS = 0.5
SILENT_SECONDS = 30.0
"""A trainer that wrote nothing for so long is not waited for; it calls another shipper when it writes again."""
GIVE_UP_SECONDS = 24 * 3600.0
"""How long a shipper stays for sinks that take nothing when no trainer is left."""


class Shipping:
    """All lines of a home. With `host` only the writers of that host, else all; with `sinks` all runs go to these."""

    def __init__(self, home: Path, host: str | None = None, sinks: Iterable[Chosen] = ()) -> None:
        self.home, self.host = home, host
        self._given = {each.id: each for each in sinks}
        self.lines: dict[str, Line] = {}
        self._runs: dict[str, dict[str, float]] = {}
        """The runs that want a sink, by the sink's id, and since when."""
        self._voice = Voice(home, host) if host is not None else None
        self._counted_at = 0.0
        self._unsaid = True
        """Whether the counters may have changed since they were last recorded."""

    def refresh(self) -> None:
        """Begin to serve what was asked for since the last look."""
        wanted = dict(self._given)
        runs: dict[str, dict[str, float]] = {
            name: dict.fromkeys(layout.list_runs(self.home), 0.0) for name in self._given
        }
        if not self._given:
            for wish in sorted(self._wishes(), key=lambda wish: wish.since):
                for chosen in wish.sinks:
                    wanted[chosen.id] = chosen  # who asked last knows the token best
                    runs.setdefault(chosen.id, {})[wish.run] = wish.since
        self._runs = runs
        for name, chosen in wanted.items():
            line = self.lines.get(name)
            # One with other options, such as a token that was mended, takes over when the write under way is done.
            if line is None or (line.chosen != chosen and line.stop(0.0)):
                self.lines[name] = self._line(chosen)

    def is_done(self) -> bool:
        """Whether all is delivered and no trainer is about to write more."""
        return all(line.drained for line in self.lines.values()) and not self.is_awaited()

    def is_awaited(self) -> bool:
        """Whether a trainer of this host that is served here still writes."""
        now = time.time()
        for run in set().union(*self._runs.values()):
            for name in layout.list_writers(self.home, run):
                if self._lives(layout.writer_folder(self.home, run, name), now):
                    return True
        return False

    def reports(self) -> list[Report]:
        """How each sink fares."""
        return [line.report() for line in self.lines.values()]

    def tell_counters(self) -> bool:
        """Record what became of everything in the runs served; False when that was said already.

        Only records of trainers make it worth saying again: what is said is itself delivered, and counted.
        """
        if self._voice is None or not self._unsaid:
            return False
        self._unsaid = False
        self._counted_at = time.monotonic()
        counts = {name: dict(line.pump.counts) for name, line in self.lines.items()}
        if any(counts.values()):
            self._voice.say([counters(counts)], self._told_runs(*counts))
        return True

    def note_awaited(self) -> None:
        """Take note that a trainer writes: the counters are recorded now and then while it does."""
        self._unsaid = True
        if time.monotonic() - self._counted_at >= COUNT_SECONDS:
            self.tell_counters()
            self._unsaid = True

    def stop(self, seconds: float) -> None:
        """End all lines after the writes under way."""
        deadline = time.monotonic() + seconds
        for line in self.lines.values():
            line.stop(0.0)
        for line in self.lines.values():
            line.stop(max(deadline - time.monotonic(), 0.0))
        if self._voice is not None:
            self._voice.close()

    def forget_delivered(self) -> None:
        """Take back the registrations of runs whose trainers are gone; only to be called when all is delivered."""
        if not self._given:
            for wish in self._wishes():
                registrations.forget(self.home, wish.run, wish.host, server=wish.server)

    def _wishes(self) -> list[registrations.Wish]:
        """The registrations of runs that no living process delivers by itself."""
        found = registrations.wishes(self.home, self.host)
        served = {(wish.run, wish.host) for wish in found if wish.server and self._serves(wish)}
        return [wish for wish in found if (wish.run, wish.host) not in served]

    def _serves(self, wish: registrations.Wish) -> bool:
        """Whether a process that said it delivers its records still does: it lives, or elsewhere, writes."""
        if wish.host == host_name():
            return wish.server != os.getpid() and is_alive(wish.server, int(wish.since * 1e9))
        folders = [layout.writer_folder(self.home, wish.run, name) for name in layout.list_writers(self.home, wish.run)]
        mine = [each for each in folders if (name := layout.parse_writer(each.name)) and name.pid == wish.server]
        return any(time.time() - _newest(each) < SILENT_SECONDS for each in mine)

    def _line(self, chosen: Chosen) -> Line:
        host = self.host
        return Line(
            self.home,
            chosen,
            runs=lambda: sorted(self._runs.get(chosen.id, ())),
            wanted=lambda name: host in (None, name.host),
            report=host or "all",
            tell=lambda records: self._tell(chosen.id, records),
        )

    def _tell(self, sink: str, records: Sequence[bytes]) -> None:
        if self._voice is not None:
            self._voice.say(records, self._told_runs(sink))

    def _told_runs(self, *sinks: str) -> list[str]:
        asked = {run: since for sink in sinks for run, since in self._runs.get(sink, {}).items()}
        return sorted(asked, key=lambda run: -asked[run])[:MOST_RUNS]

    def _lives(self, folder: Path, now: float) -> bool:
        name = layout.parse_writer(folder.name)
        if name is None or name.host != host_name() or name.pid == os.getpid():
            return False
        newest = _newest(folder)
        return now - newest < SILENT_SECONDS and is_alive(name.pid, find_writer(folder).wall_ns or int(newest * 1e9))


def _newest(folder: Path) -> float:
    """When a writer last wrote; 0 when it has not."""
    try:
        return max(path.stat().st_mtime for path in layout.list_segments(folder)[-1:])
    except (OSError, ValueError):
        return 0.0


def ship(
    shipping: Shipping,
    *,
    wait: bool = True,
    seconds: float = GIVE_UP_SECONDS,
    told: Callable[[list[Report]], None] = lambda reports: None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Serve until all is delivered; False when `seconds` passed, with no trainer left, before that.

    Without `wait` trainers that still write are not waited for.
    """
    last = time.monotonic()
    checked = False
    while True:
        shipping.refresh()
        awaited = wait and shipping.is_awaited()
        if awaited:
            shipping.note_awaited()
        done = not awaited and all(line.drained for line in shipping.lines.values())
        if done and checked and not shipping.tell_counters():
            return True
        if done:  # once more, with everything looked at anew
            for line in shipping.lines.values():
                line.look_again()
        checked = done
        now = time.monotonic()
        last = now if awaited else last
        if now - last > seconds:
            return False
        told(shipping.reports())
        sleep(0.02 if done else LOOK_SECONDS if awaited else 0.05)
