"""Replays rules over stored records, and runs tests of rules on tables of values."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from stepscope.alerts.alert import Alert
from stepscope.alerts.evaluator import Evaluator
from stepscope.alerts.rule import Compiled, RuleError, read_duration
from stepscope.alerts.state_machine import NS, State
from stepscope.model.errors import StepscopeError
from stepscope.model.ports import Writer
from stepscope.model.records import Metric, Record

MAX_VALUES = 100_000
_TOKEN = re.compile(r"(_|[+-]?(?:\d++\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|nan|inf))(?:x(\d{1,6}))?", re.IGNORECASE)


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a rule after a step."""

    rule: str
    step: int
    state: State
    key: str | None = None
    rank: int | None = None


class TestedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The run that the values of a test belong to, for rules about some runs only."""

    id: str = "test"
    project: str = "test"
    name: str | None = None


class RuleTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of values, one for each step, and what is expected."""

    name: str
    values: dict[str, str | list[float | None]]
    """By key: numbers, or a text such as `1x10 9 9 nan _`; `_` is a step without a value."""
    expect: list[Expectation]
    every: str | float = 1
    """The time from one step to the next."""
    rank: int = 0
    run: TestedRun = TestedRun()


class BadTest(StepscopeError):
    """A test of rules is invalid."""


def replay(rules: Sequence[Compiled], records: Iterable[tuple[Writer, Record]]) -> list[Alert]:
    """Return what fires over records in order of time; no notifications are sent."""
    evaluator = Evaluator(rules, "replay")
    ticked = 0
    for writer, record in records:
        if record.time - ticked > NS:
            evaluator.tick(record.time)
            ticked = record.time
        evaluator.feed(writer, (record,), record.time)
    return [alert for alert in evaluator.changed.values() if alert.fired]


def run_test(rules: Sequence[Compiled], test: RuleTest) -> list[str]:
    """Feed a table step by step; return the differences from what was expected, as text."""
    try:
        every = read_duration("every", test.every).seconds
    except RuleError as error:
        raise BadTest(f"{test.name}: {error}") from None
    table = {key: list(read_values(given)) for key, given in test.values.items()}
    names = {rule.name for rule in rules}
    for each in test.expect:
        if each.rule not in names:
            raise BadTest(f"{test.name}: there is no rule {each.rule!r}; there are {', '.join(sorted(names))}")
    evaluator = Evaluator(rules, "test")
    about = test.run
    writer = Writer(id="test", run=about.id, project=about.project, name=about.name, rank=test.rank)
    found: list[str] = []
    last = max([each.step for each in test.expect] + [len(values) for values in table.values()], default=0)
    if last > MAX_VALUES:
        raise BadTest(f"{test.name}: a test has at most {MAX_VALUES} steps")
    for step in range(last + 1):
        now = int(step * every * NS)
        for key, values in table.items():
            value = values[step] if step < len(values) else None
            if value is not None:
                evaluator.feed(writer, [Metric(now, step, None, None, {key: value})], now)
        evaluator.tick(now)
        wanted = [each for each in test.expect if each.step == step]
        found += [difference for each in wanted if (difference := _differs(each, evaluator.changed.values()))]
    return found


def _differs(wanted: Expectation, alerts: Iterable[Alert]) -> str:
    about = [alert for alert in alerts if alert.subject.rule == wanted.rule]
    about = [alert for alert in about if wanted.key in (None, alert.subject.key)]
    about = [alert for alert in about if wanted.rank in (None, alert.subject.rank)]
    state = max(about, key=lambda alert: alert.began).state if about else "inactive"
    if state == wanted.state:
        return ""
    return f"step {wanted.step}: {wanted.rule} is {state}, expected {wanted.state}"


def read_values(given: str | list[float | None]) -> Iterator[float | None]:
    """Read values from a list, or from a text in which `1x10` is ten times 1 and `_` is a missing value."""
    if not isinstance(given, str):
        yield from given
        return
    left = MAX_VALUES
    for token in given.split():
        found = _TOKEN.fullmatch(token)
        if found is None:
            raise BadTest(f"{token[:40]!r} is not a value: write numbers, nan, inf, _ for none, 1x10 for ten times 1")
        count = int(found[2] or 1)
        left -= count
        if left < 0:
            raise BadTest(f"a test has at most {MAX_VALUES} values of a key")
        yield from [None if found[1] == "_" else float(found[1])] * count
