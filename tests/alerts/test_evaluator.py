"""The evaluator: rules matched to the series of runs, findings and recorded alerts, and what survives a restart."""

import math
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.zoo.memory import size_of
from stepscope.alerts import evaluator as evaluator_module
from stepscope.alerts.alert import ATTR_FINGERPRINT, ATTR_RULE, ATTR_STATE, Alert, Subject
from stepscope.alerts.evaluator import Evaluator
from stepscope.alerts.notifiers.shapes import describe
from stepscope.alerts.rule import Rule
from stepscope.alerts.rule_file import from_python, with_packs
from stepscope.alerts.rule_matching import Matcher
from stepscope.alerts.state_machine import NS
from stepscope.diagnosis.finding import Finding
from stepscope.model import records
from stepscope.model.names import ALERT_FINDING, EVENT_FINISHED
from stepscope.model.ports import Writer
from stepscope.model.records import Event, Metric


def writer(rank: int = 0, world: int = 1, run: str = "r1") -> Writer:
    """A process of a run."""
    return Writer(id=f"w{rank}", run=run, project="gpt", name="base", rank=rank, world_size=world)


def point(value: float, step: int | None, time: int | None = None, key: str = "loss") -> Metric:
    """A value of `trainer/KEY`."""
    return Metric((step or 0) * NS if time is None else time, step, None, "trainer", {key: value})


def feed(evaluator: Evaluator, values: list[float], **who: object) -> list[Alert]:
    """Feed values at steps 0, 1, ... and return copies of the alerts that changed."""
    made = writer(**who)  # type: ignore[arg-type]
    for step, value in enumerate(values):
        evaluator.feed(made, [point(value, step)], step * NS)
    return list(evaluator.changed.values())


def test_an_alert_says_what_where_and_since_when() -> None:
    """A firing rule makes one alert with run, key, rank, step, value and message."""
    rules = from_python([{"name": "high", "key": "trainer/loss", "when": "> 5", "for": "2 steps"}])
    (alert,) = feed(Evaluator(rules), [1, 6, 7, 8])
    assert (alert.state, alert.subject) == ("firing", Subject("high", "r1", "trainer/loss", 0))
    assert (alert.step, alert.last_step, alert.value) == (1, 3, 8)
    assert alert.message == "trainer/loss on rank 0 is 7 since step 1: the rule high says > 5"


def test_values_of_the_past_are_history() -> None:
    """Old records of an imported run send no notifications."""
    rules = from_python([{"name": "high", "when": "> 5"}])
    evaluator = Evaluator(rules)
    evaluator.feed(writer(), [point(9.0, 1, time=NS)], now=2 * 3600 * NS)
    assert not evaluator.changed
    evaluator.feed(writer(), [point(9.0, 2, time=2 * 3600 * NS)], now=2 * 3600 * NS)
    assert [alert.state for alert in evaluator.changed.values()] == ["firing"]


def test_resolved_and_again_are_two_alerts_of_one_fingerprint() -> None:
    """Each firing is an alert of its own; the fingerprint tells that it is the same subject."""
    rules = from_python([{"name": "high", "when": "> 5"}])
    first, second = feed(Evaluator(rules), [6, 1, 6])
    assert (first.state, second.state) == ("resolved", "firing")
    assert first.id != second.id
    assert first.fingerprint == second.fingerprint


def test_one_value_of_all_ranks() -> None:
    """A rule over ranks judges each step once, when all ranks have reported it, and NaN is not lost in a maximum."""
    rules = from_python([{"name": "apart", "key": "trainer/loss", "when": "> 1", "over_ranks": "spread"}])
    evaluator = Evaluator(rules)
    for step, values in enumerate([(1.0, 1.5), (1.0, 3.0), (1.0, 1.0), (math.nan, 1.0)]):
        for rank, value in enumerate(values):
            evaluator.feed(writer(rank, 2), [point(value, step)], step * NS)
        state = next(iter(evaluator.open.values())).state if evaluator.open else "none"
        assert state == ("none", "firing", "none", "firing")[step]


def test_ranks_that_never_report_are_not_waited_for() -> None:
    """A key that one of four ranks logs is judged over that one, after a few steps."""
    evaluator = Evaluator(from_python([{"name": "high", "when": "> 5", "over_ranks": "max"}]))
    assert [alert.state for alert in feed(evaluator, [6.0] * 6, world=4)] == ["firing"]


def test_absence_is_an_alert_until_a_value_comes() -> None:
    """A series without values for longer than allowed fires, and resolves with the next value."""
    evaluator = Evaluator(from_python([{"name": "quiet", "key": "trainer/loss", "when": "absent 10s"}]))
    evaluator.feed(writer(), [point(1.0, 0)], 0)
    evaluator.tick(9 * NS)
    assert not evaluator.open
    evaluator.tick(11 * NS)
    (alert,) = evaluator.open.values()
    assert (alert.state, alert.message) == ("firing", "trainer/loss on rank 0 has had no value for 10s")
    evaluator.feed(writer(), [point(1.0, 1)], 12 * NS)
    assert alert.state == "resolved"


