"""Matches each series of a run to its rules, once, and aggregates values over ranks."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from stepscope.alerts.alert import Alert, Subject
from stepscope.alerts.rule import Compiled
from stepscope.alerts.state_machine import Machine
from stepscope.model.names import canonical_key

MAX_OF_RULE = 500
"""Series that one rule watches; more are counted."""
MAX_SERIES = 100_000
LONGEST_KEY = 500
"""Characters of a key that are compared with patterns."""
_WILDCARD = re.compile(r"[*?\[]")
OPEN_STEPS = 4
"""The most steps that wait for missing ranks; beyond that the oldest is aggregated without them."""

AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "max": max,
    "min": min,
    "mean": lambda values: sum(values) / len(values),
    "sum": sum,
    "spread": lambda values: max(values) - min(values),
    "count": len,
}


class OverRanks:
    """Collects the values of a key by step, and waits for the ranks that reported earlier steps."""

    def __init__(self, aggregate: str, world: int) -> None:
        self._aggregate = AGGREGATES[aggregate]
        self._expected = max(world, 1)
        self._steps: dict[int | None, dict[int, float]] = {}

    def take(self, rank: int, step: int | None, value: float) -> tuple[int | None, float] | None:
        """Add the value of a rank; return a step that is now complete, with its aggregate."""
        if step is None:  # without steps, aggregate the latest value of each rank
            values = self._steps.setdefault(None, {})
            values[rank] = value
            return None, self._of(values)
        values = self._steps.setdefault(step, {})
        values[rank] = value
        if len(values) >= self._expected:
            del self._steps[step]
            self._expected = len(values)
            return step, self._of(values)
        if len(self._steps) > OPEN_STEPS:
            oldest = min(each for each in self._steps if each is not None)
            values = self._steps.pop(oldest)
            self._expected = max(len(values), *(len(each) for each in self._steps.values()))
            return oldest, self._of(values)
        return None

    def _of(self, values: dict[int, float]) -> float:
        found = list(values.values())
        broken = next((each for each in found if each != each), None)  # min and max would ignore a NaN
        return float(self._aggregate(found)) if broken is None else broken


@dataclass(slots=True, eq=False)
class Watch:
    """A rule on a series, and its alert while there is one."""

    machine: Machine
    subject: Subject
    alert: Alert | None = None


@dataclass(slots=True, eq=False)
class AllRanks:
    """One value of all ranks of a key, and the rules that judge it."""

    values: OverRanks
    watches: dict[str, Watch] = field(default_factory=dict)
    """By rule."""


@dataclass(slots=True, eq=False)
class Series:
    """One key of one rank, with the rules that watch it."""

    key: str
    watches: list[Watch] = field(default_factory=list)
    together: list[AllRanks] = field(default_factory=list)
    """Those over all ranks, shared with the series of the other ranks."""
    absent: list[Watch] = field(default_factory=list)
    last_seen: int = -1
    """When a value last arrived, by the evaluator's clock; kept where a rule watches for absence."""
    points: int = 0
    """Values so far."""
    low: float = math.nan
    high: float = math.nan
    """A value from low to high changes no rule's state; NaN when each value must be evaluated."""
    healthy: tuple[float, float] = (math.nan, math.nan)
    """The range of values that breaches no rule."""

    def complete(self) -> None:
        """Compute the range of values that breaches no rule, once all rules of the series are known."""
        decided = self.watches and not self.together and not self.absent
        if decided and not any(math.isnan(watch.machine.low) for watch in self.watches):
            machines = [watch.machine for watch in self.watches]
            self.healthy = max(each.low for each in machines), min(each.high for each in machines)

    def narrow(self) -> None:
        """Set the range of values that can be skipped: empty while a rule is pending or firing."""
        calm = all(watch.machine.calm for watch in self.watches)
        self.low, self.high = self.healthy if calm else (math.nan, math.nan)


