"""Alerts, silences, and the marks of expected alerts and findings, which mute them."""

import hashlib
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from stepscope.alerts.state_machine import State
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.findings_json import FindingJson, as_json, band_words, worst_first

ATTR_RULE = "alert.rule"
ATTR_FINGERPRINT = "alert.fingerprint"
ATTR_STATE = "alert.state"
"""Attributes of an alert that a rule in the trainer recorded; with them trainer and hub report the same alert."""


class Subject(msgspec.Struct, frozen=True, array_like=True):
    """What an alert is about. A finding has its metric or span as `key` and no rank: the ranks are evidence."""

    rule: str
    run: str
    key: str = ""
    rank: int | None = None
    finding: str = ""

    @property
    def fingerprint(self) -> str:
        """Identifies the subject; the same in every process that sees the same cause."""
        # A finding is one cause whichever rule reports it.
        rule = "" if self.finding else self.rule
        return _digest(rule, self.run, self.key, "" if self.rank is None else str(self.rank), self.finding)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def finding_subject(run: str, finding: Finding, rule: str = "") -> Subject:
    """What an alert about a finding is about."""
    return Subject(rule, run, finding.key or finding.span or "", None, finding.kind)


class Alert(msgspec.Struct, kw_only=True):
    """One alert. A later firing of the same subject is another alert with the same fingerprint."""

    id: str
    subject: Subject
    project: str = ""
    run_name: str = ""
    state: State
    severity: str = "WARN"
    message: str = ""
    threshold: str = ""
    value: float | None = None
    step: int | None = None
    """Where the breach began."""
    last_step: int | None = None
    began: int
    """When the breach began, in ns."""
    fired: int = 0
    changed: int
    """When the state changed last, in ns."""
    resolved: int = 0
    ended: bool = False
    """It was resolved because its run ended."""
    count: int = 1
    """How often it was reported or went from recovering back to firing, the first time included."""
    seen_by: tuple[str, ...] = ("hub",)
    """Where it was detected: `hub`, `trainer`, or both, in that order of time."""
    acknowledged_by: str = ""
    acknowledged: int = 0
    expected: bool = False
    muted: str = ""
    """Why no notification is sent: a silence, another alert, or a mark as expected."""
    notified: int = 0
    """When a notification was last queued, in ns."""
    delivered: int = 0
    """When a notifier last accepted it, in ns; a notification queued and not delivered is sent again after a restart.

    """
    error: str = ""
    finding: dict[str, Any] | None = None
    snapshot: dict[str, Any] | None = None

    @property
    def fingerprint(self) -> str:
        """The fingerprint of its subject."""
        return self.subject.fingerprint

    def add_source(self, who: str) -> None:
        """Add where it was also detected."""
        if who not in self.seen_by:
            self.seen_by = (*self.seen_by, who)


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """A silence: which alerts cause no notifications, and until when; `*` in a pattern matches anything."""

    id: str
    """Of its patterns, the same at every hub: there is one silence of some patterns."""
    rule: str = "*"
    run: str = "*"
    key: str = "*"
    until: int
    """In ns."""
    since: int = 0
    who: str = ""
    why: str = ""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """A person's mark that alerts and findings of this kind are expected: in one run, or in all of its project."""

    id: str
    rule: str
    finding: str = ""
    key: str = ""
    run: str = ""
    project: str = ""
    """One of run and project is given."""
    who: str = ""
    time: int = 0

    def covers(self, about: Subject, project: str) -> bool:
        """Return whether this mark applies to an alert or a finding with this subject, in a run of a project."""
        same = about.finding == self.finding if self.finding else about.rule == self.rule and not about.finding
        return same and self.reaches(about.run, project) and about.key == self.key

    def reaches(self, run: str, project: str) -> bool:
        """Return whether this mark applies to something in a run."""
        return run == self.run if self.run else project == self.project


def mark_expected(about: Subject, project: str, who: str, now: int) -> Expected:
    """Make the mark of a subject, in its run or in a whole project where one is given.

    The same mark has the same id, at every hub: to set it twice changes nothing.
    """
    rule, run = "" if about.finding else about.rule, "" if project else about.run
    id = _digest(rule, about.finding, about.key, run, project)
    return Expected(
        id=id, rule=about.rule, finding=about.finding, key=about.key, run=run, project=project, who=who, time=now
    )


def silence(rule: str, run: str, key: str, *, since: int, until: int, who: str, why: str) -> Silence:
    """Make the silence of some patterns."""
    id = _digest("silence", rule, run, key)
    return Silence(id=id, rule=rule, run=run, key=key, since=since, until=until, who=who, why=why)


def alert_id(fingerprint: str, began: int) -> str:
    """Return the id of an alert: its fingerprint and start time."""
    return f"{fingerprint}-{began:x}"


def expected_by(about: Subject, project: str, marks: Iterable[Expected]) -> str:
    """Return why an alert or finding is muted: the mark that covers its subject, or an empty text."""
    for mark in marks:
        if mark.covers(about, project):
            return f"expected, marked by {mark.who}" if mark.who else "expected"
    return ""


def unexpected(found: Iterable[Finding], run: str, project: str, marks: Collection[Expected]) -> list[Finding]:
    """Return the findings of a run that are not marked as expected."""
    return [each for each in found if not expected_by(finding_subject(run, each), project, marks)]


def findings_json(found: Iterable[Finding], run: str, project: str, marks: Collection[Expected]) -> list[FindingJson]:
    """Return findings as JSON, worst first; the expected ones say so in `muted` and come last."""
    shown = [
        as_json(each, muted=expected_by(finding_subject(run, each), project, marks)) for each in worst_first(found)
    ]
    return sorted(shown, key=lambda each: bool(each["muted"]))


def evidence(finding: Finding) -> dict[str, Any]:
    """Return what an alert keeps of its finding."""
    return {
        "kind": finding.kind,
        "text": finding.text,
        "cause": finding.cause,
        "advice": finding.advice,
        "ranks": list(finding.ranks),
        "expected": None if finding.expected is None else list(finding.expected),
        "band": band_words(finding),
        "symptoms": list(finding.symptoms),
        "span": finding.span,
        "attempt": finding.attempt,
    }