def test_a_run_that_ended_has_no_open_alerts() -> None:
    """The end of a run resolves its alerts, and nothing is absent after it."""
    rules = from_python([{"name": "high", "when": "> 5"}, {"name": "quiet", "when": "absent 10s"}])
    evaluator = Evaluator(rules)
    feed(evaluator, [6])
    (alert,) = evaluator.open.values()
    evaluator.feed(writer(), [Event(NS, None, None, None, None, 9, EVENT_FINISHED)], NS)
    assert (alert.state, alert.ended) == ("resolved", True)
    evaluator.tick(100 * NS)
    assert not evaluator.open


def finding(kind: str = "not_finite", severity: str = "FATAL", **more: object) -> Finding:
    """A finding about the loss."""
    said = {
        "step": 7,
        "key": "trainer/loss",
        "time": 7 * NS,
        "advice": "Lower it.",
        "ranks": (1,),
        "expected": (1.0, 2.0),
        **more,
    }
    return Finding(kind, severity, "loss is NaN since step 7", **said)  # type: ignore[arg-type]


def test_findings_are_alerts_by_the_default_rule() -> None:
    """A finding is one alert with its severity, words and advice; reported again it stays one; quiet, it resolves."""
    evaluator = Evaluator(with_packs([]).rules)
    evaluator.take_finding(writer(), finding(), 7 * NS)
    evaluator.take_finding(writer(), finding(ranks=(0, 1), last=9, time=9 * NS), 9 * NS)
    (alert,) = evaluator.changed.values()
    assert (alert.state, alert.severity, alert.message) == ("firing", "FATAL", "loss is NaN since step 7")
    assert alert.finding is not None
    assert (alert.finding["advice"], alert.finding["ranks"], alert.last_step) == ("Lower it.", [0, 1], 9)
    assert (alert.finding["band"], describe(alert)["expected"]) == ("Expected 1 to 2", "Expected 1 to 2")
    evaluator.tick(20 * 60 * NS)
    assert alert.state == "resolved"


def test_what_trainer_and_hub_both_see_is_one_alert() -> None:
    """The same rule in trainer and hub, or a finding of both, makes one alert, whichever came first."""
    rules = from_python([{"name": "high", "when": "> 5"}])
    about = Subject("high", "r1", "trainer/loss", 0)
    said = {ATTR_RULE: "high", ATTR_FINGERPRINT: about.fingerprint, ATTR_STATE: "firing"}
    more = {"alert.key": "trainer/loss", "alert.rank": 0, "alert.value": 6.0}
    recorded = records.Alert(0, 0, None, None, None, 13, "high", "loss is 6", {**said, **more})
    breach = point(6.0, 0)
    for order in ([recorded, breach], [breach, recorded], [point(1.0, 0), recorded, breach]):
        evaluator = Evaluator(rules)
        evaluator.feed(writer(), order, 0)
        (alert,) = evaluator.changed.values()
        assert sorted(alert.seen_by) == ["hub", "trainer"]
        evaluator.feed(writer(), [point(1.0, 1)], NS)
        assert alert.state == "resolved"


def test_an_alert_of_a_rule_that_only_the_trainer_has() -> None:
    """It is open from the trainer's record until the trainer resolves it or the run ends."""
    about = Subject("mine", "r1", "trainer/x", 0)
    attrs = {ATTR_RULE: "mine", ATTR_FINGERPRINT: about.fingerprint, "alert.key": "trainer/x", "alert.rank": 0}
    evaluator = Evaluator(())
    for state in ("firing", "resolved"):
        record = records.Alert(0, 3, None, None, None, 17, "mine", "x is odd", {**attrs, ATTR_STATE: state})
        evaluator.feed(writer(), [record], 0)
        (alert,) = evaluator.changed.values()
        assert (alert.state, alert.severity, alert.seen_by) == (state, "ERROR", ("trainer",))


def test_a_recorded_alert_is_a_finding() -> None:
    """What a program reports with `run.alert` becomes an alert with its severity and text."""
    evaluator = Evaluator(with_packs([]).rules)
    evaluator.feed(writer(), [records.Alert(5, 3, None, None, None, 17, "disk", "the disk is slow")], 5)
    (alert,) = evaluator.changed.values()
    assert (alert.subject.finding, alert.subject.key, alert.severity) == ("alert", "disk", "ERROR")
    assert alert.message == "disk: the disk is slow"


