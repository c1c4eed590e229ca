"""The engine: takes the records of a run one by one, on every rank, and keeps what is wrong with it."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from stepscope.diagnosis.bookkeeping import Logs, Losses, Steps
from stepscope.diagnosis.detector import Change, Point, RunState, Watch
from stepscope.diagnosis.detectors import courses, gradients, heldout, policy, resources, spikes
from stepscope.diagnosis.exits import Exits
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.folding import fold
from stepscope.diagnosis.nonfinite import NonFinite
from stepscope.diagnosis.raised import RaisedAlerts
from stepscope.diagnosis.ranks import Agreement, Clocks, Presence, Settings
from stepscope.diagnosis.roles import Role, role_of
from stepscope.diagnosis.series import Series
from stepscope.diagnosis.timing import Timing
from stepscope.model import names
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span

MOST_SERIES = 20_000
MOST_CHANGES = 64
_EXPLAINING = frozenset(("lr", "stage", "loss_scale"))
"""Roles that explain what other metrics of the same record do."""

_WATCHES: dict[str, tuple[Callable[[], Watch], ...]] = {
    "loss": (lambda: spikes.Spikes("loss"), courses.Courses, heldout.Resume),
    "side_loss": (lambda: spikes.Spikes("side_loss"),),
    "grad_norm": (lambda: spikes.Spikes("grad_norm"), gradients.Gradients),
    "loss_scale": (gradients.LossScale,),
    "lr": (gradients.LearningRate,),
    "accuracy": (heldout.Accuracy,),
    "kl": (policy.Kl,),
    "entropy": (policy.Entropy,),
    "clip_fraction": (policy.ClipFraction,),
    "explained_variance": (policy.ExplainedVariance,),
    "reward": (policy.Rewards,),
    "throughput": (resources.Throughput,),
    "step_time": (lambda: resources.Throughput(inverse=True),),
    "memory": (lambda: resources.Creep("memory"),),
    "gpu_memory": (lambda: resources.Creep("gpu_memory"),),
    "disk_free": (lambda: resources.Creep("disk_free"),),
    "gpu_use": (resources.Idle,),
}
_HELD_OUT: dict[str, tuple[Callable[[], Watch], ...]] = {"loss": (heldout.Overfit,), "accuracy": (heldout.Accuracy,)}
"""What watches series of held-out data, which come seldom."""


def _watches(role: Role) -> list[Watch]:
    table = _HELD_OUT if role.held_out else _WATCHES
    return [make() for make in table.get(role.name, ())]


class Diagnosis:
    """What is known of one run. Records of one rank must come in the order they were written."""

    def __init__(self, world: int = 1, config: Mapping[str, Any] | None = None) -> None:
        self.run = RunState(config=dict(config or {}), world=world)
        self._watches: dict[tuple[str, int], list[Watch]] = {}
        self._steps: dict[tuple[str, int], Steps] = {}
        self._nonfinite: dict[int, NonFinite] = {}
        self._losses: dict[int, Losses] = {}
        self._timing, self._agreement, self._settings = Timing(), Agreement(), Settings()
        self._clocks, self._presence, self._logs = Clocks(), Presence(), Logs()
        self._exits, self._raised = Exits(), RaisedAlerts()
        self._kept = 0
        self._hosts: dict[int, str] = {}
        self._counter: dict[tuple[str, int], int] = {}
        self._found: dict[tuple[object, ...], Finding] = {}
        self._now_step: dict[int, int] = {}

    def feed(self, rank: int, record: Record, attempt: int = 1, host: str = "") -> None:
        """Take one record. Of an attempt that is over, only what tells how it ended counts."""
        if attempt > self.run.attempt:
            self.run.attempt, self.run.resumed = attempt, None
            self._presence = Presence()
        self._ending(rank, record, attempt)
        if attempt < self.run.attempt:
            return
        self._hosts[rank] = host
        if not self._logs.begun:
            self._logs.begun = record.time
        if isinstance(record, Metric):
            self._metric(rank, record)
        elif isinstance(record, Span):
            self._span(rank, record)
        elif isinstance(record, Log):
            step = record.step if record.step is not None else self._now_step.get(rank)
            self._keep(self._logs.take(rank, record.time, step, record.severity, record.body, self.run))
        elif isinstance(record, Event):
            self._event(rank, record)
        elif isinstance(record, Alert):
            self._presence.moved(rank, record.time, record.step)

    def feed_many(self, rank: int, records: Iterable[Record], attempt: int = 1, host: str = "") -> None:
        """Take records of one rank, in the order they were written."""
        for record in records:
            self.feed(rank, record, attempt, host)

    def _ending(self, rank: int, record: Record, attempt: int) -> None:
        if isinstance(record, Event):
            self._exits.event(rank, attempt, record)
        elif isinstance(record, Alert):
            self._raised.take(rank, attempt, record)
        elif isinstance(record, Span) and record.duration is not None:
            self._exits.span(rank, attempt, record)
        if record.step is not None and not isinstance(record, Log):
            self._exits.moved(rank, attempt, record.step)

    def died(self, rank: int, time: int, attempt: int | None = None) -> None:
        """Say that the process of a rank is gone, in the newest attempt unless another is named."""
        attempt = self.run.attempt if attempt is None else attempt
        if self._exits.died(rank, attempt, time) and attempt == self.run.attempt:
            self._presence.gone(rank)

    def tick(self, now: int) -> None:
        """Say what time it is, for what shows by its absence."""
        self._keep(self._presence.tick(now, self._timing.usual_step, self.run))

    def findings(self) -> list[Finding]:
        """What is wrong so far: one finding for each cause, in the order in which they began."""
        ends = self._exits.findings(self.run.attempt, self.run.world)
        found = fold([*self._found.values(), *ends], self._hosts)
        return [*found, *self._raised.findings(found, self.run.world)]

    @property
    def changes(self) -> int:
        """Counts what may have changed the findings; while it stays the same, they do."""
        return self._kept + self._exits.changes + self._raised.changes

    def _keep(self, found: Iterable[Finding]) -> None:
        for each in found:
            self._kept += 1
            mine = each if each.attempt >= self.run.attempt else replace(each, attempt=self.run.attempt)
            if mine.weight < 0:
                self._found.pop(mine.identity, None)
            else:
                self._found[mine.identity] = mine

    def _metric(self, rank: int, record: Metric) -> None:
        points = list(record.points())
        if len(points) > 1:
            # What explains the others is taken first.
            points.sort(key=lambda each: role_of(each[0]).name not in _EXPLAINING)
        for key, value in points:
            if isinstance(value, (int, float)):
                step = record.step
                if key.startswith("stepscope/"):
                    at = step if step is not None else self._now_step.get(rank)
                    found = self._losses.setdefault(rank, Losses(rank)).take(key, at, record.time, value)
                    self._keep([found] if found else ())
                    continue
                if step is None:
                    step = self._counter[key, rank] = self._counter.get((key, rank), -1) + 1
                elif not key.startswith("system/"):
                    self._presence.moved(rank, record.time, step)
                    self._now_step[rank] = step
                    if self.run.attempt > 1 and self.run.resumed is None:
                        self.run.resumed = step
                self._keep(self._value(rank, key, step, record.time, float(value)))

    def _value(self, rank: int, key: str, step: int, time: int, value: float) -> Iterator[Finding]:
        series = self.run.series.get((key, rank)) or self._new_series(key, rank)
        if series is None:
            return
        if not math.isfinite(value):
            watch = self._nonfinite.setdefault(rank, NonFinite(rank))
            found = watch.take(series, step, time, value, self.run)
            if found is not None:
                yield found
            return
        before = series.values[-1] if series.values else value
        point = Point(step, time, value, series.add(step, value))
        self._note_change(series, point, before)
        for each in self._watches[key, rank]:
            found = each.take(series, point, self.run)
            if found is not None:
                yield found
        if not key.startswith("system/"):
            yield from self._agreement.take(key, rank, step, time, value, self.run)
            if series.role.name in ("loss", "reward") and not series.role.held_out:
                found = self._steps.setdefault((key, rank), Steps(key, rank)).take(step, time, self.run)
                if found is not None:
                    yield found

    def _new_series(self, key: str, rank: int) -> Series | None:
        if len(self.run.series) >= MOST_SERIES:
            return None
        series = Series(key, rank, role_of(key))
        self.run.series[key, rank] = series
        self._watches[key, rank] = _watches(series.role)
        if series.role.name:
            self.run.roles.add(series.role.name)
        return series

    def _note_change(self, series: Series, point: Point, before: float) -> None:
        """Remember changes of learning rates and stages: they explain what follows."""
        role = series.role.name
        if role not in ("lr", "stage") or before == point.value:
            return
        rose = role == "lr" and point.value > 1.3 * before > 0
        moved = role == "stage" and point.value == round(point.value, 6)
        if rose or moved:
            self.run.changes.append(Change(point.step, f"{role}:{series.key}", before, point.value))
            del self.run.changes[:-MOST_CHANGES]

    def _span(self, rank: int, span: Span) -> None:
        if span.duration is None:
            self._presence.opened(rank, span)
            return
        self._presence.closed(rank, span)
        self._presence.moved(rank, span.time + span.duration, span.step)
        if span.step is None:
            return
        self._keep(self._timing.take(rank, span, self.run))
        if span.parent_id is None and self._timing.usual_step:
            self._keep(self._clocks.take(rank, span, self._timing.usual_step, self.run))

    def _event(self, rank: int, event: Event) -> None:
        if event.name == names.EVENT_STARTED:
            config = event.attrs.get("config")
            if isinstance(config, dict) and not self.run.config:
                self.run.config = config
                self.run.settings.clear()
            self._keep(self._settings.take(rank, event.time, _comparable(event.attrs), self.run))
        elif event.name == names.EVENT_FINISHED:
            self._presence.ended(rank)


def _comparable(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """What of the start of a run should be the same on every rank."""
    kept = ("config", "git.commit", "vcs.ref.head.revision", "python.version", "versions", "packages", "code.version")
    return {name: attrs[name] for name in kept if name in attrs}
