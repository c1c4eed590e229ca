"""A rule: which series it watches, the condition, how long it must hold, and who is notified."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Any, Literal

import msgspec

from stepscope.model.errors import ConfigError, StepscopeError
from stepscope.model.names import SEVERITIES, canonical_key, category_of

Severity = Literal["INFO", "WARN", "ERROR", "FATAL"]
Aggregate = Literal["max", "min", "mean", "sum", "spread", "count"]
"""How the values of all ranks at a step are aggregated; `spread` is maximum minus minimum, `count` counts ranks."""
Kind = Literal["above", "below", "outside", "absent", "changes", "not finite", "finding", "test"]

LONGEST_NAME, LONGEST_MESSAGE = 100, 1000
FIELDS = ("rule", "run", "project", "name", "key", "rank", "value", "step", "threshold", "severity", "text")
"""The names that a message template may use in braces."""
_NAME = re.compile(r"[\w][\w .:/-]{0,99}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|steps?)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_LONGEST_SECONDS = 366 * 86400.0
_WHEN = "write `> 5`, `< 0.1`, `outside 0.1 0.3`, `absent 5m`, `changes`, `not finite`, or `finding KIND`"


class RuleError(StepscopeError, ValueError):
    """A rule is invalid; `field` is the field to fix."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class RunFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs a rule is for; each is a pattern in which `*` stands for anything."""

    id: str = "*"
    project: str = "*"
    name: str = "*"


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"hold": "for", "notifiers": "notify"}):
    """A rule as people write it; `compile_rule` checks it."""

    name: str
    when: str = ""
    """The condition, such as `> 5`."""
    test: Any = None
    """Instead of `when`, in Python only: a function that returns whether a value breaches."""
    key: str | list[str] = "*"
    """Patterns of keys, such as `trainer/loss` or `*/kl*`."""
    category: str = ""
    run: RunFilter = RunFilter()
    rank: int | list[int] | None = None
    """Only these ranks; each rank has its own alert."""
    over_ranks: Aggregate | None = None
    """Evaluate one aggregate of all ranks instead."""
    hold: str | float = 0
    """How long the condition must hold: seconds, `5m`, or `10 steps`."""
    recovery: float | None = None
    """The value at which it recovers; by default the threshold itself."""
    keep_firing: str | float = 0
    warm_up: str | float = 0
    no_data: str | float = "30m"
    """Without a value for this long, an open alert goes to the state no-data."""
    nan: Literal["breach", "ignore"] = "breach"
    severity: Severity | None = None
    """None: WARN, or the severity of the finding."""
    message: str = ""
    notifiers: list[str] | None = None
    """Names of notifiers; None: all that are configured."""
    inhibits: list[str] = []
    """Patterns of rules whose alerts of the same run are not sent while this one fires."""
    repeat: str | float = "4h"
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time, or of steps."""

    seconds: float = 0.0
    steps: int = 0

    def __bool__(self) -> bool:
        return self.seconds > 0 or self.steps > 0

    def __str__(self) -> str:
        if self.steps:
            return f"{self.steps} step{'s' if self.steps != 1 else ''}"
        for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
            if self.seconds >= size and self.seconds % size == 0:
                return f"{self.seconds / size:g}{unit}"
        return f"{self.seconds:g}s"


@dataclass(frozen=True, slots=True)
class Condition:
    """When a value breaches; a healthy one is from `low` to `high`."""

    kind: Kind
    low: float = -math.inf
    high: float = math.inf
    strict: bool = False
    """The bounds themselves breach too, as in `>= 5`."""
    absent: float = 0.0
    finding: re.Pattern[str] | None = None
    test: Callable[[float], bool] | None = None
    text: str = ""

    def breaches(self, value: float) -> bool:
        """Return whether a number breaches; not defined for NaN, `absent`, `changes` and `finding`."""
        if self.test is not None:
            return bool(self.test(value))
        return not (self.low < value < self.high) if self.strict else not (self.low <= value <= self.high)


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A rule that was checked, ready to be evaluated."""

    rule: Rule
    condition: Condition
    hold: Duration
    keep_firing: Duration
    warm_up: Duration
    no_data: float
    repeat: float
    keys: re.Pattern[str]
    runs: tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]
    ranks: frozenset[int] | None
    inhibits: re.Pattern[str] | None
    source: str = ""
    """Where it was defined: a pack, a file, or `init`."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.rule.name

    @property
    def severity(self) -> Severity:
        """The severity of a breach, unless the finding has one."""
        return self.rule.severity or "WARN"

    def wants_key(self, key: str) -> bool:
        """Return whether it applies to a key."""
        if self.condition.kind == "finding":
            return False
        same = canonical_key(key)
        category = self.rule.category
        if category and not key.startswith(f"{category}/") and not same.startswith(f"{category_of(category)}/"):
            return False
        return self.keys.fullmatch(key) is not None or self.keys.fullmatch(same) is not None

    def wants_run(self, id: str, project: str, name: str) -> bool:
        """Return whether it applies to a run."""
        return all(pattern.fullmatch(text) for pattern, text in zip(self.runs, (id, project, name), strict=True))


def compile_rule(rule: Rule, source: str = "") -> Compiled:
    """Check a rule; RuleError names the field and the fix."""
    if _NAME.fullmatch(rule.name) is None:
        raise RuleError("name", f"use 1 to {LONGEST_NAME} letters, digits, spaces and . : / _ -")
    condition = read_condition(rule.when) if rule.test is None else _python_condition(rule)
    keys = [rule.key] if isinstance(rule.key, str) else list(rule.key)
    if not keys or not all(keys):
        raise RuleError("key", "name a metric, or a pattern such as */loss")
    if condition.kind == "finding" and rule.over_ranks:
        raise RuleError("over_ranks", "a finding covers all ranks already: remove this")
    if rule.over_ranks and rule.rank is not None:
        raise RuleError("over_ranks", "choose either `rank` or `over_ranks`")
    _check_recovery(rule, condition)
    check_message(rule.message)
    ranks = None if rule.rank is None else frozenset([rule.rank] if isinstance(rule.rank, int) else rule.rank)
    if ranks is not None and (not ranks or min(ranks) < 0):
        raise RuleError("rank", "give a rank from 0 on, or a list of them")
    return Compiled(
        rule=rule,
        condition=condition,
        hold=read_duration("for", rule.hold),
        keep_firing=read_duration("keep_firing", rule.keep_firing),
        warm_up=read_duration("warm_up", rule.warm_up),
        no_data=_seconds("no_data", rule.no_data),
        repeat=_seconds("repeat", rule.repeat),
        keys=key_patterns(keys),
        runs=(patterns([rule.run.id]), patterns([rule.run.project]), patterns([rule.run.name])),
        ranks=ranks,
        inhibits=patterns(rule.inhibits) if rule.inhibits else None,
        source=source,
    )


EXAMPLE = {"name": "high", "key": "loss", "when": "> 10"}


def from_python(given: Sequence[Rule | Mapping[str, Any]], source: str = "init") -> tuple[Compiled, ...]:
    """Check rules given in Python, as objects or mappings; ConfigError names the one that is wrong."""
    found: dict[str, Compiled] = {}
    for index, each in enumerate(given):
        try:
            if not isinstance(each, Rule | Mapping):
                raise TypeError(f"a rule is a dict such as {EXAMPLE}, not {type(each).__name__}")
            rule = each if isinstance(each, Rule) else msgspec.convert(dict(each), Rule)
            if rule.name in found:
                raise RuleError("name", f"two rules are named {rule.name}")
            found[rule.name] = compile_rule(rule, source)
        except (msgspec.ValidationError, RuleError, TypeError, ValueError) as error:
            raise ConfigError(f"alerts: rule {index + 1}: {error}") from None
    return tuple(found.values())


def key_patterns(globs: Sequence[str]) -> re.Pattern[str]:
    """Compile patterns of keys; their categories are in the canonical spelling too."""
    return patterns(list(dict.fromkeys([*globs, *map(canonical_key, globs)])))


def patterns(globs: Sequence[str]) -> re.Pattern[str]:
    """Compile some patterns into one regular expression."""
    return re.compile("|".join(translate(re.sub(r"\*+", "*", glob[:500])) for glob in globs))


def _python_condition(rule: Rule) -> Condition:
    if not callable(rule.test):
        raise RuleError("test", "a function can only be given in Python: use `when` here")
    if rule.when:
        raise RuleError("when", "choose either `when` or `test`")
    return Condition("test", test=rule.test, text=getattr(rule.test, "__name__", "a function"))


def read_condition(when: str) -> Condition:
    """Read a condition such as `> 5`."""
    words = re.sub(r"^\s*(>=|<=|>|<)", r"\1 ", when).split()
    text_given = when.strip()
    match words:
        case [(">" | ">=") as sign, number]:
            return Condition("above", high=_number(number), strict=sign == ">=", text=text_given)
        case [("<" | "<=") as sign, number]:
            return Condition("below", low=_number(number), strict=sign == "<=", text=text_given)
        case ["outside", first, second]:
            low, high = _number(first), _number(second)
            if low >= high:
                raise RuleError("when", f"the first of two bounds is the lower one: outside {second} {first}")
            return Condition("outside", low=low, high=high, text=text_given)
        case ["absent", *rest] if rest:
            seconds = _seconds("when", " ".join(rest))
            if seconds <= 0:
                raise RuleError("when", "give the time a value may be absent, such as `absent 5m`")
            return Condition("absent", absent=seconds, text=text_given)
        case ["changes"]:
            return Condition("changes", text=text_given)
        case ["not", "finite"]:
            return Condition("not finite", test=math.isinf, text=text_given)
        case ["finding", *kinds] if len(kinds) <= 20:
            return Condition("finding", finding=patterns(kinds or ["*"]), text=text_given)
    raise RuleError("when", f"{text_given[:60]!r} is not a condition: {_WHEN}")


def read_duration(field: str, given: str | float) -> Duration:
    """Read a number of seconds, or a text such as `5m` or `10 steps`."""
    found = _DURATION.fullmatch(str(given).strip().lower())
    if found is None:
        raise RuleError(field, f"{str(given)[:40]!r} is not a duration: write 30s, 5m, 2h, 1d or 10 steps")
    number, unit = float(found[1]), found[2] or "s"
    if unit.startswith("step"):
        if number != int(number) or number > 2**53:
            raise RuleError(field, "the number of steps must be an integer")
        return Duration(steps=int(number))
    seconds = number * _SECONDS["ms" if unit == "ms" else unit[0]]
    if seconds > _LONGEST_SECONDS:
        raise RuleError(field, "this is longer than a year")
    return Duration(seconds=seconds)


def check_message(message: str) -> None:
    """Check that a template uses only known names."""
    if len(message) > LONGEST_MESSAGE:
        raise RuleError("message", f"a message has at most {LONGEST_MESSAGE} characters")
    for name in _PLACEHOLDER.findall(message):
        if name not in FIELDS:
            raise RuleError("message", f"there is no {{{name[:40]}}}; there are {', '.join(FIELDS)}")


def fill(message: str, values: dict[str, Any]) -> str:
    """Replace names in braces by values; unknown names stay."""
    return _PLACEHOLDER.sub(lambda found: str(values.get(found[1], found[0])), message)


def severity_number(severity: str) -> int:
    """OpenTelemetry's number of a severity."""
    return SEVERITIES.get(severity, SEVERITIES["WARN"])


def _check_recovery(rule: Rule, condition: Condition) -> None:
    if rule.recovery is None:
        return
    if condition.kind not in ("above", "below"):
        raise RuleError("recovery", "only a rule with > or < has a recovery threshold")
    if not math.isfinite(rule.recovery):
        raise RuleError("recovery", "this must be a finite number")
    healthy = rule.recovery <= condition.high if condition.kind == "above" else rule.recovery >= condition.low
    if not healthy:
        side = "at or below" if condition.kind == "above" else "at or above"
        raise RuleError("recovery", f"a rule with {condition.text} recovers {side} its threshold")


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RuleError("when", f"{text[:40]!r} is not a finite number: {_WHEN}")
    return number


def _seconds(field: str, given: str | float) -> float:
    duration = read_duration(field, given)
    if duration.steps:
        raise RuleError(field, "give a duration such as 5m: no steps pass while no values arrive")
    return duration.seconds