def test_a_run_that_a_finding_names_first() -> None:
    """It gets its name with its first records, also in alerts that are open, and rules for that name watch it."""
    high = {"name": "high", "key": "trainer/loss", "when": "> 5", "run": {"name": "base*"}}
    evaluator = Evaluator((*with_packs([]).rules, *from_python([high])))
    found = Finding("crash", "FATAL", "it ended", step=1)
    evaluator.take_finding(Writer(id="", run="r1", project="p"), found, 0)
    (alert,) = evaluator.changed.values()
    assert alert.run_name == ""
    evaluator.feed(writer(), [point(7.0, 2)], NS)
    assert alert.run_name == "base"
    assert {each.subject.rule for each in evaluator.changed.values()} >= {"high"}


def test_a_finding_of_trainer_and_hub_is_one_alert() -> None:
    """What the diagnosis in the trainer recorded and what the hub finds itself is one alert, whichever came first."""
    attrs = {f"{ALERT_FINDING}.{name}": value for name, value in (("kind", "not_finite"), ("key", "trainer/loss"))}
    told = records.Alert(
        7 * NS, 7, None, None, None, 21, ALERT_FINDING, "loss is NaN", {**attrs, f"{ALERT_FINDING}.since": 7}
    )
    for trainer_first in (True, False):
        evaluator = Evaluator(with_packs([]).rules)
        feeds = [
            lambda each=evaluator: each.feed(writer(), [told], 7 * NS),
            lambda each=evaluator: each.take_finding(writer(), finding(), 7 * NS),
        ]
        for feed_one in feeds if trainer_first else reversed(feeds):
            feed_one()
        (alert,) = evaluator.changed.values()
        assert alert.seen_by == (("trainer", "hub") if trainer_first else ("hub", "trainer"))
        assert (alert.subject.finding, alert.severity, alert.step) == ("not_finite", "FATAL", 7)


def test_runs_that_fell_silent_are_let_go() -> None:
    """A run of which nothing comes any more gives back what it took of the bounds, unless something is open."""
    evaluator = Evaluator(from_python([{"name": "high", "when": "> 5"}]))
    feed(evaluator, [1.0])
    feed(evaluator, [6.0], run="r2")
    evaluator.forget_quiet(3 * 3600 * NS)
    assert evaluator.matcher.counts == {"high": 1}
    feed(evaluator, [6.0])
    assert {alert.subject.run for alert in evaluator.open.values()} == {"r1", "r2"}


def test_a_restart_neither_forgets_nor_fires_again() -> None:
    """A new evaluator restores open and pending alerts, and continues their timers."""
    rules = from_python([{"name": "high", "when": "> 5"}, {"name": "long", "when": "> 5", "for": "10 steps"}])
    old = Evaluator(rules)
    feed(old, [6, 6, 6])
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(list(old.open.values())), type=list[Alert])
    new = Evaluator(rules)
    new.restore(kept)
    new.feed(writer(), [point(6.0, 3)], 3 * NS)
    assert not new.changed
    new.feed(writer(), [point(6.0, 10)], 10 * NS)
    assert {alert.subject.rule for alert in new.changed.values() if alert.state == "firing"} == {"long"}
    new.feed(writer(), [point(1.0, 11)], 11 * NS)
    assert {alert.state for alert in new.changed.values()} == {"resolved"}


def test_bounds() -> None:
    """A rule watches a bounded number of series; the rest is counted by rule."""
    evaluator = Evaluator(from_python([{"name": "all", "when": "> 5"}]))
    record = Metric(0, 0, None, None, {f"k{index}": 6.0 for index in range(600)})
    evaluator.feed(writer(), [record], 0)
    assert len(evaluator.open) == 500
    assert evaluator.matcher.skipped == {"all": 100}
    evaluator.end_run("r1", 1)
    assert evaluator.matcher.counts == {"all": 0}


def test_rules_are_found_by_any_of_their_patterns() -> None:
    """However a pattern is written, it watches the keys that it matches, and no others."""
    globs = ["trainer/loss", "*loss", "t?ainer/l*", "[st]rainer/loss", "*", "trainer/*", "other", "trainer/loss*x", ""]
    rules = [{"name": f"rule {place}", "key": [glob or "none", "b"], "when": "> 5"} for place, glob in enumerate(globs)]
    feed(evaluator := Evaluator(from_python(rules)), [6.0])
    assert sorted(alert.subject.rule for alert in evaluator.open.values()) == [f"rule {place}" for place in range(6)]


@pytest.mark.parametrize("value", [True, 10**400, -(10**400), math.nan, math.inf])
def test_odd_numbers(value: float) -> None:
    """Any number a record may hold is judged without an exception."""
    evaluator = Evaluator(from_python([{"name": "a", "when": "> 5"}, {"name": "b", "when": "changes"}]))
    evaluator.feed(writer(), [point(1.0, 0), point(value, 1), point(value, 2)], 0)


