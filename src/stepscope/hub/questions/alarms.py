"""Alerts that the training code raised: one finding for each name, unless another finding tells of the same."""

import re
from collections.abc import Iterable, Sequence

from stepscope.hub.questions.evidence import Alarm, Finding, Kind, Severity, in_steps, on_ranks
from stepscope.model.names import SEVERITIES

LEAST = SEVERITIES["WARN"]
"""An alert of less is no sign of something wrong."""
MOST = 10
BESIDE = 2
"""An alert so many steps from another finding may be about the same."""
_LONG_ENOUGH = 8
"""A message of so many characters within another finding's sentence is the same message."""
_WORDS: dict[Kind, tuple[str, ...]] = {
    "crash": ("crash", "crashed", "died"),
    "not_finite": ("nan", "inf", "infinity", "infinite", "not finite", "not a number"),
    "spike": ("spike", "spiked", "outlier"),
    "kl": ("kl",),
    "slow_step": ("slow", "slow step"),
    "straggler": ("slow", "straggler"),
}
"""How training code calls what is found here."""
_APART = re.compile(r"[^a-z0-9]+")


def alarms(raised: Sequence[Alarm], found: Sequence[Finding], everyone: int) -> list[Finding]:
    """Name the alerts that no other finding tells of, by name, the worst first."""
    by_name: dict[str, list[Alarm]] = {}
    for alarm in raised:
        if not any(_same(alarm, finding) for finding in found):
            by_name.setdefault(alarm.name, []).append(alarm)
    made = [_finding(group, everyone) for group in by_name.values()]
    return sorted(made, key=lambda each: -each.weight)[:MOST]


def _same(alarm: Alarm, finding: Finding) -> bool:
    """Whether a finding tells of what an alert was about: at its step, in its attempt, of its subject."""
    if alarm.step is None or finding.first is None or finding.last is None:
        return False
    if not finding.first - BESIDE <= alarm.step <= finding.last + BESIDE:
        return False
    if finding.attempt not in (None, alarm.attempt):
        return False
    said = _plain(f"{alarm.name} {alarm.message}")
    names = (name.rpartition("/")[2] for name in (finding.key, *finding.also) if name)
    spans = [] if finding.span is None else [finding.span.rpartition(".")[2]]
    subjects = filter(str.strip, map(_plain, (*_WORDS.get(finding.kind, ()), *names, *spans)))
    repeated = len(alarm.message) >= _LONG_ENOUGH and alarm.message in finding.text
    return repeated or any(subject in said for subject in subjects)


def _plain(text: str) -> str:
    """Words of small letters between single spaces."""
    return f" {_APART.sub(' ', text.lower()).strip()} "


def _finding(group: Sequence[Alarm], everyone: int) -> Finding:
    head = min(group, key=lambda each: (-each.severity, each.time))
    count = sum(each.count for each in group)
    steps = [each.step for each in group if each.step is not None]
    ranks = tuple(sorted({rank for each in group for rank in each.ranks}))
    said = ": ".join(part for part in (_line(head.name), _line(head.message)) if part)
    often = f", {count} times" if count > 1 else ""
    place = f" {in_steps(min(steps), max(steps))}" if steps else ""
    text = f"alert {said}{often}{place}{on_ranks(ranks, max(everyone, len(ranks)))}"
    return Finding(
        "alert", _severity(head.severity), text, head.step, min(steps, default=None), max(steps, default=None),
        ranks[0] if len(ranks) == 1 else None, ranks, attempt=head.attempt, weight=head.severity * 1e9 + count,
    )  # fmt: skip


def _line(text: str) -> str:
    """A text in one line that is not too long."""
    return " ".join(text[:400].split())[:200]


def _severity(number: int) -> Severity:
    return "FATAL" if number >= SEVERITIES["FATAL"] else "ERROR" if number >= SEVERITIES["ERROR"] else "WARN"


def joined(alarms: Iterable[Alarm]) -> Alarm:
    """Alarms of one name at one step of one attempt as one, with the message of the worst."""
    every = sorted(alarms, key=lambda each: (-each.severity, each.time))
    head = every[0]
    ranks = tuple(sorted({rank for each in every for rank in each.ranks}))
    first, count = min(each.time for each in every), sum(each.count for each in every)
    return Alarm(head.name, head.attempt, head.step, count, head.severity, head.message, first, ranks)
