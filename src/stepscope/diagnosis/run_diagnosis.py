"""The diagnosis engine: feeds the records of a run to the detectors and collects their findings."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any

from stepscope.diagnosis import registry
from stepscope.diagnosis.detector import (
    EventTaker,
    Found,
    LogTaker,
    RowTaker,
    RunState,
    SampleTaker,
    SpanTaker,
    Steps,
    StepTaker,
    StepTimes,
    Usual,
    Values,
)
from stepscope.diagnosis.detectors.desync import Desync, Shared
from stepscope.diagnosis.detectors.hang import Hang
from stepscope.diagnosis.detectors.lost_records import LostRecords
from stepscope.diagnosis.detectors.not_finite import NotFinite
from stepscope.diagnosis.exits import Exits
from stepscope.diagnosis.finding import Finding, finding_of_alert, on_ranks
from stepscope.diagnosis.folding import fold
from stepscope.diagnosis.isolation import Guarded, guarded_take
from stepscope.diagnosis.kept_findings import KeptFindings
from stepscope.diagnosis.raised_alerts import RaisedAlerts
from stepscope.diagnosis.roles import Role, recognised, role_of
from stepscope.diagnosis.series_history import BLOCK, Series
from stepscope.diagnosis.stretches import MIN_STEPS, Stretch, stretch_at
from stepscope.diagnosis.timing import Timing
from stepscope.model import names
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span, Value
from stepscope.model.run_description import config_of

Takes = tuple[Callable[[], Finding | None], ...]
VERSION = 21
"""Incremented when findings change: runs diagnosed by an older version are diagnosed again."""
MAX_SERIES = 20_000
"""The most series that are watched. Beyond that..."""
FEW_VALUES, SILENT_STEPS = 8, 64
"""... one with fewer values that has had none for so many steps makes room for a new one."""
LARGEST = 10**300
"""A larger integer does not fit a float and is ignored."""
MAX_PLANNED = 500_000
"""The most keys in all cached key sets."""
MIN_RECORDS = 2 * MIN_STEPS
PART_STEPS = 32
"""The most steps that detectors look at together."""
MAX_IN_VAIN, UNUSUAL_STEPS = 4, 16
"""After so many steps in a row at which something was not usual, so many are processed before that is tried again."""
EXPLAINING = frozenset(("lr", "stage", "loss_scale"))
"""Roles that explain other metrics of the same record, and are processed first."""


class Plan:
    """The keys of a record by how they are processed. Keys without a role are left out unless compared across ranks."""

    __slots__ = ("beats", "counters", "done", "learning", "moves", "shared", "watched", "world")

    def __init__(self, keys: Collection[str], world: int) -> None:
        """Start with the full names of the keys, and the number of ranks."""
        self.world = world
        self.watched: tuple[tuple[str, Series, Any, tuple[Any, ...], tuple[Any, ...]], ...] = ()
        """Key, series, its `add`, and the `take` of the detectors for each value and for each block."""
        self.learning: tuple[tuple[str, Series, tuple[Usual[Values], ...]], ...] | None = None
        """Key, series and detectors, where all detectors of each value can take what is usual many at a time."""
        self.shared: list[tuple[str, Shared]] = []
        self.done = -1
        """How many shared keys were done when `shared` was made."""
        self.counters: tuple[tuple[str, str], ...] = ()
        """Keys that count lost records, with their full names."""
        self.moves = any(not name.startswith(("system/", "stepscope/")) for name in keys)
        """Whether a record like this is progress of the loop."""
        self.beats = names.KEY_BEATS in keys
        """Whether it is a heartbeat."""


class Diagnosis:
    """The diagnosis of one run. Records of one rank must be fed in the order they were written."""

    def __init__(
        self,
        world: int = 1,
        config: Mapping[str, Any] | None = None,
        *,
        earlier: Sequence[float] = (),
        detectors: Iterable[Any] | None = None,
    ) -> None:
        """Start with the number of ranks, the configuration, and the median step times of earlier runs in seconds.

        `detectors` are classes in addition to the built-in ones; by default those of installed packages.
        """
        self.run = RunState(config=dict(config or {}), world=world, earlier=tuple(earlier))
        added = registry.installed() if detectors is None else tuple(detectors)
        self._kinds = registry.kinds(added)
        self._added = tuple(each for each in added if registry.is_series(each))
        self._detectors: dict[tuple[str, int], tuple[Takes, Takes]] = {}
        self._plans: dict[tuple[int, str | None, tuple[str, ...]], Plan] = {}
        self._planned = 0
        """The number of keys in the plans."""
        self._framework = ""
        """The framework whose names the run uses, once they are recognised."""
        self._full_until = -(10**18)
        """The step up to which no room is made for more series."""
        self._not_finite, self._lost, self._desync = NotFinite(self.run), LostRecords(self.run), Desync(self.run)
        self._hang, self._exits, self._raised = Hang(self.run), Exits(), RaisedAlerts()
        watching: list[Any] = [make(self.run) for make in registry.RUN]
        others = [make for make in added if not registry.is_series(make)]
        guarded = [Guarded(make.__name__, partial(make, self.run)) for make in others]
        watching += guarded
        self._on_span = [each.span for each in watching if isinstance(each, SpanTaker)]
        self._on_step = [each.step for each in watching if isinstance(each, StepTaker)]
        taking = [each for each in watching if isinstance(each, StepTaker)]
        learning: list[Usual[Steps]] = [each for each in taking if isinstance(each, Usual)]
        self._learn_steps: list[Usual[Steps]] | None = learning if len(learning) == len(taking) else None
        """The detectors of steps, where all of them can take what is usual many at a time."""
        self._on_row = [each.row for each in watching if isinstance(each, RowTaker)]
        self._on_log = [each.log for each in watching if isinstance(each, LogTaker)]
        self._on_sample = [each.sample for each in watching if isinstance(each, SampleTaker)]
        self._on_event = [each.event for each in watching if isinstance(each, EventTaker)]
        self._timing = Timing(self.run, self._step_ended, self._row_ended)
        self._moved: tuple[int, int | None, int] = (0, None, 0)
        """Rank, step and attempt of the last record with a step."""
        self._kept = 0
        self._hosts: dict[int, str] = {}
        self._steps: dict[int, int] = {}
        self._found = KeptFindings()
        self._take: dict[type, Callable[[int, Any], None]] = {
            Metric: self._metric,
            Span: self._span,
            Log: self._log,
            Event: self._event,
            Alert: self._alert,
        }
        self._keep_all([each.problem for each in guarded if each.problem is not None])

    def feed(self, rank: int, record: Record, attempt: int = 1, host: str = "") -> None:
        """Process one record. Of an earlier attempt, only records about its end are used."""
        self.feed_many(rank, (record,), attempt, host)

    def feed_many(self, rank: int, records: Iterable[Record], attempt: int = 1, host: str = "") -> None:
        """Process records of one rank, in the order they were written: the same as one by one, but many are quicker."""
        if attempt > self.run.attempt:
            self._restart(attempt)
        self._hosts[rank] = host
        records = records if isinstance(records, list) else list(records)
        if not self.run.begun:
            self.run.begun = records[0].time if records else 0
        at, plain = 0, self.run.world > 1 or attempt < self.run.attempt or self._learn_steps is None
        while not plain and at + MIN_RECORDS <= len(records):
            stretch = None if records[at].step is None else stretch_at(rank, records, at)
            if stretch is not None:
                self._take_stretch(rank, stretch, attempt)
                at += len(stretch.records)
            else:
                upto = _next_step(records, at)
                self._take_each(rank, records[at:upto], attempt)
                at = upto
        self._take_each(rank, records[at:] if at else records, attempt)

    def _take_stretch(self, rank: int, stretch: Stretch, attempt: int) -> None:
        """Process consecutive steps with the same records: as columns where no detector finds anything unusual."""
        at, left, size = 0, len(stretch.steps), stretch.size
        in_vain = 0
        while at < left:
            part = stretch.part(at, min(left - at, PART_STEPS))
            count = self._usual(rank, part)
            if count > 1:
                self._learn(rank, part if count == len(part.steps) else part.part(0, count), attempt)
                at, in_vain = at + count, 0
                continue
            in_vain += 1
            upto = at + (1 if in_vain < MAX_IN_VAIN else UNUSUAL_STEPS)
            self._take_each(rank, stretch.records[at * size : upto * size], attempt)
            at = upto

    def _usual(self, rank: int, ahead: Stretch) -> int:
        """Count the steps, from the first on, in which no detector finds anything. Changes nothing."""
        run, count, spans = self.run, len(ahead.steps), ahead.spans
        newest = max([each.step for each in run.held_out], default=ahead.steps[0] - 2)
        if newest >= ahead.steps[0] - 1 or not self._hang.is_calm() or (run.attempt > 1 and run.resumed is None):
            return 0
        for each in ahead.metrics:
            plan = self._plans.get((rank, each.category, tuple(each.values)))
            if plan is None or plan.world != run.world or plan.learning is None:
                return 0
            for key, series, detectors in plan.learning:
                count = min(count, series.room)
                values = Values(ahead.steps, each.times, each.values[key])
                for detector in detectors:
                    count = min(count, detector.usual(values)) if count else 0
        if spans is None or not count:
            return count
        if not self._timing.is_between(rank):
            return 0
        for taking in self._learn_steps or ():
            count = min(count, taking.usual(spans.times)) if count else 0
        return count

    def _learn(self, rank: int, taken: Stretch, attempt: int) -> None:
        """Take steps that are usual."""
        last, newest, spans = taken.steps[-1], 0, taken.spans
        for each in taken.metrics:
            plan = self._plans[rank, each.category, tuple(each.values)]
            for key, series, detectors in plan.learning or ():
                values = Values(taken.steps, each.times, each.values[key])
                series.extend(*values)
                for detector in detectors:
                    detector.learn(values)
            if plan.moves:
                newest, self._steps[rank] = max(newest, *each.times), last
        if spans is not None:
            self._timing.learn(spans.times)
            for taking in self._learn_steps or ():
                taking.learn(spans.times)
            newest = max(newest, *spans.ended)
        self._exits.moved(rank, attempt, taken.steps[0])
        self._exits.moved(rank, attempt, last)
        self._moved = (rank, last, attempt)
        if newest:
            columns = spans.columns if spans is not None else ()
            self._hang.learn(rank, newest, last, (span.span_id for each in columns for span in each))

    def _take_each(self, rank: int, records: Iterable[Record], attempt: int) -> None:
        """Process records one by one."""
        over, take = attempt < self.run.attempt, self._take
        last = self._moved[1] if self._moved[::2] == (rank, attempt) else None
        for record in records:
            kind, step = type(record), record.step
            if step != last and step is not None and kind is not Log:
                self._exits.moved(rank, attempt, step)
                self._moved, last = (rank, step, attempt), step
            if kind is not Metric and kind is not Log:
                self._ending(rank, record, attempt)
            if not over:
                take[kind](rank, record)

    def _restart(self, attempt: int) -> None:
        self.run.attempt, self.run.resumed = attempt, None
        self._hang.restart()
        for series in self.run.series.values():
            series.restart()

    def _ending(self, rank: int, record: Record, attempt: int) -> None:
        if type(record) is Span:
            if record.status and record.duration is not None:
                self._exits.span(rank, attempt, record)
        elif isinstance(record, Event):
            self._exits.event(rank, attempt, record, self._hosts.get(rank, ""))
        elif isinstance(record, Alert) and record.name != names.ALERT_FINDING:
            self._raised.take(rank, attempt, record)

    def died(self, rank: int, time: int, attempt: int | None = None) -> None:
        """Report that the process of a rank is gone, in the newest attempt unless another is given."""
        attempt = self.run.attempt if attempt is None else attempt
        if self._exits.died(rank, attempt, time, self.run.usual_step) and attempt == self.run.attempt:
            self._hang.gone(rank)

    def tick(self, now: int) -> None:
        """Advance the time, for faults that show as missing records."""
        self._keep_all(self._hang.tick(now))

    def findings(self) -> list[Finding]:
        """Return the findings so far, one for each cause, in the order in which they began."""
        ends = self._exits.findings(self.run.attempt, self.run.world)
        found = [self._placed(each) for each in fold([*self._found, *ends], self._kinds, self._hosts)]
        return [*found, *self._raised.findings(found, self.run.world)]

    def _placed(self, finding: Finding) -> Finding:
        """Add the ranks to the text of a finding if it does not name them."""
        if "rank" in finding.text or not finding.ranks or self.run.world < 2:
            return finding
        comma = "," if ", usually " in finding.text else ""
        return replace(finding, text=finding.text + comma + on_ranks(finding.ranks, self.run.world))

    @property
    def ended(self) -> frozenset[tuple[int, int]]:
        """Return the attempts and ranks that have an exit record."""
        return self._exits.ended

    @property
    def changes(self) -> int:
        """A counter of changes: the findings are unchanged while it is."""
        return self._kept + self._exits.changes + self._raised.changes

    def _keep(self, found: Finding) -> None:
        self._kept += 1
        mine = found if found.attempt >= self.run.attempt else replace(found, attempt=self.run.attempt)
        if mine.weight < 0:
            self._found.withdraw(mine)
        else:
            self._found.keep(mine)

    def _keep_all(self, found: Found) -> None:
        for each in found:
            self._keep(each)

    def _metric(self, rank: int, record: Metric) -> None:
        values = record.values
        try:
            finite = isfinite(sum(values.values()))  # type: ignore[arg-type]  # histograms raise TypeError
        except (TypeError, OverflowError):
            finite = False
        if not finite:
            values = self._finite(rank, record)
        place = (rank, record.category, tuple(values))
        plan = self._plans.get(place)
        if plan is None or plan.world != self.run.world:
            plan = self._plan(place)
        step, time, run = record.step, record.time, self.run
        if step is not None and plan.moves:
            self._hang.moved(rank, time, step)
            self._steps[rank] = step
            if run.resumed is None and run.attempt > 1:
                run.resumed = step
        elif plan.beats:
            self._keep_all(self._hang.beat(rank, time))
        elif plan.moves:
            self._hang.worked()
        reached = self._steps.get(rank) if step is None and record.category == "system" else None
        for key, series, add, each_value, each_block in plan.watched:
            where = step if step is not None else series.count + series.bad
            if reached is not None:  # a reading of the machine is of the step that the training has reached
                where = max(reached, series.step)
            block = add(where, time, values[key])
            for take in each_value:
                found = take()
                if found is not None:
                    self._keep(found)
            if block:
                if series.count == BLOCK and run.is_sparse(series):
                    series.split()
                for take in each_block:
                    found = take()
                    if found is not None:
                        self._keep(found)
        if plan.shared and step is not None:
            self._compare(plan, rank, step, time, values)
        for key, name in plan.counters:
            at = step if step is not None else self._steps.get(rank)
            found = self._lost.take(rank, name, at, time, values[key])  # type: ignore[arg-type]
            if found is not None:
                self._keep(found)

    def _finite(self, rank: int, record: Metric) -> dict[str, Value]:
        """Evaluate the non-finite values of a record, and return the finite ones."""
        finite: dict[str, Value] = {}
        bad: list[tuple[str, float, Series | None]] = []
        for (name, value), key in zip(record.points(), record.values, strict=True):
            series = self._watch(name, rank) if self._role(name).name else None
            if isinstance(value, float) and not isfinite(value):
                bad.append((name, value, series))
            elif isinstance(value, (int, float)) and -LARGEST < value < LARGEST:
                finite[key] = value
        for name, value, series in bad:
            step = record.step
            if step is None:
                step = series.count + series.bad if series is not None else self._steps.get(rank, 0)
            found = self._not_finite.take(rank, name, step, record.time, value)
            if series is not None:
                series.bad += 1
            if found is not None:
                self._keep(found)
        return finite

    def _compare(self, plan: Plan, rank: int, step: int, time: int, values: dict[str, Value]) -> None:
        """Compare values across ranks."""
        if plan.done != self._desync.done:
            plan.shared = [each for each in plan.shared if not each[1].done]
            plan.done = self._desync.done
        for key, shared in plan.shared:
            found = self._desync.take(shared, rank, step, time, values[key])  # type: ignore[arg-type]
            if found is not None:
                self._keep(found)

    def _plan(self, place: tuple[int, str | None, tuple[str, ...]]) -> Plan:
        """Compute how records with these keys are processed."""
        rank, category, keys = place
        full = {key: key if category is None else f"{category}/{key}" for key in keys}
        plan, dropped = Plan(full.values(), self.run.world), self._desync.dropped
        if not self._framework:
            self._recognise(full.values())
        roles = {key: self._role(name).name for key, name in full.items()}
        watched = []
        for key in sorted(keys, key=lambda each: (roles[each] not in EXPLAINING, each)):
            series = self._watch(full[key], rank) if roles[key] else None
            if series is not None:
                watched.append((key, series, series.add, *self._detectors[full[key], rank]))
        plan.watched = tuple(watched)
        plan.learning = _learning(plan.watched)
        plan.counters = tuple((key, name) for key, name in full.items() if self._lost.watches(name))
        if self.run.world > 1:
            own = ("system/", "stepscope/")
            plan.shared = [(k, self._desync.of(name)) for k, name in full.items() if not name.startswith(own)]
        self._planned += len(keys)
        if self._planned > MAX_PLANNED or dropped != self._desync.dropped:
            self._clear_plans()
        if plan.beats or plan.counters or plan.shared:
            plan.learning = None
        if len(watched) == sum(map(bool, roles.values())):  # all that have a role are watched
            self._plans[place] = plan
        return plan

    def _role(self, key: str) -> Role:
        return role_of(key, self._framework)

    def _recognise(self, keys: Iterable[str]) -> None:
        """Find out which framework's names these are; series that mean something else in it begin anew."""
        vocabulary = recognised(keys)
        if vocabulary is None:
            return
        self._framework = vocabulary.name
        gone = {place for place, each in self.run.series.items() if each.role != self._role(each.key)}
        self.run.drop(gone)
        for place in gone:
            del self._detectors[place]
        self._clear_plans()

    def _clear_plans(self) -> None:
        self._plans.clear()
        self._planned = 0

    def _watch(self, key: str, rank: int) -> Series | None:
        """Return the series of a metric with a role; None when there are too many."""
        known = self.run.series.get((key, rank))
        if known is not None or (len(self.run.series) >= MAX_SERIES and not self._make_room()):
            return known
        role = self._role(key)
        series = Series(key, rank, role)
        self.run.add(series)
        each_value: list[Any] = []
        each_block: list[Any] = []
        for make in (*registry.SERIES, *self._added):
            if role.name not in make.ROLES or make.HELD_OUT not in (None, role.held_out):
                continue
            if make in self._added:
                take = guarded_take(make.__name__, rank, partial(make, series, self.run))
            else:
                take = make(series, self.run).take
            (each_value if make.EACH == "value" else each_block).append(take)
        self._detectors[key, rank] = (tuple(each_value), tuple(each_block))
        return series

    def _make_room(self) -> bool:
        """Drop series that ended after a few values; return whether there were any. Slow, so it looks now and then."""
        now, steps = self._moved[1] or 0, self._steps
        if now < self._full_until:
            return False
        self._full_until = now + SILENT_STEPS
        gone = {
            place
            for place, each in self.run.series.items()
            if 0 < each.count + each.bad < FEW_VALUES and steps.get(each.rank, 0) - each.step > SILENT_STEPS
        }
        self.run.drop(gone)
        for place in gone:
            del self._detectors[place]
        if gone:
            self._clear_plans()
            self._full_until = now
        return bool(gone)

    def _span(self, rank: int, span: Span) -> None:
        if span.duration is None:
            self._hang.opened(rank, span)
            return
        self._hang.closed(rank, span)
        if span.step is None:
            self._hang.worked()
            return
        self._hang.moved(rank, span.time + span.duration, span.step)
        for take in self._on_span:
            if found := take(rank, span):
                self._keep_all(found)
        self._timing.take(rank, span)

    def _step_ended(self, times: StepTimes) -> None:
        for take in self._on_step:
            if found := take(times):
                self._keep_all(found)

    def _row_ended(self, row: dict[int, StepTimes]) -> None:
        for take in self._on_row:
            self._keep_all(take(row))

    def _log(self, rank: int, log: Log) -> None:
        step = log.step if log.step is not None else self._steps.get(rank)
        if log.scope == names.SCOPE_SAMPLES:
            for take in self._on_sample:
                self._keep_all(take(rank, log, step))
            return
        if log.scope.startswith(names.SCOPE_CONSOLE):
            self._exits.line(rank, self.run.attempt, log)
        for take in self._on_log:
            self._keep_all(take(rank, log, step))

    def _alert(self, rank: int, alert: Alert) -> None:
        if alert.name == names.ALERT_FINDING:
            found_by_trainer = finding_of_alert(alert, rank, self.run.attempt)
            if found_by_trainer not in self._found:
                self._found.keep(found_by_trainer)
            self._kept += 1
        elif alert.step is not None:
            self._hang.moved(rank, alert.time, alert.step)

    def _event(self, rank: int, event: Event) -> None:
        config = config_of(event)
        if config:
            self.run.configure(rank, config)
        if event.name == names.EVENT_FINISHED:
            self._hang.gone(rank)
        elif event.name == names.EVENT_POSITION:
            self._keep_all(self._hang.positioned(rank, event))
        for take in self._on_event:
            self._keep_all(take(rank, event))


def _learning(watched: Iterable[tuple[str, Series, Any, tuple[Any, ...], tuple[Any, ...]]]) -> Any:
    """Return the series with their detectors of each value; None unless all of these take values many at a time."""
    found = []
    for key, series, _, each_value, _ in watched:
        detectors = [getattr(take, "__self__", None) for take in each_value]
        if not all(isinstance(each, Usual) for each in detectors):
            return None
        found.append((key, series, tuple(detectors)))
    return tuple(found)


def _next_step(records: Sequence[Record], at: int) -> int:
    """Return where the next step begins."""
    step, end = records[at].step, at + 1
    while end < len(records) and (records[end].step is None or records[end].step == step):
        end += 1
    return end