def test_the_cost_of_a_point() -> None:
    """1,000 rules over 10,000 series: a healthy point costs a look, not a search through the rules."""
    rules = from_python([Rule(name=f"rule {index}", key=f"k{index}/*", when="> 5") for index in range(1000)])
    evaluator = Evaluator(rules)
    rows = [Metric(0, 0, None, None, {f"k{index}/{part}": 1.0 for part in range(10)}) for index in range(1000)]
    began = time.thread_time()
    evaluator.feed(writer(), rows, 0)
    assert time.thread_time() - began < 3.0, "a new series is compared with few of the rules"
    assert sum(evaluator.matcher.counts.values()) == 10_000
    began = time.thread_time()
    evaluator.feed(writer(), rows, 0)
    assert time.thread_time() - began < 0.1, "10,000 points must take less than 10 % of a second"


@given(values=st.lists(st.sampled_from((0.0, 1.5, 3, 7.0, 10**400, math.nan, math.inf)), max_size=40))
def test_rules_on_one_series_do_not_see_each_other(values: list[float]) -> None:
    """Values within the limits of all rules are skipped quickly; each rule fires as if it were alone."""
    described = [
        {"name": "high", "when": "> 2", "for": "2 steps"},
        {"name": "higher", "when": "> 5", "keep_firing": "3 steps"},
        {"name": "low", "when": "< 1", "warm_up": "4 steps"},
        {"name": "broken", "when": "not finite"},
    ]

    def fired(rules: list[dict[str, object]]) -> list[tuple[object, ...]]:
        found = feed(Evaluator(from_python(rules)), values)
        return sorted((each.subject.rule, each.state, each.began, each.step, each.resolved) for each in found)

    assert fired(described) == sorted(each for rule in described for each in fired([rule]))


def test_rules_over_ranks_share_the_values() -> None:
    """Two rules on the same value of all ranks are judged at the same steps."""
    both = [{"name": f"over {limit}", "when": f"> {limit}", "over_ranks": "max"} for limit in (2, 5)]
    evaluator = Evaluator(from_python(both))
    for step, value in enumerate((1.0, 3.0, 9.0)):
        for rank in range(2):
            evaluator.feed(writer(rank, 2), [point(value + rank / 10, step)], step * NS)
    assert {alert.subject.rule: alert.step for alert in evaluator.changed.values()} == {"over 2": 1, "over 5": 2}


def test_ever_new_names_need_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of series, of shapes of records and of findings is limited."""
    monkeypatch.setattr(evaluator_module, "MAX_SHAPED", 300)
    monkeypatch.setattr(evaluator_module, "MAX_KNOWN", 50)
    evaluator, sizes = Evaluator(with_packs([]).rules), []
    evaluator.matcher = Matcher(with_packs([]).rules, most_of_rule=20, most=100)
    for step in range(1200):
        keys = [f"a{step}/loss", f"b{step}", "loss"]
        evaluator.feed(writer(), [Metric(step * NS, step, None, None, dict.fromkeys(keys, float("nan")))], step * NS)
        evaluator.take_finding(writer(), finding(step=step, key=f"k{step}"), step * NS)
        evaluator.forget_quiet(step * NS)
        evaluator.changed.clear()
        sizes += [size_of(evaluator)] if step in (599, 1199) else []
    assert sizes[1] < 1.25 * sizes[0]
    assert evaluator.matcher.skipped


@pytest.mark.parametrize("pattern", ["trainer/loss", "train/loss", "trainer/*", "train/lo*", "*/loss"])
@pytest.mark.parametrize("recorded", [("trainer", "loss"), (None, "train/loss"), (None, "Train/loss")])
def test_a_rule_watches_a_metric_in_any_spelling(pattern: str, recorded: tuple[str | None, str]) -> None:
    """A rule applies to a metric whichever word its category is logged and written with."""
    category, key = recorded
    evaluator = Evaluator(from_python([{"name": "high", "key": pattern, "when": "> 5"}]))
    evaluator.feed(writer(), [Metric(0, 0, None, category, {key: 9.0})], 0)
    assert [alert.state for alert in evaluator.changed.values()] == ["firing"]


@pytest.mark.parametrize("category", ["train", "trainer"])
def test_a_category_is_any_word_for_it(category: str) -> None:
    """The category of a rule is one, whichever word it is written with."""
    evaluator = Evaluator(from_python([{"name": "high", "category": category, "when": "> 5"}]))
    evaluator.feed(writer(), [Metric(0, 0, None, None, {"train/loss": 9.0, "eval/loss": 9.0})], 0)
    assert [alert.subject.key for alert in evaluator.changed.values()] == ["train/loss"]
