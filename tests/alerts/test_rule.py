"""Rules: the accepted syntax, and the errors for invalid ones."""

import math
from typing import Any

import pytest

from stepscope.alerts.packs import PACKS, pack_rules
from stepscope.alerts.rule import Duration, Rule, RuleError, RunFilter, compile_rule, fill, read_duration
from stepscope.alerts.rule_file import Mistake, from_python, parse, with_packs
from stepscope.alerts.rule_replay import replay
from stepscope.model.errors import ConfigError
from stepscope.model.ports import Writer
from stepscope.model.records import Metric

FILE = """
rules:
  - name: high loss
    key: [trainer/loss, eval/loss]
    run: {project: gpt*}
    when: "> 5"
    for: 10 steps
    recovery: 4
    keep_firing: 1m
    warm_up: 100 steps
    severity: ERROR
    message: "{key} is {value} at step {step}"
    notify: [ops]
notifiers:
  ops: {webhook: {url: "https://example.org/hook"}}
packs: {system: false}
"""


def test_a_file_is_read() -> None:
    """A file gives rules that are checked, and notifiers by name."""
    found = parse(FILE, "alerts.yaml")
    (rule,) = found.rules
    assert (rule.condition.kind, rule.condition.high) == ("above", 5)
    assert rule.hold == Duration(steps=10)
    assert rule.keep_firing == Duration(seconds=60)
    assert rule.wants_key("trainer/loss")
    assert not rule.wants_key("trainer/loss_scale")
    assert rule.wants_run("r1", "gpt-small", "")
    assert not rule.wants_run("r1", "bert", "")
    assert found.notifiers["ops"]["webhook"]["url"] == "https://example.org/hook"


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("rules:\n  - name: a\n    when: bigger than 5\n", 3, 11, "is not a condition: write `> 5`"),
        ("rules:\n  - name: a\n    when: '> five'\n", 3, 11, "not a finite number"),
        ("rules:\n  - name: a\n    when: '> 5'\n    for: soon\n", 4, 10, "write 30s, 5m, 2h, 1d or 10 steps"),
        ("rules:\n  - name: a\n    when: '> 5'\n    recovery: 6\n", 4, 15, "recovers at or below its threshold"),
        ("rules:\n  - name: a\n    when: '> 5'\n    message: '{nonsense}'\n", 4, 14, "there is no {nonsense}"),
        ("rules:\n  - name: a\n    wen: '> 5'\n", 3, 5, "there is no field `wen`"),
        ("rules:\n  - name: a\n    when: '> 5'\n  - name: a\n    when: '< 5'\n", 4, 11, "two rules are named a"),
        ("rules:\n  - name: a\n    when: '> 5'\n    notify: [ops]\n", 4, 13, "there is no notifier 'ops'"),
        ("packs: {foo: true}\n", 1, 14, "there is no pack 'foo'"),
        ("rules:\n  - name: a\n    when: outside 3 1\n", 3, 11, "outside 1 3"),
        ("rules:\n  - name: a\n    when: absent 5 steps\n", 3, 11, "give a duration such as 5m"),
        ("rules:\n  - name: a\n    when: '> nan'\n", 3, 11, "not a finite number"),
        ("rules:\n  - name: a\n    when: '> 5'\n    recovery: .nan\n", 4, 15, "must be a finite number"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nrules: *b\n", 2, 8, "anchors and aliases are not allowed"),
        ("rules: [\n", 2, 1, ""),
        ("", 1, 1, "the document is empty"),
    ],
)
def test_mistakes_have_a_place(text: str, line: int, column: int, said: str) -> None:
    """Mistakes are reported with line and column, and with what to write instead."""
    with pytest.raises(Mistake) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    assert said in str(caught.value)


def test_packs_are_on_and_can_be_switched_off() -> None:
    """All packs are in force unless a file says otherwise; a rule of the same name takes the place of theirs."""
    names = {rule.name for rule in with_packs([]).rules}
    assert names == {rule.name for pack in PACKS for rule in pack_rules(pack)}
    text = "packs: {rl: false}\nrules: [{name: findings, when: finding not_finite}]\n"
    mine = with_packs([("mine", text)]).rules
    assert not any(rule.name.startswith("rl") for rule in mine)
    assert [rule.source for rule in mine if rule.name == "findings"] == ["mine"]


