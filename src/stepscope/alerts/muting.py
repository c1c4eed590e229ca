"""Which alerts cause no notification: silenced, marked as expected, explained by another alert, or old."""

from collections.abc import Iterable, Mapping

from stepscope.alerts.alert import Alert, Expected, Silence
from stepscope.alerts.rule import Compiled, patterns

OLD_NS = 60 * 60 * 1_000_000_000
"""Alerts about records older than this are kept in the history without a notification: the hub is catching up."""


def matches(silence: Silence, alert: Alert) -> bool:
    """Return whether a silence applies to an alert."""
    about = alert.subject
    pairs = ((silence.rule, (about.rule, f"finding {about.finding}")), (silence.key, (about.key,)))
    run = (about.run, alert.run_name or about.run)
    return all(any(patterns([glob]).fullmatch(text) for text in texts) for glob, texts in (*pairs, (silence.run, run)))


def reason(
    alert: Alert,
    now: int,
    silences: Iterable[Silence],
    expected: Iterable[Expected],
    firing: Iterable[Alert],
    rules: Mapping[str, Compiled],
) -> str:
    """Return why an alert causes no notification now; empty when it does."""
    for mark in expected:
        if mark.covers(alert):
            return f"expected, says {mark.who}" if mark.who else "expected"
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
