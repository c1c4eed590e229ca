"""The evaluator: records, findings and the time in, alerts out; the same code in trainer, hub and replay."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepscope.alerts.alert import (
    ATTR_FINGERPRINT,
    ATTR_RULE,
    ATTR_STATE,
    Alert,
    Subject,
    alert_id,
    evidence,
    finding_subject,
)
from stepscope.alerts.rule import Compiled, fill
from stepscope.alerts.rule_matching import Matcher, RunSeries, Series, Watch
from stepscope.alerts.state_machine import OPEN, Machine, State
from stepscope.diagnosis.finding import Finding, finding_of_alert, number
from stepscope.model import records
from stepscope.model.names import ALERT_FINDING, EVENT_FINISHED, severity_word
from stepscope.model.ports import Writer
from stepscope.model.records import Metric, Record

OLD_NS = 3600 * 1_000_000_000
"""A value or finding older than this when it arrives is history, as in an imported run, and raises no alert."""
QUIET_NS, MAX_KNOWN = 2 * OLD_NS, 100_000
MAX_SHAPED = 200_000
"""Names in all shapes of records (sets of names) of a run for which the watched values are cached."""
RECORDED = "alert"
"""The finding kind of an alert recorded by the program itself."""


class Evaluator:
    """Evaluates rules. Not thread-safe; `changed` holds the alerts whose state changed since it was cleared."""

    def __init__(
        self, rules: Sequence[Compiled], who: str = "hub", known_findings: set[tuple[str, int | None]] | None = None
    ) -> None:
        self.matcher = Matcher(rules)
        self.changed: dict[str, Alert] = {}
        self.open: dict[str, Alert] = {}
        """By fingerprint: those that are pending or firing."""
        self.known_findings = set() if known_findings is None else known_findings
        """Fingerprint and step of findings that already raised an alert: read again, they raise no other."""
        self._who = who
        self._runs: dict[str, RunSeries] = {}
        self._changing: dict[str, Watch] = {}
        """By fingerprint: what must be checked as time passes."""
        self._absent: dict[tuple[str, str, int], tuple[RunSeries, Series]] = {}

    def feed(self, writer: Writer, found: Iterable[Record], now: int) -> None:
        """Evaluate records of one writer, in order; `now` is the time of the evaluation, in ns."""
        run = self._runs.get(writer.run) or self._new_run(writer)
        if not run.described:
            self._describe(run, writer)
        run.last_seen = now
        rank, history = writer.rank, now - OLD_NS
        for record in found:
            if type(record) is Metric:
                if not 0 < record.time < history:
                    self._metric(run, rank, record, now)
            elif type(record) is records.Alert:
                self._recorded(run, rank, record, now)
            elif type(record) is records.Event and record.name == EVENT_FINISHED and writer.main and not rank:
                self.end_run(run.id, record.time)

    def _metric(self, run: RunSeries, rank: int, record: Metric, now: int) -> None:
        values = record.values
        shape = (rank, record.category, *values)
        watched = run.watched.get(shape)
        if watched is None:
            watched = self._watched(run, rank, record, shape)
        for name, series in watched:
            value = values[name]
            series.points += 1
            if isinstance(value, (float, int)) and not series.low <= value <= series.high:
                self._value(run, rank, series, record, _float(value), now)

    def _value(self, run: RunSeries, rank: int, series: Series, record: Metric, value: float, now: int) -> None:
        """Evaluate the rules of a series on a value."""
        time, step, started = record.time, record.step, run.started
        for watch in series.watches:
            machine = watch.machine
            machine.points = series.points - 1
            if not machine.calm or not machine.low <= value <= machine.high:
                self._settle(run, watch, machine.take(time, step, value, started), time, step)
        for each in series.together:
            if (complete := each.values.take(rank, step, value)) is not None:
                at, made = complete
                for watch in each.watches.values():
                    self._settle(run, watch, watch.machine.take(time, at, made, started), time, at)
        if series.absent:
            self._take_value(run, series, time, step, value, now)
        if series.healthy[0] == series.healthy[0]:
            series.narrow()

    def take_finding(
        self, writer: Writer, finding: Finding, now: int, who: str | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        """Evaluate a finding; one that is reported again updates the same alert. INFO raises none."""
        if finding.severity == "INFO":
            return
        run = self._runs.get(writer.run) or self._new_run(writer)
        about = finding_subject(run.id, finding)
        watch = run.findings.get(about.fingerprint)
        at = finding.time or now
        known = about.fingerprint in self.open
        if not known and ((about.fingerprint, finding.step) in self.known_findings or now - at > OLD_NS):
            return
        self.known_findings.add((about.fingerprint, finding.step))
        if watch is None:
            rule = self.matcher.finding_rule(run, finding.kind)
            if rule is None or not self.matcher.admit(rule):
                return
            watch = run.findings[about.fingerprint] = Watch(Machine(rule), finding_subject(run.id, finding, rule.name))
            self._adopt(watch)
        machine = watch.machine
        machine.value = finding.value
        new = machine.judge(at, finding.step, breaching=True, recovered=False)
        machine.time = max(now, at)  # absence is measured by our clock
        self._settle(run, watch, new, at, finding.step)
        if (alert := watch.alert) is not None:
            alert.seen_by = (who or self._who,) if new == "firing" and alert.count == 1 else alert.seen_by
            alert.add_source(who or self._who)
            alert.message = self._message(run, watch, alert, finding.text)
            alert.severity = machine.rule.rule.severity or finding.severity
            alert.last_step = finding.last if finding.last is not None else finding.step
            alert.finding = {**evidence(finding), **(more or {})}

    def tick(self, now: int) -> None:
        """Advance the time, for conditions about missing data."""
        for run, series in list(self._absent.values()):
            for watch in series.absent:
                limit = watch.machine.rule.condition.absent
                if not run.ended and series.last_seen >= 0 and now - series.last_seen > limit * 1e9:
                    began = series.last_seen + int(limit * 1e9)
                    since = began if watch.machine.calm else now
                    self._settle(
                        run, watch, watch.machine.judge(since, None, breaching=True, recovered=False), now, None
                    )
        for fingerprint, watch in list(self._changing.items()):
            run = self._runs[watch.subject.run]
            self._settle(run, watch, watch.machine.tick(now), now, None)
            if watch.machine.calm:
                self._changing.pop(fingerprint, None)

    def end_run(self, id: str, now: int) -> None:
        """Resolve the open alerts of a run that has ended, and forget its series."""
        run = self._runs.pop(id, None)
        for watch in run.watches() if run is not None else ():
            if run is not None and not watch.machine.calm:
                if watch.alert is not None:
                    watch.alert.ended = True
                self._settle(run, watch, watch.machine.end(), now, None)
            self._changing.pop(watch.subject.fingerprint, None)
        if run is not None:
            run.ended = True
            self.matcher.forget(run)
            self._absent = {key: each for key, each in self._absent.items() if key[0] != id}
        for alert in [alert for alert in self.open.values() if alert.subject.run == id]:
            alert.ended = True
            self._close(alert, now)

    def release(self, id: str) -> None:
        """Forget a run whose alerts another process evaluates from now on."""
        if (run := self._runs.pop(id, None)) is not None:
            self.matcher.forget(run)
        self.open = {key: alert for key, alert in self.open.items() if alert.subject.run != id}
        self.changed = {key: alert for key, alert in self.changed.items() if alert.subject.run != id}
        self._changing = {key: watch for key, watch in self._changing.items() if watch.subject.run != id}
        self._absent = {key: each for key, each in self._absent.items() if key[0] != id}

    def forget_quiet(self, now: int) -> None:
        """Forget runs without records for hours and without open alerts; if records arrive again, they start over."""
        busy = {alert.subject.run for alert in self.open.values()}
        for id, run in list(self._runs.items()):
            if id not in busy and now - run.last_seen > QUIET_NS:
                self.end_run(id, now)
        if len(self.known_findings) > MAX_KNOWN:
            self.known_findings.clear()

    def restore(self, alerts: Iterable[Alert]) -> None:
        """Restore alerts after a restart; an open one continues when values of its series arrive again."""
        for alert in alerts:
            if alert.subject.finding:
                self.known_findings.add((alert.fingerprint, alert.step))
            if alert.state in OPEN or alert.state == "pending":
                self.open[alert.fingerprint] = alert

    def _new_run(self, writer: Writer) -> RunSeries:
        made = RunSeries(writer.run, writer.project, writer.name or "", writer.world_size, writer.wall_ns)
        self._runs[writer.run] = made
        return made

    def _describe(self, run: RunSeries, writer: Writer) -> None:
        """Complete a run that was first known by a finding, which has neither name nor start."""
        run.described, run.name = True, writer.name or run.name
        run.world, run.started = writer.world_size, writer.wall_ns
        run.rules.clear()
        for alert in self.open.values():
            if alert.subject.run == run.id and not alert.run_name:
                alert.run_name = run.name
                self._note(alert)

    def _watched(
        self, run: RunSeries, rank: int, record: Metric, shape: tuple[object, ...]
    ) -> tuple[tuple[str, Series], ...]:
        """Find the values of a record that rules watch, and remember them for records of the same shape."""
        found = []
        for name, (key, _) in zip(record.values, record.points(), strict=True):
            series = run.series.get((key, rank)) or self._new_series(run, key, rank)
            if series.watches or series.together or series.absent:
                found.append((name, series))
        run.shaped += len(shape)
        if run.shaped > MAX_SHAPED:
            run.watched.clear()
            run.shaped = len(shape)
        run.watched[shape] = tuple(found)
        return run.watched[shape]

    def _new_series(self, run: RunSeries, key: str, rank: int) -> Series:
        series = self.matcher.match(run, key, rank)
        shared = (watch for each in series.together for watch in each.watches.values())
        for watch in (*series.watches, *shared, *series.absent) if self.open else ():
            self._adopt(watch)
        if series.absent:
            self._absent[run.id, key, rank] = (run, series)
        return series

    def _adopt(self, watch: Watch) -> bool:
        """Continue an alert that is already open: from before a restart, or reported by the trainer."""
        alert = self.open.get(watch.subject.fingerprint)
        if alert is None or watch.alert is not None:
            return False
        watch.alert = alert
        alert.add_source(self._who)
        watch.machine.restore(alert.state, alert.began, alert.step, alert.value, alert.changed)
        self._changing[alert.fingerprint] = watch
        return True

    def _take_value(self, run: RunSeries, series: Series, time: int, step: int | None, value: float, now: int) -> None:
        series.last_seen = now
        for watch in series.absent:
            if not watch.machine.calm:
                watch.machine.value = value
                state = watch.machine.judge(time, step, breaching=False, recovered=True)
                self._settle(run, watch, state, time, step)

    def _recorded(self, run: RunSeries, rank: int, record: records.Alert, now: int) -> None:
        """Handle an alert in the run's journal: one of a rule in the trainer, or one that the program raised itself."""
        rule, state = record.attrs.get(ATTR_RULE), record.attrs.get(ATTR_STATE)
        fingerprint = record.attrs.get(ATTR_FINGERPRINT)
        if not isinstance(rule, str) or not isinstance(fingerprint, str) or state not in ("firing", "resolved"):
            found = finding_of_alert(record, rank, 1)
            if record.name != ALERT_FINDING:
                text = ": ".join(filter(None, (record.name, record.message)))
                found = replace(found, kind=RECORDED, key=record.name, step=record.step, text=text)
            writer = Writer(id="", run=run.id, project=run.project, name=run.name or None)
            self.take_finding(writer, found, now, "trainer")
            return
        alert = self.open.get(fingerprint)
        if alert is not None:
            alert.add_source("trainer")
            if state == "resolved" and fingerprint not in self._changing:
                self._close(alert, record.time)
        elif state == "firing" and len(self.open) < MAX_KNOWN:
            self._open_foreign(run, record, fingerprint)

    def _open_foreign(self, run: RunSeries, record: records.Alert, fingerprint: str) -> None:
        attrs = record.attrs
        key, rank, value = attrs.get("alert.key", ""), attrs.get("alert.rank"), attrs.get("alert.value")
        number = rank if isinstance(rank, int) else None
        about = Subject(str(attrs[ATTR_RULE]), run.id, str(key), number, str(attrs.get("alert.finding", "")))
        if about.fingerprint != fingerprint:
            return
        alert = Alert(
            id=alert_id(fingerprint, record.time),
            subject=about,
            project=run.project,
            run_name=run.name,
            state="firing",
            severity=severity_word(record.severity),
            message=record.message,
            value=float(value) if isinstance(value, (int, float)) else None,
            step=record.step,
            began=record.time,
            fired=record.time,
            changed=record.time,
            seen_by=("trainer",),
        )
        self._note(alert)

    def _settle(self, run: RunSeries, watch: Watch, state: State | None, time: int, step: int | None) -> None:
        """Apply a new state of the state machine to its alert."""
        machine, alert = watch.machine, watch.alert
        if state is None:
            if alert is not None and machine.state == "firing":
                alert.value = machine.value
                alert.last_step = step if step is not None else alert.last_step
            return
        if state == "inactive":
            self._changing.pop(watch.subject.fingerprint, None)
            if alert is not None:
                watch.alert = None
                alert.state, alert.changed = "inactive", time
                self._note(alert)
            return
        if alert is None:
            if self._adopt(watch):
                return
            alert = watch.alert = self._new_alert(run, watch, time, step)
        if state == "firing":
            alert.count += alert.fired > 0
            alert.fired = alert.fired or time
            alert.last_step = step if step is not None else alert.last_step
        alert.state, alert.changed, alert.error = state, time, machine.error
        if state in ("pending", "firing", "error"):  # a resolved alert keeps the message of its breach
            alert.value = machine.value
            if not alert.finding:
                alert.message = self._message(run, watch, alert)
        if state == "resolved":
            watch.alert = None
            alert.resolved = time
            self._changing.pop(alert.fingerprint, None)
        else:
            self._changing[alert.fingerprint] = watch
        self._note(alert)

    def _close(self, alert: Alert, time: int) -> None:
        alert.state = "resolved" if alert.state in OPEN else "inactive"
        alert.changed = alert.resolved = time
        self._note(alert)

    def _note(self, alert: Alert) -> None:
        self.changed[alert.id] = alert
        if alert.state in OPEN or alert.state == "pending":
            self.open[alert.fingerprint] = alert
        elif self.open.get(alert.fingerprint) is alert:
            del self.open[alert.fingerprint]

    def _new_alert(self, run: RunSeries, watch: Watch, time: int, step: int | None) -> Alert:
        rule, begun = watch.machine.rule, watch.machine.breached
        began = begun.time if begun is not None else time
        fingerprint = watch.subject.fingerprint
        return Alert(
            id=alert_id(fingerprint, began),
            subject=watch.subject,
            project=run.project,
            run_name=run.name,
            state="inactive",
            severity=rule.severity,
            threshold=rule.condition.text,
            step=begun.step if begun is not None else step,
            last_step=step,
            began=began,
            changed=time,
            seen_by=(self._who,),
        )

    def _message(self, run: RunSeries, watch: Watch, alert: Alert, text: str = "") -> str:
        rule, about = watch.machine.rule, watch.subject
        value = "" if alert.value is None else number(alert.value)
        values = {
            "rule": rule.name,
            "run": run.id,
            "project": run.project,
            "name": run.name or run.id,
            "key": about.key,
            "rank": "all" if about.rank is None else about.rank,
            "value": value,
            "step": "none" if alert.step is None else alert.step,
            "threshold": rule.condition.text,
            "severity": alert.severity,
            "text": text,
        }
        return fill(rule.rule.message or _default_message(rule, about, alert, text), values)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an int too large for a float
        return math.inf if value > 0 else -math.inf


def _default_message(rule: Compiled, about: Subject, alert: Alert, text: str) -> str:
    where = "" if alert.step is None else " since step {step}"
    rank = "" if about.rank is None else " on rank {rank}"
    if rule.condition.kind == "finding":
        return text
    if rule.condition.kind == "absent":
        return f"{{key}}{rank} has had no value for {rule.condition.text.partition(' ')[2]}"
    if rule.condition.kind == "changes":
        return f"{{key}}{rank} changed to {{value}}{where}"
    of = f" ({rule.rule.over_ranks} over ranks)" if rule.rule.over_ranks else ""
    return f"{{key}}{of}{rank} is {{value}}{where}: the rule {{rule}} says {{threshold}}"
