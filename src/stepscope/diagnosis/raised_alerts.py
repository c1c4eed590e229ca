"""Alerts raised by the training code: one finding per name, unless another finding covers the same fault."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from stepscope.diagnosis.finding import Finding, Kind, Severity, on_ranks
from stepscope.model.names import SEVERITIES
from stepscope.model.records import Alert

ALERT = Kind(
    "alert",
    "WARN",
    "the training code raised it",
    "Look at that step, and at where the code raises it.",
    expects="no alert from the training code",
)
LEAST = SEVERITIES["WARN"]
"""Alerts below this severity are not findings."""
MAX_NAMES = 512
"""The most distinct names; alerts with further names share one finding."""
MIN_STEPS, MAX_STEPS = 16, 4096
"""The distinct steps that each name keeps in any case, and those of all names together; further ones are counted."""
LONGEST = 400
"""The most characters of a message that are kept."""
BESIDE = 2
"""An alert within this many steps of another finding may be about the same fault."""
_LONG_ENOUGH = 8
"""A message of at least this length inside a finding's text counts as the same message."""
_WORDS: dict[str, tuple[str, ...]] = {
    "crash": ("crash", "crashed", "died", "failed"),
    "dead_rank": ("crash", "crashed", "died", "killed"),
    "not_finite": ("nan", "inf", "infinity", "infinite", "not finite", "not a number"),
    "spike": ("spike", "spiked", "outlier"),
    "kl_blowup": ("kl",),
    "data_stall": ("slow", "stall", "slow step"),
    "slow_span": ("slow", "slow step"),
    "straggler": ("slow", "straggler"),
    "intermittent_straggler": ("slow", "straggler"),
}
"""Words that training code uses for these kinds."""
_APART = re.compile(r"[^a-z0-9]+")
Place = tuple[int, int | None]
"""An attempt and a step."""


@dataclass(slots=True)
class _Raised:
    """Alerts of one name at one step: their number, ranks and the most severe one."""

    severity: int
    message: str
    time: int
    count: int = 1
    ranks: set[int] = field(default_factory=set)

    def add(self, rank: int, alert: Alert) -> None:
        self.count += 1
        self.ranks.add(rank)
        if alert.severity > self.severity:
            self.severity, self.message = alert.severity, alert.message[:LONGEST]
        self.time = min(self.time, alert.time)


class RaisedAlerts:
    """Watches the alerts of a run. Findings are computed on request."""

    KINDS: ClassVar[tuple[Kind, ...]] = (ALERT,)

    def __init__(self) -> None:
        self._names: dict[str, dict[Place, _Raised]] = {}
        self._steps = 0
        self.changes = 0
        """Counts what may change the findings."""

    def take(self, rank: int, attempt: int, alert: Alert) -> None:
        """Process an alert."""
        if alert.severity < LEAST:
            return
        self.changes += 1
        name = alert.name if alert.name in self._names or len(self._names) < MAX_NAMES else "other alerts"
        places = self._names.setdefault(name, {})
        place = attempt, alert.step
        if place not in places and len(places) >= MIN_STEPS and self._steps >= MAX_STEPS:
            place = attempt, None
        known = places.get(place)
        if known is None:
            self._steps += 1
            places[place] = _Raised(alert.severity, alert.message[:LONGEST], alert.time, ranks={rank})
        else:
            known.add(rank, alert)

    def findings(self, found: Sequence[Finding], world: int) -> Iterator[Finding]:
        """Return one finding for each alert name that none of `found` covers."""
        near = [(*_steps_beside(finding), finding) for finding in found if finding.step is not None]
        for name, places in self._names.items():
            own = {}
            for place, each in places.items():
                step = place[1]
                beside = () if step is None else [finding for a, b, finding in near if a <= step <= b]
                if not any(_same(name, each.message, place[0], finding) for finding in beside):
                    own[place] = each
            if own:
                yield _finding(name, own, world)


def _steps_beside(finding: Finding) -> tuple[int, int]:
    """Return the first and the last step at which an alert may be about the same fault."""
    first = finding.step or 0
    return first - BESIDE, max(finding.last or first, first) + BESIDE


def _same(name: str, message: str, attempt: int, finding: Finding) -> bool:
    """Return whether a finding beside an alert is about the same subject; for a metric, in any attempt."""
    if finding.attempt != attempt and finding.key is None:
        return False
    alert_text = _plain(f"{name} {message}")
    keys = (each.rpartition("/")[2] for each in (finding.key, *finding.also) if each)
    spans = [] if finding.span is None else [finding.span.rpartition(".")[2]]
    words = (*_WORDS.get(finding.kind, ()), finding.kind.replace("_", " "))
    subjects = filter(str.strip, map(_plain, (*words, *keys, *spans)))
    repeated = len(message) >= _LONG_ENOUGH and message in finding.text
    return repeated or any(subject in alert_text for subject in subjects)


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    """Return lower-case words separated by single spaces."""
    return f" {_APART.sub(' ', text.lower()).strip()} "


def _finding(name: str, places: dict[Place, _Raised], world: int) -> Finding:
    (attempt, step), head = min(places.items(), key=lambda each: (-each[1].severity, each[1].time))
    count = sum(each.count for each in places.values())
    steps = [at for _, at in places if at is not None]
    ranks = tuple(sorted({rank for each in places.values() for rank in each.ranks}))
    text = ": ".join(part for part in (_line(name), _line(head.message)) if part)
    often = f", {count} times" if count > 1 else ""
    return ALERT.finding(
        f"alert {text}{often}{_in_steps(steps)}{on_ranks(ranks, max(world, len(ranks)))}",
        head.time,
        severity=_severity(head.severity),
        step=min(steps, default=None) if step is not None else None,
        last=max(steps, default=None),
        ranks=ranks,
        key=name,
        attempt=attempt,
        weight=head.severity * 1e6 + count,
    )


def _in_steps(steps: Sequence[int]) -> str:
    if not steps:
        return ""
    first, last = min(steps), max(steps)
    return f" at step {first}" if first == last else f" in steps {first} to {last}"


def _line(text: str) -> str:
    """Return a text as one line of limited length."""
    return " ".join(text[:LONGEST].split())[:200]


def _severity(number: int) -> Severity:
    return "FATAL" if number >= SEVERITIES["FATAL"] else "ERROR" if number >= SEVERITIES["ERROR"] else "WARN"
