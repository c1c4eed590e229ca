"""Turns alerts into notifications: grouped by run, repeated while they last, and muted by silences and marks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from stepscope.alerts.alert import Alert, Expected, Silence, expected_by
from stepscope.alerts.rule import Compiled, key_patterns, patterns, severity_number
from stepscope.model.names import canonical_key

Status = Literal["firing", "resolved"]
NS = 1_000_000_000
GROUP_WAIT, GROUP_INTERVAL = 1.0, 60.0
"""Seconds that the first alert of a group waits for others, and seconds between two notifications of a group."""
OLD_NS = 60 * 60 * 1_000_000_000
"""Alerts about records older than this are kept in the history without a notification: the hub is catching up."""
MAX_IN_ONE = 20


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One notification: alerts of one run with the same status."""

    notifier: str
    status: Status
    run: str
    project: str
    title: str
    text: str
    severity: str
    alerts: tuple[Alert, ...]
    left_out: int = 0
    time: int = 0
    url: str = ""
    """Where the page shows it, if the hub's address is known."""
    test: bool = False

    @property
    def group(self) -> str:
        """The key by which a destination deduplicates."""
        return self.alerts[0].fingerprint if len(self.alerts) == 1 else f"run:{self.run}"


@dataclass(slots=True)
class _Group:
    due: int
    sent: int = 0
    firing: dict[str, Alert] = field(default_factory=dict)
    resolved: dict[str, Alert] = field(default_factory=dict)


class Dispatcher:
    """Turns alerts into notifications. Pure: it takes changed alerts and the time, and returns what is due."""

    def __init__(
        self,
        rules: Mapping[str, Compiled],
        notifiers: Sequence[str],
        mute: Callable[[Alert, int], str],
        address: str = "",
    ) -> None:
        self.rules, self.notifiers = rules, tuple(notifiers)
        self._address = address
        self._mute = mute
        self._groups: dict[tuple[str, str], _Group] = {}

    def link_to(self, address: str) -> None:
        """Link notifications to the page of a hub from now on."""
        self._address = address

    def take(self, alerts: Iterable[Alert], now: int) -> None:
        """Add alerts whose state changed."""
        for alert in alerts:
            if alert.state == "firing" and not alert.notified:
                self._offer(alert, now)
            elif alert.state == "resolved" and alert.ended:
                self._withdraw(alert)  # the run ended without a recovery
            elif alert.state == "resolved" and (alert.notified or self._is_waiting(alert)):
                for name in self._receivers(alert):
                    group = self._group(name, alert, now)
                    if group.firing.pop(alert.id, None) is None or alert.notified:
                        group.resolved[alert.id] = alert

    def _offer(self, alert: Alert, now: int) -> None:
        alert.muted = self._mute(alert, now)
        if not alert.muted:
            for name in self._receivers(alert):
                self._group(name, alert, now).firing[alert.id] = alert

    def due(self, open_alerts: Iterable[Alert], now: int) -> list[Notification]:
        """Return what is to be sent now; open alerts that are repeated, or no longer muted, are sent again."""
        for alert in open_alerts:
            if alert.state in ("firing", "recovering", "no-data", "error") and alert.fired:
                self._repeat(alert, now)
        found: list[Notification] = []
        for (name, _), group in list(self._groups.items()):
            if (group.firing or group.resolved) and group.due <= now:
                found += self._notifications(name, group, now)
                group.sent, group.due = now, now + int(GROUP_INTERVAL * NS)
            elif group.due + 10 * int(GROUP_INTERVAL * NS) < now:
                self._groups = {key: each for key, each in self._groups.items() if each is not group}
        return found

    def _repeat(self, alert: Alert, now: int) -> None:
        rule = self.rules.get(alert.subject.rule)
        repeat = rule.repeat if rule is not None else 4 * 3600.0
        late = alert.notified and repeat and now - alert.notified >= repeat * NS and not alert.acknowledged
        if late or (not alert.notified and not self._is_waiting(alert)):
            self._offer(alert, now)

    def _notifications(self, name: str, group: _Group, now: int) -> list[Notification]:
        found = []
        statuses: tuple[tuple[Status, dict[str, Alert]], ...] = (
            ("firing", group.firing),
            ("resolved", group.resolved),
        )
        for status, alerts in statuses:
            kept = [alert for alert in alerts.values() if status == "resolved" or not self._muted(alert, now)]
            alerts.clear()
            if kept:
                found.append(notification(name, status, kept, now, self._address))
                for alert in kept if status == "firing" else ():
                    alert.notified = now
        return found

    def _muted(self, alert: Alert, now: int) -> bool:
        alert.muted = self._mute(alert, now)  # a worse alert may have begun in the meantime
        return bool(alert.muted)

    def _withdraw(self, alert: Alert) -> None:
        if not alert.finding:  # a failed run is still reported, a value that was high is not
            for group in self._groups.values():
                group.firing.pop(alert.id, None)

    def _is_waiting(self, alert: Alert) -> bool:
        return any(alert.id in group.firing for group in self._groups.values())

    def _receivers(self, alert: Alert) -> Iterable[str]:
        rule = self.rules.get(alert.subject.rule)
        chosen = rule.rule.notifiers if rule is not None else None
        return self.notifiers if chosen is None else [name for name in chosen if name in self.notifiers]

    def _group(self, name: str, alert: Alert, now: int) -> _Group:
        key = (name, alert.subject.run)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(now + int(GROUP_WAIT * NS))
        elif not group.firing and not group.resolved and group.due < now:
            group.due = now + int(GROUP_WAIT * NS)
        return group


