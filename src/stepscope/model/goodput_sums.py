"""Goodput: how the time of a run was spent, from sums over its spans."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, TypedDict

from msgspec import Meta

from stepscope.model import names

UNACCOUNTED = "unaccounted"
"""The bucket of time outside any bucketed span."""
TOKEN_KEYS = frozenset(("tokens", "num_tokens", "batch_tokens", "train.tokens"))
"""Metrics, without their category, that count tokens: of one step, or cumulative where they never decrease."""
MIN_RISES = 9
"""A token metric that rose this often and never fell is a cumulative counter."""

MAX_WEIGHT = 1024
"""The most steps that a span is a sample of."""

Part = tuple[int, int]
"""Rank and attempt."""


@dataclass(slots=True)
class TokenCount:
    """The values of a token metric on one rank in one attempt."""

    points: int = 0
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    rises: int = 0
    falls: int = 0
    last: float | None = None

    def add(self, value: float) -> None:
        """Add a value, in the order of steps."""
        if self.last is not None:
            self.rises += value > self.last
            self.falls += value < self.last
        self.last = value
        self.points += 1
        self.total += value
        self.low, self.high = min(self.low, value), max(self.high, value)

    @property
    def increase(self) -> float:
        """The increase of a counter; before its first point it is assumed to have risen at its average rate."""
        return (self.high - self.low) * self.points / (self.points - 1) if self.points > 1 else 0.0


@dataclass(slots=True)
class Sums:
    """Sums over the records of a run; the same from a journal and from a store."""

    spent: defaultdict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """Nanoseconds of spans by bucket and name, minus those of their bucketed children."""
    begun: dict[Part, int] = field(default_factory=dict)
    ended: dict[Part, int] = field(default_factory=dict)
    steps: defaultdict[Part, int] = field(default_factory=lambda: defaultdict(int))
    """The number of step spans."""
    first_step: dict[Part, int] = field(default_factory=dict)
    last_step: dict[Part, int] = field(default_factory=dict)
    tokens: dict[tuple[str, Part], TokenCount] = field(default_factory=dict)
    """Token metrics by key, rank and attempt."""

    def reach(self, part: Part, begun: int, ended: int) -> None:
        """Extend the time range of a rank in an attempt."""
        self.begun[part] = min(begun, self.begun.get(part, begun))
        self.ended[part] = max(ended, self.ended.get(part, ended))

    def walk(self, part: Part, first: int, last: int) -> None:
        """Extend the step range of a rank in an attempt."""
        self.first_step[part] = min(first, self.first_step.get(part, first))
        self.last_step[part] = max(last, self.last_step.get(part, last))


@dataclass(frozen=True, slots=True)
class Goodput:
    """The shares of a run's time, added up over its ranks and attempts.

    Shares are of `seconds`, or of the sum of the spans where that is more: spans of several threads overlap.
    """

    seconds: float
    buckets: dict[str, float]
    """Seconds by bucket: productive, overhead, idle, wasted, and unaccounted."""
    shares: dict[str, float]
    phases: dict[str, float]
    """Seconds by the name of the spans that have a bucket."""
    steps: int
    steps_per_second: float | None
    """Steps per second of the rank that made most steps."""
    tokens: float
    tokens_per_second: float | None
    """Tokens of all ranks, divided by the time of the rank that ran longest."""
    tokens_counted: bool = False
    """Whether a token metric was found to be a cumulative counter."""

    @property
    def goodput(self) -> float:
        """The productive share."""
        return self.shares["productive"]


_WORDS = {
    "productive": "computing",
    "idle": "waiting for data",
    "overhead": "evaluation, checkpoints and syncing",
    "wasted": "lost work",
    UNACCOUNTED: "outside of timed spans",
}
MIN_SHARE = 0.005


def in_words(shares: Mapping[str, float]) -> str:
    """Return where the time of a run went, in a sentence, the largest share first; empty where no span tells."""
    known = sorted(
        (bucket for bucket in _WORDS if shares.get(bucket, 0.0) >= MIN_SHARE), key=lambda each: -shares[each]
    )
    if known == [UNACCOUNTED]:
        return ""
    return ", ".join(f"{shares[each]:.0%} {_WORDS[each]}" for each in known)


def bucket_of(name: str, attribute: object) -> str | None:
    """Return the bucket of a span, from its attribute or its name; None if it has none."""
    if isinstance(attribute, str) and attribute in names.BUCKETS:
        return attribute
    return names.SPAN_BUCKETS.get(name)


def weight_of(attribute: object) -> int:
    """Return of how many steps a span is a sample, from its attribute; 1 without one."""
    return min(max(attribute, 1), MAX_WEIGHT) if isinstance(attribute, int) else 1


def conclude(sums: Sums) -> Goodput:
    """Turn sums into shares and rates."""
    buckets = dict.fromkeys(names.BUCKETS, 0.0)
    phases: dict[str, float] = {}
    for (bucket, name), spent in sums.spent.items():
        lasting = max(spent, 0) / 1e9
        buckets[bucket] += lasting
        phases[name] = phases.get(name, 0.0) + lasting
    by_rank: defaultdict[int, float] = defaultdict(float)
    for part, begun in sums.begun.items():
        by_rank[part[0]] += (sums.ended[part] - begun) / 1e9
    seconds, accounted = sum(by_rank.values()), sum(buckets.values())
    buckets[UNACCOUNTED] = max(seconds - accounted, 0.0)
    total_seconds = max(seconds, accounted)
    rank, steps = _steps(sums)
    longest = max(by_rank.values(), default=0.0)
    tokens, counted = _tokens(sums)
    return Goodput(
        seconds=seconds,
        buckets=buckets,
        shares={bucket: spent / total_seconds if total_seconds else 0.0 for bucket, spent in buckets.items()},
        phases=phases,
        steps=steps,
        steps_per_second=steps / by_rank[rank] if steps and by_rank[rank] else None,
        tokens=tokens,
        tokens_per_second=tokens / longest if tokens and longest else None,
        tokens_counted=counted,
    )


def _tokens(sums: Sums) -> tuple[float, bool]:
    """Add up the tokens of all ranks and attempts, and return whether a counter was among them."""
    counts: defaultdict[str, list[TokenCount]] = defaultdict(list)
    for (key, _part), count in sums.tokens.items():
        counts[key].append(count)
    total, counted = 0.0, False
    for each in counts.values():
        counter = max(count.rises for count in each) >= MIN_RISES and not any(count.falls for count in each)
        total += sum(count.increase if counter else count.total for count in each)
        counted = counted or counter
    return total, counted


def _steps(sums: Sums) -> tuple[int, int]:
    """The rank that made most steps, the lowest of several, and how many.

    They are counted by step spans where there are some, else by the steps of metrics.
    """
    made: defaultdict[int, int] = defaultdict(int)
    for part in sums.begun:
        walked = sums.last_step[part] - sums.first_step[part] + 1 if part in sums.first_step else 0
        made[part[0]] += sums.steps.get(part) or walked
    rank = max(made, key=lambda each: (made[each], -each), default=0)
    return rank, made.get(rank, 0)


class GoodputJson(TypedDict):
    """How the time of a run was spent, added up over its ranks and attempts."""

    run: str
    goodput: Annotated[float, Meta(description="The productive share.")]
    seconds: float
    shares: Annotated[dict[str, float], Meta(description=f"By bucket: {', '.join((*names.BUCKETS, UNACCOUNTED))}.")]
    buckets: Annotated[dict[str, float], Meta(description="Seconds by bucket.")]
    phases: Annotated[dict[str, float], Meta(description="Seconds by the name of spans that have a bucket.")]
    steps: int
    steps_per_second: float | None
    tokens: float
    tokens_per_second: Annotated[float | None, Meta(description="Null where nothing was counted.")]
    tokens_counted: bool


def goodput_json(run: str, found: Goodput) -> GoodputJson:
    """The shares and rates of a run; seconds to the microsecond."""
    return {
        "run": run,
        "goodput": found.goodput,
        "seconds": round(found.seconds, 6),
        "shares": found.shares,
        "buckets": {bucket: round(spent, 6) for bucket, spent in found.buckets.items()},
        "phases": {name: round(spent, 6) for name, spent in sorted(found.phases.items())},
        "steps": found.steps,
        "steps_per_second": found.steps_per_second,
        "tokens": found.tokens,
        "tokens_per_second": found.tokens_per_second,
        "tokens_counted": found.tokens_counted,
    }