def test_kl_thresholds_are_those_of_the_pack() -> None:
    """KL above 0.05 is a warning and above 0.1 an error, for an update; one to a reference is left alone."""
    bounds = {rule.name: (rule.condition.high, rule.severity) for rule in pack_rules("rl")}
    assert bounds == {"rl: KL warning": (0.05, "WARN"), "rl: KL critical": (0.1, "ERROR")}
    rule = pack_rules("rl")[0]
    assert all(rule.wants_key(key) for key in ("trainer/kl", "signal.rl.kl_divergence", "train/approx_kl"))
    assert not any(rule.wants_key(key) for key in ("trainer/kl_coef", "trainer/kl_target", "trainer/loss"))
    assert not any(rule.wants_key(key) for key in ("kl", "objective/kl", "actor/kl_loss", "kl_policy_base"))


def test_rules_in_python() -> None:
    """Rules may be objects with functions, or mappings; ConfigError says which is wrong."""
    made = from_python([Rule(name="odd", key="loss", test=lambda value: value % 2 == 1), {"name": "b", "when": "< 0"}])
    assert made[0].condition.breaches(3)
    assert not made[0].condition.breaches(2)
    with pytest.raises(ConfigError, match=r"rule 1: when: .* is not a condition"):
        from_python([{"name": "x", "when": "="}])
    with pytest.raises(ConfigError, match="only be given in Python"):
        from_python([{"name": "x", "test": "1 == 1"}])


@pytest.mark.parametrize(
    ("text", "seconds", "steps"), [("90", 90, 0), ("1.5m", 90, 0), ("1 step", 0, 1), ("2d", 172800, 0)]
)
def test_durations(text: str, seconds: float, steps: int) -> None:
    """A length of time is in seconds, minutes, hours, days or steps."""
    assert read_duration("for", text) == Duration(seconds=seconds, steps=steps)


def test_the_bounds_of_conditions() -> None:
    """`>` and `<` leave the bound itself healthy, `>=` and `<=` do not."""
    table = {"> 5": (5.0, False), ">= 5": (5.0, True), "<5": (5.0, False), "<= 5": (5.0, True), ">5": (6.0, True)}
    for when, (value, breaches) in table.items():
        assert compile_rule(Rule(name="a", when=when)).condition.breaches(value) is breaches, when
    assert compile_rule(Rule(name="a", when="not finite")).condition.breaches(-math.inf)


def test_a_rule_must_choose() -> None:
    """What contradicts itself is refused by the field's name."""
    for field, rule in {
        "over_ranks": Rule(name="a", when="> 5", over_ranks="max", rank=0),
        "name": Rule(name="", when="> 5"),
        "key": Rule(name="a", when="> 5", key=[]),
        "recovery": Rule(name="a", when="changes", recovery=1.0),
    }.items():
        with pytest.raises(RuleError) as caught:
            compile_rule(rule)
        assert caught.value.field == field


def test_templates_fill_only_names() -> None:
    """A template is no code: braces that name nothing stay."""
    assert fill("{key} {value.__class__} {}", {"key": "loss"}) == "loss {value.__class__} {}"


def test_a_run_is_chosen_by_id_project_and_name() -> None:
    """All given patterns must match."""
    rule = compile_rule(Rule(name="a", when="> 5", run=RunFilter(project="gpt", name="base*")))
    assert rule.wants_run("x", "gpt", "base-1")
    assert not rule.wants_run("x", "gpt", "other")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([None], "rule 1: a rule is a dict such as"),
        (["> 1"], "rule 1: a rule is a dict such as .*, not str"),
        ([{"name": "a", "when": "> 1"}, {"name": "a", "when": "> 2"}], "rule 2: name: two rules are named a"),
        ([{"name": "a", "when": "> 1", "rank": -1}], "rule 1: rank: give a rank from 0 on"),
        ([{"name": "a", "when": "> 1", "rank": []}], "rule 1: rank: give a rank from 0 on"),
    ],
)
def test_wrong_rules_in_python_are_named(given: list[Any], said: str) -> None:
    """Which rule is wrong, and what a right one looks like."""
    with pytest.raises(ConfigError, match=said):
        from_python(given)


def test_alerts_that_follow_each_other_at_once_are_all_counted() -> None:
    """Steps of a few microseconds, as in a short run, do not make one alert of three."""
    (rule,) = parse("rules: [{name: high, key: loss, when: '> 4'}]").rules
    writer = Writer(id="w", run="r", project="p")
    values = [9.0 if step % 20 > 15 else 1.0 for step in range(60)]
    records = [(writer, Metric(10**18 + step * 5000, step, None, None, {"loss": at})) for step, at in enumerate(values)]
    assert [alert.step for alert in replay([rule], records)] == [16, 36, 56]
