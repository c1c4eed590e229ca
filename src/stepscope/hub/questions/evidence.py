"""What a run is judged by, and what is found: courses of metrics, paces of spans, slow steps, attempts; findings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["crash", "not_finite", "spike", "kl", "slow_step", "straggler", "error", "alert"]
KINDS: tuple[Kind, ...] = ("crash", "not_finite", "spike", "kl", "slow_step", "straggler", "error", "alert")
Severity = Literal["WARN", "ERROR", "FATAL"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some steps of a metric on one rank: its finite extremes and where they were, and values that are not finite."""

    step: int
    """The first step of it."""
    low: float
    low_step: int
    high: float
    high_step: int
    good: int
    bad: int = 0
    bad_step: int = 0
    """The first step with a value that is not finite, where there are any."""
    flags: int = 0
    """What the bad values were: 1 NaN, 2 Infinity, 4 -Infinity."""
    last_bad_step: int = 0
    """The last such step."""


@dataclass(frozen=True, slots=True)
class Course:
    """One metric on one rank, stretch by stretch, in the order of steps."""

    key: str
    rank: int
    stretches: Sequence[Stretch]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the spans of one name took on one rank, in some steps: the median, in ns."""

    name: str
    rank: int
    first: int
    last: int
    count: int
    median: float


@dataclass(frozen=True, slots=True)
class Work:
    """The time that was a span's own at a slow step, and what is usual for it, in ns."""

    name: str
    rank: int
    own: float
    usual: float


@dataclass(frozen=True, slots=True)
class SlowStep:
    """A step that took long: of which attempt, how long, how long one usually takes (in ns), and its spans."""

    step: int
    attempt: int
    duration: float
    usual: float
    work: Sequence[Work]


@dataclass(frozen=True, slots=True)
class Process:
    """One process of one attempt: how it said that it ended, None when it said nothing."""

    attempt: int
    rank: int
    last_step: int | None
    said: str | None
    unread: bool = False
    """Whether records of it are still to be read, its end perhaps among them."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception or a failed span."""

    time: int
    attempt: int
    rank: int
    step: int | None
    what: str
    span: str | None = None


@dataclass(frozen=True, slots=True)
class Alarm:
    """Alerts of one name at one step of one attempt, on some ranks: how many, how severe, what the worst said."""

    name: str
    attempt: int
    step: int | None
    count: int
    severity: int
    message: str
    time: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a run is judged by."""

    courses: Sequence[Course] = ()
    paces: Sequence[Pace] = ()
    slow: Sequence[SlowStep] = ()
    processes: Sequence[Process] = ()
    first_steps: Mapping[int, int] = field(default_factory=dict)
    """The first step of each attempt."""
    failures: Sequence[Failure] = ()
    alarms: Sequence[Alarm] = ()
    """What the training code itself called wrong."""
    state: str = "finished"
    """How the run fares."""
    kl_target: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that went wrong, and where: the step, the rank, the metric or span."""

    kind: Kind
    severity: Severity
    text: str
    step: int | None
    first: int | None
    last: int | None
    rank: int | None = None
    """The rank at fault; None when it was all of them, or cannot be said."""
    ranks: tuple[int, ...] = ()
    key: str | None = None
    also: tuple[str, ...] = ()
    """Other metrics that moved at the same steps."""
    span: str | None = None
    attempt: int | None = None
    value: float | None = None
    usual: float | None = None
    weight: float = 0.0
    """How far from usual: the greater of two findings of a kind comes first."""


def on_ranks(ranks: Sequence[int], everyone: int) -> str:
    """Say which ranks, where there are several."""
    if everyone <= 1:
        return ""
    if len(ranks) == everyone:
        return " on all ranks"
    return f" on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def told(attrs: Mapping[str, Any]) -> str:
    """What an exception was, in one line."""
    kind = str(attrs.get("exception.type") or "").rpartition(".")[2]
    message = str(attrs.get("exception.message") or "")
    return ": ".join(part for part in (kind, message) if part)[:200] or "an exception"


def in_steps(first: int, last: int) -> str:
    """Say which steps."""
    return f"at step {first}" if first == last else f"in steps {first} to {last}"


def too(keys: Sequence[str]) -> str:
    """Say which other metrics were the same."""
    return f"; {', '.join(keys[:4])}{' and others' * (len(keys) > 4)} too" if keys else ""
