"""Who is not told: silences, marks as expected, and alerts that another alert explains."""

from collections.abc import Iterable, Mapping

from stepscope.alerts.alert import Alert, Expected, Silence
from stepscope.alerts.rule import Compiled, patterns

OLD_NS = 60 * 60 * 1_000_000_000
"""An alert about records that are so old is kept in the history, and nobody is told: a hub is catching up."""


def matches(silence: Silence, alert: Alert) -> bool:
    """Tell whether a silence is about an alert."""
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
    """Why nobody is to be told of an alert now; empty when somebody is."""
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
