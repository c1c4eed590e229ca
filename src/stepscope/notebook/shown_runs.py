"""Where a view in a notebook has a run from: the hub that has its home open, else its journals."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from stepscope.hub.client import HttpClient, HubError, open_http_client
from stepscope.journal.layout import address_of
from stepscope.journal.run_summary import RunSummary, disk_of
from stepscope.journal.segments import RunReader
from stepscope.model import names
from stepscope.model.ports import Batch
from stepscope.model.records import Metric, mean_of

POINTS = 200
"""Marks of a line, or up to twice as many."""
MAX_KEYS = 500
"""Metrics of a run that are drawn from journals; the first ones."""
MAX_FINDINGS = 20
_READ_BYTES = 256 * 1024
_NAN, _PLUS, _MINUS = 1, 2, 4
"""Flags of marks with values that are not finite."""
_FIELDS = {"min": "low", "max": "high", "mean": "mean"}


class Source(Protocol):
    """A run, as a view asks for it. HubError when it cannot be read now."""

    def advance(self, seconds: float) -> None:
        """Read what is new, for about so long."""

    def about(self) -> dict[str, Any]:
        """Its id, name, project, status and step, and the address of its page."""

    def keys(self) -> dict[str, str]:
        """Its metrics with their units."""

    def lines(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Lines of metrics, as the hub's `series` answers them."""

    def findings(self) -> list[dict[str, Any]]:
        """The newest findings: severity, text and step."""


class HubRun:
    """A run of a hub, asked over its API with the token of the environment."""

    def __init__(self, client: HttpClient, address: str, run: str) -> None:
        self._client, self._run = client, run
        self._page = f"{address}/#/run/{quote(run, safe='')}"

    def advance(self, seconds: float) -> None:
        """Nothing: the hub reads."""

    def about(self) -> dict[str, Any]:
        """Its row in the table of runs."""
        row = self._client.get("/api/runs/{run}", run=self._run)
        return {name: row[name] for name in ("id", "name", "project", "status", "step")} | {"url": self._page}

    def keys(self) -> dict[str, str]:
        """Its metrics that have steps."""
        rows = self._client.get("/api/runs/{run}/keys", run=self._run)["keys"]
        return {row["key"]: row["unit"] or "" for row in rows if row["first_step"] is not None}

    def lines(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Lines of metrics, over all ranks."""
        found = self._client.get("/api/runs/{run}/series", run=self._run, key=list(keys), points=POINTS)["series"]
        return {line["key"]: line for line in found}

    def findings(self) -> list[dict[str, Any]]:
        """What the hub's diagnosis found and nobody muted."""
        found = self._client.get("/api/runs/{run}/findings", run=self._run)["findings"]
        shown = [each for each in found if not each["muted"]]
        return [{name: each[name] for name in ("severity", "text", "step")} for each in shown[:MAX_FINDINGS]]


class JournalRun:
    """A run as its journals have it, read on as they grow; lines are those of the first rank that logged the metric."""

    def __init__(self, home: Path, run: str) -> None:
        self._home, self._run = home, run
        self._reader = RunReader(home, run)
        self._summary = RunSummary(run=run)
        self._lines: dict[str, _Line] = {}

    def advance(self, seconds: float) -> None:
        """Read what was written since."""
        deadline = time.monotonic() + seconds
        for tail in self._reader.look().values():
            while batches := tail.read(_READ_BYTES):
                for batch in batches:
                    self._summary.take(batch)
                    self._draw(batch)
                if time.monotonic() > deadline:
                    return

    def _draw(self, batch: Batch) -> None:
        for record in batch.records:
            if type(record) is not Metric or record.step is None or record.category == "stepscope":
                continue
            for key, value in record.values.items():
                name = key if record.category is None else f"{record.category}/{key}"
                line = self._lines.get(name)
                if line is None:
                    if len(self._lines) >= MAX_KEYS:
                        continue
                    line = self._lines[name] = _Line(batch.writer.rank)
                number = mean_of(value)
                if number is not None and line.rank == batch.writer.rank:
                    line.add(record.step, number)

    def about(self) -> dict[str, Any]:
        """What its records and its processes say."""
        found = self._summary
        status = found.status(disk_of(self._home, self._run), time.time())
        facts = {"name": found.described.name, "project": found.project, "step": found.last_step}
        return {"id": self._run, **facts, "status": status, "url": None}

    def keys(self) -> dict[str, str]:
        """Its metrics; journals have no units of them."""
        return dict.fromkeys(self._lines, "")

    def lines(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Lines of metrics."""
        return {key: self._lines[key].drawn() for key in keys if key in self._lines}

    def findings(self) -> list[dict[str, Any]]:
        """What the diagnosis in the trainer recorded, and alerts of the training code."""
        return [
            {"severity": names.severity_word(each.severity), "text": each.message or each.name, "step": each.step}
            for each in list(self._summary.recent_alerts)[-MAX_FINDINGS:]
        ]


class _Mark:
    """A stretch of steps: the ends, the extremes and the mean of its finite values, and which others it has."""

    __slots__ = ("count", "first", "flags", "good", "high", "last", "low", "mean")

    def __init__(self, step: int) -> None:
        self.first = self.last = step
        self.count = self.good = self.flags = 0
        self.low = self.high = self.mean = math.nan

    def add(self, step: int, value: float) -> None:
        self.first, self.last, self.count = min(self.first, step), max(self.last, step), self.count + 1
        if math.isfinite(value):
            self._take(value, value, value, 1)
        else:
            self.flags |= _NAN if math.isnan(value) else _PLUS if value > 0 else _MINUS

    def join(self, other: "_Mark") -> None:
        """Take in the next mark."""
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.count, self.flags = self.count + other.count, self.flags | other.flags
        if other.good:
            self._take(other.low, other.high, other.mean, other.good)

    def _take(self, low: float, high: float, mean: float, good: int) -> None:
        if self.good:
            low, high, whole = min(self.low, low), max(self.high, high), self.good + good
            mean = self.mean * (self.good / whole) + mean * (good / whole)  # a sum of floats may be no float
        self.low, self.high, self.mean, self.good = low, high, mean, self.good + good


class _Line:
    """One metric in at most twice `POINTS` marks; beyond that neighbours become one, and no extreme is lost."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._marks: list[_Mark] = []
        self._stretch = 1
        self._total = 0

    def add(self, step: int, value: float) -> None:
        self._total += 1
        if not self._marks or self._marks[-1].count >= self._stretch:
            self._marks.append(_Mark(step))
        self._marks[-1].add(step, value)
        if len(self._marks) > 2 * POINTS:
            for left, right in zip(self._marks[::2], self._marks[1::2], strict=False):
                left.join(right)
            del self._marks[1::2]
            self._stretch *= 2

    def drawn(self) -> dict[str, Any]:
        """Return the line as the hub's `series` answers it."""
        marks = self._marks
        columns = {
            "x": [each.first for each in marks],
            "x_last": [each.last for each in marks],
            **{name: [getattr(each, own) if each.good else None for each in marks] for name, own in _FIELDS.items()},
            "count": [each.count for each in marks],
            "flags": [each.flags for each in marks],
        }
        return {"shape": "buckets", "columns": columns, "total": self._total, "aligned": False}


def open_source(home: Path, run: str) -> Source:
    """Open a run: at the hub that has its home open, if it knows the run, else in the journals."""
    client, address = open_http_client(home, timeout=10.0), address_of(home)
    if client is not None and address is not None:
        made = HubRun(client, address, run)
        try:
            made.about()
            return made
        except HubError:  # no token, or the run is not there yet
            pass
    return JournalRun(home, run)
