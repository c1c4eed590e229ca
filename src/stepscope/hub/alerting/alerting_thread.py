"""The alerting thread, which evaluates rules on records as they are stored, and its queries and commands."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stepscope.alerts.alert import Alert, Expected, Silence, Subject, expected_by, mark_expected
from stepscope.alerts.delivery import Deliveries, DeliveryStatus, send_test
from stepscope.alerts.dispatch import Dispatcher, Notification, mute_reason
from stepscope.alerts.evaluator import RECORDED, Evaluator
from stepscope.alerts.rule import Compiled
from stepscope.alerts.state_machine import OPEN
from stepscope.hub.alerting.alert_log import AlertLog, AlertStore
from stepscope.hub.alerting.followed_runs import FollowedRuns
from stepscope.hub.alerting.rule_files import FileMistake, RuleFiles
from stepscope.hub.diagnosing.thread import Changed
from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.limits import MEGA
from stepscope.hub.store.engine import EngineError
from stepscope.hub.texts import Texts
from stepscope.hub.threads import StoredRecords, Topic
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch, Writer

TICK_SECONDS = 0.5
LOOK_SECONDS = 5.0
"""The interval between checks of the rule files and of ended runs."""
MAX_SNAPSHOTS = 5
"""The most snapshots taken in one turn, since each reads the store."""
MAX_SILENCES = 1000


MAX_WAITING, MAX_WAITING_BYTES = 400_000, 256 * MEGA
"""The most queued records, and their memory; more are skipped and counted, so that the store never waits."""


class RuleStatus(NamedTuple):
    """An active rule and its state."""

    rule: Compiled
    series: int
    skipped: int
    firing: int


class Alerting:
    """The alerts of a hub: what is stored waits in a queue for its thread. All methods are thread-safe."""

    def __init__(
        self,
        home: Path,
        folder: Path,
        ended: Callable[[Sequence[str]], Iterable[str]] = lambda runs: (),
        now: Callable[[], int] = time.time_ns,
        shared: AlertStore | None = None,
        page: Texts | None = None,
        written_here: Callable[[Iterable[str]], Collection[str]] = list,
        *,
        stored: Topic[Sequence[ReceivedBatch]] | None = None,
        found: Topic[Sequence[Changed]] | None = None,
        marked: Topic[Expected] | None = None,
    ) -> None:
        self.files = RuleFiles(home, page)
        self._snapshot: Callable[[Alert], dict[str, Any] | None] = lambda alert: None
        self._marked: Topic[Expected] = marked or Topic()
        """Each mark as expected that was added or removed."""
        self._written_here = written_here
        """Returns those of some runs whose records are stored by this hub; Retry when that is not known now."""
        self._ended, self._now = ended, now
        self._log: AlertStore = shared or AlertLog(folder)
        self._lock = threading.RLock()
        self.problem = ""
        self._mistakes: list[FileMistake] = []
        self._stamp: tuple[object, ...] = ()
        self._deliveries = Deliveries({})
        self._address: str | None = None
        self._evaluator = Evaluator(())
        self._dispatcher = Dispatcher({}, (), self._why_muted)
        self._delivered: deque[str] = deque()
        self._unexplained: dict[str, Alert] = {}
        """Alerts that have no snapshot yet."""
        self._looked = 0
        self._load_rules()
        self._followed = FollowedRuns(self._log, lambda: self._evaluator, now)
        self._wake, self._halt = threading.Event(), threading.Event()
        self.waiting: StoredRecords[Changed] = StoredRecords(MAX_WAITING, MAX_WAITING_BYTES, self._wake)
        self._thread = threading.Thread(target=self._loop, name="stepscope-alerts", daemon=True)
        self._log.subscribe(self._wake.set)
        if page is not None:
            page.subscribe(self.look_soon)
        if stored is not None:
            stored.subscribe(self.waiting.add)
        if found is not None:
            found.subscribe(self.waiting.put)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def explain_with(self, snapshot: Callable[[Alert], dict[str, Any] | None]) -> None:
        """Keep what a function reads from the store of an alert that fires, to explain it."""
        self._snapshot = snapshot

    def deliver(self, address: str) -> None:
        """Start delivering notifications; `address` is the hub's, for links."""
        with self._lock:
            self._address = address
            self._open_deliveries()

    def stop(self, seconds: float = 5.0) -> None:
        """Evaluate queued records, save the alerts, and stop."""
        self._halt.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        if not self._thread.is_alive():
            self.step()
        self._deliveries.stop(2.0)
        if not self._thread.is_alive():
            self._note_delivered()

    @property
    def has_own_rules(self) -> bool:
        """Whether there are rules or notifiers beside the built-in ones."""
        return any(stamp is not None for stamp in self._stamp)

    def look_soon(self) -> None:
        """Look at the rules at once."""
        self._looked = 0
        self._wake.set()

    def _loop(self) -> None:
        while not self._halt.is_set():
            woken = self._wake.wait(LOOK_SECONDS if self._is_resting() else TICK_SECONDS)
            self._wake.clear()
            try:
                self.step()
                self.problem = ""
            except Exception as error:  # a bug must not end the thread
                self.problem = f"alerts could not be evaluated: {type(error).__name__}: {error}"[:300]
            if woken:
                self._halt.wait(0.1)

    def _is_resting(self) -> bool:
        """Return whether no alert may change as time passes: then new records wake the thread."""
        return not (self.has_own_rules or self._evaluator.open or self._log.shared)

    def step(self) -> None:
        """Evaluate queued records, write changed alerts, and send due notifications."""
        waiting, _ = self.waiting.take()
        with self._lock:
            now = self._now()
            self._take_changes()
            for each in waiting:
                self._followed.follow({each.writer.run if isinstance(each, Batch) else each.run})
                if isinstance(each, Batch):
                    self._evaluator.feed(each.writer, each.records, now)
                else:
                    self._feed_findings(each, now)
            self._evaluator.tick(now)
            self._look(now)
            self._settle(now)

    def _feed_findings(self, changed: Changed, now: int) -> None:
        writer = Writer(id="", run=changed.run, project=changed.project)
        for finding in changed.findings:
            if finding.kind != RECORDED:  # alerts raised by the program arrived with its records
                self._evaluator.take_finding(writer, finding, now)

    def _take_changes(self) -> None:
        """Take over what other hubs changed."""
        found = self._log.changes()
        self._followed.merge(found.alerts)
        for mark in found.marks:
            self._apply_mark(mark)

    def _look(self, now: int) -> None:
        if now - self._looked < LOOK_SECONDS * 1e9:
            return
        self._looked = now
        if self._log.shared:
            with contextlib.suppress(Retry):  # known again soon
                self._followed.divide(self._written_here)
        if self.files.stamp() != self._stamp:
            self._load_rules()
        self._evaluator.forget_quiet(now)
        runs = sorted({alert.subject.run for alert in self._evaluator.open.values()})
        try:
            for run in self._ended(runs) if runs else ():
                self._evaluator.end_run(run, now)
        except EngineError:
            pass  # retried soon

    def _settle(self, now: int) -> None:
        changed = list(self._evaluator.changed.values())
        self._evaluator.changed.clear()
        for alert in changed:
            if alert.fired and alert.snapshot is None:
                alert.expected = self._is_expected(alert)
                self._unexplained[alert.id] = alert
        explained = [self._unexplained.pop(id) for id in list(self._unexplained)[:MAX_SNAPSHOTS]]
        for alert in explained:
            self._explain(alert)
        self._dispatcher.take(changed, now)
        due = self._dispatcher.due(self._evaluator.open.values(), now) if self._address is not None else []
        known_findings = [alert for each in due for alert in each.alerts]
        self._note_delivered()
        self._log.keep({alert.id: alert for alert in (*changed, *known_findings, *explained)}.values())
        for each in due:
            self._deliveries.send(each)

    def _explain(self, alert: Alert) -> None:
        try:
            alert.snapshot = self._snapshot(alert)
        except EngineError as error:
            alert.snapshot = {"error": str(error)[:200]}

    def _note_delivered(self) -> None:
        now, found = self._now(), []
        while self._delivered:
            alert = self._log.alerts.get(self._delivered.popleft())
            if alert is not None:
                alert.delivered = now
                found.append(alert)
        if found:
            self._log.keep(found)

    def _load_rules(self) -> None:
        """Reload the files; alerts of changed or removed rules are resolved."""
        self._stamp = self.files.stamp()
        loaded = self.files.load()
        self._mistakes = loaded.mistakes
        before = {rule.name: rule.rule for rule in self._evaluator.matcher.rules}
        rules = {rule.name: rule for rule in loaded.rules.rules}
        old, known_findings = self._evaluator, self._evaluator.known_findings
        self._evaluator = Evaluator(list(rules.values()), known_findings=known_findings)
        self._evaluator.changed.update(old.changed)
        now = self._now()
        for alert in old.open.values():
            name = alert.subject.rule
            same = name not in before or (name in rules and rules[name].rule == before[name])
            if not same:
                alert.state = "resolved" if alert.state in OPEN else "inactive"
                alert.changed = alert.resolved = now
                alert.ended = True
                self._evaluator.changed[alert.id] = alert
        self._evaluator.restore(alert for alert in old.open.values() if alert.state not in ("resolved", "inactive"))
        self._notifiers = loaded.notifiers
        self._dispatcher = Dispatcher(rules, list(self._notifiers), self._why_muted, self._address or "")
        if self._address is not None:
            self._open_deliveries()

    def _open_deliveries(self) -> None:
        self._dispatcher.link_to(self._address or "")
        self._deliveries.stop(0.0)
        self._deliveries = Deliveries(self._notifiers, self._on_sent)

    def _on_sent(self, sent: Notification) -> None:
        self._delivered.extend(alert.id for alert in sent.alerts)

    def _why_muted(self, alert: Alert, now: int) -> str:
        log = self._log
        firing = self._evaluator.open.values()
        return mute_reason(alert, now, log.silences.values(), log.expected.values(), firing, self._dispatcher.rules)

    # Queries.

    def alerts(self) -> list[Alert]:
        """Return copies of all alerts, newest first."""
        with self._lock:
            found = {**self._log.alerts, **{alert.id: alert for alert in self._evaluator.open.values()}}
            return sorted(found.values(), key=lambda alert: (-alert.changed, alert.id))

    def alert(self, id: str) -> Alert | None:
        """Return one alert."""
        with self._lock:
            return self._log.alerts.get(id)

    def rules(self) -> tuple[list[RuleStatus], list[FileMistake]]:
        """Return the active rules, and the errors in the files."""
        with self._lock:
            matcher = self._evaluator.matcher
            firing = [alert.subject.rule for alert in self._evaluator.open.values() if alert.state in OPEN]
            found = [
                RuleStatus(
                    rule, matcher.counts.get(rule.name, 0), matcher.skipped.get(rule.name, 0), firing.count(rule.name)
                )
                for rule in self._dispatcher.rules.values()
            ]
            return found, list(self._mistakes)

    def silences(self) -> list[Silence]:
        """Return the silences that have not expired."""
        with self._lock:
            now = self._now()
            return [each for each in self._log.silences.values() if each.until > now]

    def expected(self) -> list[Expected]:
        """Return the marks of expected alerts, without waiting: lists of runs and live events ask for them."""
        return list(self._log.expected.values())

    def notifiers(self) -> list[DeliveryStatus]:
        """Return the delivery status of the notifiers."""
        with self._lock:
            known = {status.name: status for status in self._deliveries.statuses()}
            return [
                known.get(name) or DeliveryStatus(name=name, place=config.place)
                for name, config in self._notifiers.items()
            ]

    @property
    def log_problem(self) -> str:
        """Return why alerts cannot be written; empty when they can."""
        return self._log.problem

    # Commands.

    def acknowledge(self, id: str, who: str) -> Alert | None:
        """Acknowledge an alert: it is not repeated."""
        with self._lock:
            alert = self._log.alerts.get(id)
            if alert is not None:
                self._log.acknowledge(alert, who, self._now())
            return alert

    def silence(self, wanted: Silence) -> Silence | None:
        """Add a silence, or extend the one of the same patterns; None when there are too many."""
        with self._lock:
            for over in [each.id for each in self._log.silences.values() if each.until <= self._now()]:
                self._log.remove(over)
            known = self._log.silences.get(wanted.id)
            if known is not None:
                wanted = msgspec.structs.replace(
                    wanted, since=known.since, until=max(known.until, wanted.until), why=wanted.why or known.why
                )
            elif len(self._log.silences) >= MAX_SILENCES:
                return None
            self._log.add(wanted)
            return wanted

    def mark_expected(self, id: str, who: str, *, project: bool = False) -> Expected | None:
        """Mark alerts of this kind as expected, in the run or in its whole project; None for an unknown alert."""
        alert = self.alert(id)
        return None if alert is None else self.expect(alert.subject, alert.project if project else "", who)

    def expect(self, about: Subject, project: str, who: str) -> Expected:
        """Mark a subject as expected in its run, or in a whole project where one is given; once, if it is marked."""
        mark = mark_expected(about, project, who, self._now())
        with self._lock:
            if (known := self._log.expected.get(mark.id)) is not None:
                return known
            self._log.add(mark)
            self._apply_mark(mark)
        return mark

    def _apply_mark(self, mark: Expected) -> None:
        """Judge again what a mark that was added or removed is about."""
        covered = [each for each in self._log.alerts.values() if mark.covers(each.subject, each.project)]
        for each in covered:
            each.expected = self._is_expected(each)
            each.muted = self._why_muted(each, self._now()) if each.expected else ""
        self._log.keep([each for each in covered if each.subject.run in self._followed])
        self._marked.announce(mark, self._note_failed)

    def _note_failed(self, error: Exception) -> None:
        self.problem = f"a mark as expected could not be passed on: {error!r}"

    def _is_expected(self, alert: Alert) -> bool:
        return bool(expected_by(alert.subject, alert.project, self._log.expected.values()))

    def remove(self, id: str) -> bool:
        """Remove a silence or a mark."""
        with self._lock:
            mark = self._log.expected.get(id)
            removed = self._log.remove(id)
            if mark is not None:
                self._apply_mark(mark)
            return removed

    def save_rules(self, text: str, version: str | None = None) -> None:
        """Replace the rules of the page, as `RuleFiles.save` does."""
        with self._lock:
            self.files.save(text, version)
            self._load_rules()
            self._settle(self._now())

    def test_notifier(self, name: str, seconds: float = 15.0) -> str | None:
        """Send a test notification; return why it failed, empty on success, None for an unknown notifier."""
        with self._lock:
            config = self._notifiers.get(name)
        if config is None:
            return None
        return send_test(name, config, self._now(), self._address or "", seconds)