@dataclass(slots=True, eq=False)
class RunSeries:
    """The series of one run."""

    id: str
    project: str
    name: str
    world: int
    started: int
    series: dict[tuple[str, int], Series] = field(default_factory=dict)
    watched: dict[tuple[object, ...], tuple[tuple[str, Series], ...]] = field(default_factory=dict)
    """By rank, category and names of a record: the values that a rule watches, with their series."""
    shaped: int = 0
    """How many names these have."""
    together: dict[tuple[str, str], AllRanks] = field(default_factory=dict)
    """By aggregate and key: one for all ranks."""
    rules: dict[str, list[Compiled]] = field(default_factory=dict)
    """By key: those that watch it on some rank."""
    findings: dict[str, Watch] = field(default_factory=dict)
    """By fingerprint."""
    described: bool = False
    """Whether a writer has given its name and start."""
    ended: bool = False
    last_seen: int = 0
    """When records last arrived, by the evaluator's clock."""

    def watches(self) -> Iterable[Watch]:
        """Return all watches."""
        for series in self.series.values():
            yield from series.watches
            yield from series.absent
        for each in self.together.values():
            yield from each.watches.values()
        yield from self.findings.values()


class Matcher:
    """Matches rules to series, within limits."""

    def __init__(self, rules: Sequence[Compiled], most_of_rule: int = MAX_OF_RULE, most: int = MAX_SERIES) -> None:
        self.rules = [rule for rule in rules if rule.rule.enabled]
        self.counts = {rule.name: 0 for rule in self.rules}
        self.skipped: dict[str, int] = {}
        """Series beyond a rule's limit, by rule."""
        self._most_of_rule, self._left = most_of_rule, most
        self._by_prefix: dict[str, list[int]] = {}
        """Rules by the text before the first wildcard of their patterns, so that a key is compared with few rules."""
        for place, rule in enumerate(self.rules):
            globs = (rule.rule.key,) if isinstance(rule.rule.key, str) else rule.rule.key
            for glob in {*globs, *map(canonical_key, globs)}:
                self._by_prefix.setdefault(_WILDCARD.split(glob, maxsplit=1)[0], []).append(place)

    def _watching(self, run: RunSeries, key: str) -> list[Compiled]:
        """The rules that watch a key of a run, in their order; other ranks mostly have the same keys."""
        known = run.rules.get(key)
        if known is None:
            starts = {name[:end] for name in (key, canonical_key(key)) for end in range(len(name) + 1)}
            places = {place for start in starts for place in self._by_prefix.get(start, ())}
            found = (self.rules[place] for place in sorted(places) if self.rules[place].wants_key(key))
            known = run.rules[key] = [rule for rule in found if rule.wants_run(run.id, run.project, run.name)]
        return known

    def match(self, run: RunSeries, key: str, rank: int) -> Series:
        """Create a new series with the rules that watch it."""
        series = Series(key)
        if self._left <= 0:
            return series
        self._left -= 1
        run.series[key, rank] = series
        for rule in self._watching(run, key[:LONGEST_KEY]):
            if rule.rule.over_ranks is not None:
                self._join(run, series, rule, rule.rule.over_ranks)
            elif (rule.ranks is None or rank in rule.ranks) and self.admit(rule):
                watch = Watch(Machine(rule), Subject(rule.name, run.id, key, rank))
                (series.absent if rule.condition.kind == "absent" else series.watches).append(watch)
        series.complete()
        return series

    def _join(self, run: RunSeries, series: Series, rule: Compiled, aggregate: str) -> None:
        """Add a series to a rule over all ranks, which has one watch for all of them."""
        place = aggregate, series.key
        shared = run.together.get(place)
        if shared is None or rule.name not in shared.watches:
            if not self.admit(rule):
                return
            shared = shared or run.together.setdefault(place, AllRanks(OverRanks(aggregate, run.world)))
            shared.watches[rule.name] = Watch(Machine(rule), Subject(rule.name, run.id, series.key))
        if shared not in series.together:
            series.together.append(shared)

    def admit(self, rule: Compiled) -> bool:
        """Count another series of a rule; False beyond its limit."""
        if self.counts[rule.name] >= self._most_of_rule:
            self.skipped[rule.name] = self.skipped.get(rule.name, 0) + 1
            return False
        self.counts[rule.name] += 1
        return True

    def finding_rule(self, run: RunSeries, kind: str) -> Compiled | None:
        """The first rule about a kind of finding."""
        for rule in self.rules:
            pattern = rule.condition.finding
            if pattern is not None and pattern.fullmatch(kind) and rule.wants_run(run.id, run.project, run.name):
                return rule
        return None

    def forget(self, run: RunSeries) -> None:
        """Release what a run used of the limits."""
        self._left += len(run.series)
        for watch in run.watches():
            self.counts[watch.machine.rule.name] -= 1
