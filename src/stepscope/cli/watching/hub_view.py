"""A run as a hub has it stored: charts are made of its totals and buckets, so no point is read here."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepscope.cli.journal_answers import RUN
from stepscope.cli.stored_run import StoredRun
from stepscope.cli.tail import log_of, span_of, writer_of
from stepscope.hub.client import HubError
from stepscope.journal.key_trend import MOST, Part
from stepscope.journal.watched import KEPT, PACE_SECONDS, Recent
from stepscope.model.ports import Writer
from stepscope.model.records import Span

SHARE = 0.1
"""The share of time that is spent on asking the hub; a run that is slow to read is read less often."""
AT_ONCE = 16
"""How many metrics one request asks for."""
_SELF = "stepscope/"


@dataclass(slots=True)
class StoredTrend:
    """A metric of the hub: its last value, and extremes of intervals of steps."""

    key: str
    last: float | None = None
    parts: dict[int, Part] = field(default_factory=dict)

    @property
    def extent(self) -> tuple[int, int]:
        """The first and the last step of an interval."""
        return min(self.parts, default=0), max(self.parts, default=0)

    def drawn(self) -> dict[int, Part]:
        """The intervals by their first step."""
        return self.parts

    def take(self, line: dict[str, Any]) -> None:
        """Add a line of `/api/runs/{run}/series`."""
        columns = line["columns"]
        if line["shape"] == "raw":
            for step, value in zip(columns["x"], columns["value"], strict=True):
                self._part(step).add(step, float(value))
            return
        broken = columns.get("non_finite") or [
            min(each, 1) for each in columns["flags"]
        ]  # an older hub has flags alone
        names = ("x", "min", "max", "count")
        for step, low, high, count, bad in zip(*(columns[name] for name in names), broken, strict=True):
            part = self._part(step)
            part.good, part.bad = part.good + count - bad, part.bad + bad
            if low is not None and high is not None:
                part.low, part.high = min(part.low, float(low)), max(part.high, float(high))

    def take_distributions(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add distributions of `/api/runs/{run}/histograms` by their means."""
        for row in rows:
            if row["x"] is not None and row["count"] and row["sum"] is not None:
                self._part(row["x"]).add(row["x"], float(row["sum"]) / row["count"])

    def _part(self, step: int) -> Part:
        return self.parts.setdefault(step, Part(step))