def notification(
    notifier: str, status: Status, alerts: Sequence[Alert], now: int, address: str = "", *, test: bool = False
) -> Notification:
    """Compose the text of a notification for alerts of one run."""
    ordered = sorted(alerts, key=lambda each: (-severity_number(each.severity), each.began))
    shown, first = ordered[:MAX_IN_ONE], ordered[0]
    what = first.subject.finding or first.subject.rule
    run = first.run_name or first.subject.run
    more = f" and {len(ordered) - 1} more" if len(ordered) > 1 else ""
    lines = [_line(alert, status) for alert in shown]
    if len(ordered) > len(shown):
        lines.append(f"and {len(ordered) - len(shown)} more")
    return Notification(
        notifier=notifier,
        status=status,
        run=first.subject.run,
        project=first.project,
        title=f"{'Resolved: ' if status == 'resolved' else ''}{what}{more} in {run}",
        text="\n".join(lines),
        severity=first.severity,
        alerts=tuple(shown),
        left_out=len(ordered) - len(shown),
        time=now,
        url=f"{address}/#/alerts" if address else "",
        test=test,
    )


def _line(alert: Alert, status: Status) -> str:
    line = f"{alert.severity}: {alert.message}"
    advice = (alert.finding or {}).get("advice") if status == "firing" else ""
    return f"{line.removesuffix('.')}. {advice}" if advice else line


def matches(silence: Silence, alert: Alert) -> bool:
    """Return whether a silence applies to an alert."""
    about = alert.subject
    checks = (
        (patterns([silence.rule]), (about.rule, f"finding {about.finding}")),
        (key_patterns([silence.key]), (about.key, canonical_key(about.key))),
        (patterns([silence.run]), (about.run, alert.run_name or about.run)),
    )
    return all(any(pattern.fullmatch(text) for text in texts) for pattern, texts in checks)


def mute_reason(
    alert: Alert,
    now: int,
    silences: Iterable[Silence],
    expected: Iterable[Expected],
    firing: Iterable[Alert],
    rules: Mapping[str, Compiled],
) -> str:
    """Return why an alert causes no notification now; empty when it does."""
    if marked := expected_by(alert.subject, alert.project, expected):
        return marked
    for silence in silences:
        if silence.until > now and matches(silence, alert):
            return f"silence {silence.id}"
    name = f"finding {alert.subject.finding}" if alert.subject.finding else alert.subject.rule
    for other in firing:
        rule = rules.get(other.subject.rule)
        if rule is None or rule.inhibits is None or other is alert or other.subject.run != alert.subject.run:
            continue
        if other.state in ("firing", "recovering") and rule.inhibits.fullmatch(name):
            return f"explained by {other.subject.rule}"
    return "the records are old" if now - alert.began > OLD_NS and now - alert.changed > OLD_NS else ""