class HubView:
    """What a run did so far, from the hub. `read` queries it again when the run changed."""

    def __init__(self, stored: StoredRun, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = stored.run
        self._get, self._clock = stored.get, clock
        self._about: dict[str, Any] = stored.get(RUN)
        self._rows: dict[str, dict[str, Any]] = {}
        self._trends: dict[str, StoredTrend] = {}
        self._spans: list[tuple[Writer, Span]] = []
        self._seen: tuple[Any, ...] | None = None
        self._due, self._problem = 0.0, ""
        self._goodput: float | None = None
        self._pace: deque[tuple[float, int]] = deque()
        self.logs, self.alerts = Recent(), Recent()

    def read(self, seconds: float = 0.0) -> bool:
        """Ask for what changed, at most a tenth of the time; nothing is left for later."""
        begun = self._clock()
        if begun < self._due:
            return False
        try:
            self._follow()
            self._problem = ""
        except HubError as error:
            self._problem = f", {error}"
        self._rest(begun)
        return False

    def _follow(self) -> None:
        if self._seen is not None:
            self._about = self._get(RUN)
        about = self._about
        seen = (about["status"], about["seen"], about["attempts"], *about["counts"].values())
        if seen != self._seen:
            self._refresh()
        self._seen = seen
        self._note_pace()

    def _refresh(self) -> None:
        rows = self._get(f"{RUN}/keys")["keys"]
        self._rows = {
            row["key"]: row for row in rows if row["first_step"] is not None and not row["key"].startswith(_SELF)
        }
        self._trends.clear()
        self.logs, self.alerts = Recent(), Recent()
        for each in reversed(self._get("/api/logs", limit=KEPT)["logs"]):
            self.logs.add(writer_of(each), log_of(each))
        for each in reversed(self._get("/api/alerts", limit=KEPT)["alerts"]):
            self.logs.add(writer_of(each), log_of(each))
            self.alerts.add(writer_of(each), log_of(each))
        spans = self._get("/api/spans", open=True, limit=KEPT)["spans"]
        self._spans = [(writer_of(each), span_of(each)) for each in spans]
        if not self._pace:
            self._goodput = self._get(f"{RUN}/goodput")["steps_per_second"]

    def _rest(self, begun: float) -> None:
        """Ask no more for as long as it takes to make the time since `begun` a small share."""
        now = self._clock()
        self._due = max(self._due, now + (now - begun) * (1 / SHARE - 1))

    def _note_pace(self) -> None:
        step, now = self.step, self._about["seen"]
        if step is not None and now is not None and (not self._pace or step != self._pace[-1][1]):
            self._pace.append((now, step))
            while now - self._pace[0][0] > PACE_SECONDS and len(self._pace) > 2:
                self._pace.popleft()

    @property
    def keys(self) -> Sequence[str]:
        """The metrics that can be drawn."""
        return list(self._rows)

    def last(self, key: str) -> tuple[float | None, int]:
        """The last value of a metric, and how many points it has."""
        row = self._rows[key]
        return None if row["last"] is None else float(row["last"]), row["points"]

    def trends(self, keys: Sequence[str]) -> list[StoredTrend]:
        """Metrics as they are drawn; what was not asked for since the run changed is asked for."""
        begun = self._clock()
        missing = [key for key in keys if key not in self._trends]
        self._trends |= {key: StoredTrend(key, self.last(key)[0]) for key in missing}
        try:
            self._ask(missing)
        except HubError as error:
            self._problem = f", {error}"
        self._rest(begun)
        return [self._trends[key] for key in keys]

    def _ask(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            for line in self._get(f"{RUN}/series", key=some, points=MOST, attempts="all")["series"]:
                self._trends[line["key"]].take(line)
        for key in keys:
            if self._rows[key]["distribution"]:
                for series in self._get(f"{RUN}/histograms", key=key, points=MOST)["series"]:
                    self._trends[key].take_distributions(series["rows"])

    @property
    def newest(self) -> list[Writer]:
        """The writers of the newest attempt."""
        about = self._about
        newest = max((each["attempt"] for each in about["writers"]), default=1)
        return [
            Writer(id=who["id"], run=self.run, project=about["project"], name=about["name"], rank=who["rank"],
                   attempt=newest)
            for who in about["writers"]
            if who["attempt"] == newest
        ]  # fmt: skip

    @property
    def step(self) -> int | None:
        """The furthest step of the newest attempt."""
        step: int | None = self._about["step"]
        return step

    @property
    def source(self) -> str:
        """Where it was read from, and how much there is."""
        importing = self._about["importing"]
        share = f", {importing['bytes'] / importing['total']:.0%} imported" if importing else ""
        return f"{self._about['counts']['points']} points stored{share}{self._problem}"

    @property
    def seconds(self) -> float | None:
        """Seconds from the first start to the last record."""
        lasted: float | None = self._about["duration"]
        return lasted

    def steps_per_second(self, status: str) -> float | None:
        """Return the pace: the recent one of a running run, else that of the whole run, as its goodput counts."""
        if status == "running" and len(self._pace) > 1:
            (first, low), (last, high) = self._pace[0], self._pace[-1]
            return (high - low) / (last - first) if last > first and high > low else None
        return self._goodput

    def status(self) -> str:
        """The state of the run."""
        return str(self._about["status"])

    def living_spans(self) -> list[tuple[Writer, Span]]:
        """Open spans of the processes of the newest attempt that have not ended, the oldest first."""
        ended = {(each["attempt"], each["rank"]) for each in self._about["endings"]}
        living = {(who.attempt, who.rank) for who in self.newest} - ended
        found = [(who, span) for who, span in self._spans if (who.attempt, who.rank) in living]
        return sorted(found, key=lambda each: each[1].time)
