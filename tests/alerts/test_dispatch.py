"""Dispatch of notifications: groups, repeats, muting."""

import pytest

from stepscope.alerts.alert import Alert, Expected, Silence, Subject
from stepscope.alerts.dispatch import GROUP_INTERVAL, Dispatcher, mute_reason, notification
from stepscope.alerts.rule_file import from_python
from stepscope.alerts.state_machine import NS

RULES = {
    rule.name: rule
    for rule in from_python(
        [
            {"name": "high", "when": "> 5", "repeat": "1h"},
            {"name": "worse", "when": "> 9", "inhibits": ["high", "finding kl*"]},
            {"name": "mine", "when": "> 5", "notify": ["ops"]},
        ]
    )
}
HOUR = 3600 * NS


def alert(rule: str = "high", run: str = "r1", key: str = "loss", began: int = NS, **more: object) -> Alert:
    """An alert that has just fired."""
    said = {"state": "firing", "project": "gpt", "fired": began, "changed": began, **more}
    return Alert(id=f"{rule}-{run}-{key}-{began}", subject=Subject(rule, run, key), began=began, **said)  # type: ignore[arg-type]


def dispatcher(**muted: str) -> Dispatcher:
    """Two notifiers; alerts of the rules named are muted for the reason given."""
    return Dispatcher(RULES, ["log", "ops"], lambda alert, now: muted.get(alert.subject.rule, ""))


def test_alerts_of_a_run_are_one_notification() -> None:
    """What begins within a second is sent together, worst first, once to each notifier."""
    made = dispatcher()
    first, second = alert(severity="WARN"), alert(key="acc", severity="FATAL")
    made.take([first], NS)
    made.take([second], NS + 1)
    assert made.due([first, second], NS + 2) == []
    found = made.due([first, second], 3 * NS)
    assert [(each.notifier, len(each.alerts), each.severity) for each in found] == [
        ("log", 2, "FATAL"),
        ("ops", 2, "FATAL"),
    ]
    assert found[0].title == "high and 1 more in r1"
    assert made.due([first, second], 4 * NS) == []


def test_a_notification_has_advice_where_there_is_some() -> None:
    """The words of an alert, then the advice of its finding; a rule has none."""
    plain = alert(severity="WARN", message="loss is 9")
    advised = alert(key="acc", severity="WARN", message="it fell", finding={"advice": "Compare inputs."})
    found = notification("log", "firing", [plain, advised], NS)
    assert found.text.splitlines() == ["WARN: loss is 9", "WARN: it fell. Compare inputs."]


def test_further_alerts_of_a_run_wait() -> None:
    """After a notification the next of the same run comes a minute later; another run does not wait."""
    made = dispatcher()
    first, second, other = alert(), alert(key="acc"), alert(run="r2")
    made.take([first], NS)
    made.due([first], 3 * NS)
    made.take([second, other], 4 * NS)
    assert {each.run for each in made.due([], 6 * NS)} == {"r2"}
    assert {each.run for each in made.due([], 3 * NS + int(GROUP_INTERVAL * NS))} == {"r1"}


def test_resolved_is_told_to_those_who_were_told() -> None:
    """An alert that resolved before it was sent is not sent."""
    made = dispatcher()
    told, short = alert(), alert(run="r2")
    made.take([told], NS)
    made.due([told], 3 * NS)
    made.take([short], 3 * NS)
    told.state = short.state = "resolved"
    made.take([told, short], 3 * NS)
    found = made.due([], 3 * NS + int(GROUP_INTERVAL * NS))
    assert {(each.status, each.run) for each in found} == {("resolved", "r1")}


def test_repeats_until_acknowledged() -> None:
    """An open alert is sent again after its interval, unless it is acknowledged."""
    made, one = dispatcher(), alert()
    made.take([one], NS)
    made.due([one], 3 * NS)
    made.due([one], HOUR)
    assert made.due([one], HOUR + 2 * NS) == []
    made.due([one], HOUR + 4 * NS)
    assert len(made.due([one], HOUR + 6 * NS)) == 2
    one.acknowledged = 1
    made.due([one], 3 * HOUR)
    assert made.due([one], 3 * HOUR + 60 * NS) == []


def test_a_rule_chooses_its_notifiers() -> None:
    """`notify` selects the notifiers."""
    made, one = dispatcher(), alert("mine")
    made.take([one], NS)
    assert [each.notifier for each in made.due([one], 3 * NS)] == ["ops"]


def test_what_is_muted_is_told_when_it_is_not_any_more() -> None:
    """A muted alert says why; when the silence ends and it still fires, it is sent."""
    muted = {"high": "silence s1"}
    made = Dispatcher(RULES, ["log"], lambda alert, now: muted.get(alert.subject.rule, ""))
    one = alert()
    made.take([one], NS)
    assert made.due([one], 3 * NS) == []
    assert one.muted == "silence s1"
    muted.clear()
    made.due([one], 5 * NS)
    assert len(made.due([one], 7 * NS)) == 1
    assert one.muted == ""


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"silences": [Silence(id="s", rule="hi*", until=10 * NS)]}, "silence s"),
        ({"silences": [Silence(id="s", run="other", until=10 * NS)]}, ""),
        ({"silences": [Silence(id="s", key="lo*", until=2 * NS)]}, ""),
        ({"expected": [Expected(id="e", rule="high", key="loss", run="r1", who="ann")]}, "expected, marked by ann"),
        ({"expected": [Expected(id="e", rule="high", key="loss", project="gpt")]}, "expected"),
        ({"expected": [Expected(id="e", rule="high", key="loss", project="bert")]}, ""),
        ({"firing": [alert("worse")]}, "explained by worse"),
        ({"firing": [alert("worse", run="r2")]}, ""),
        ({"now": 3 * HOUR}, "the records are old"),
    ],
)
def test_why_nobody_is_told(about: dict[str, object], why: str) -> None:
    """Silences that last, marks as expected, worse alerts of the same run, and old records mute."""
    said = {"now": 3 * NS, "silences": [], "expected": [], "firing": [], **about}
    assert mute_reason(alert(), rules=RULES, **said) == why  # type: ignore[arg-type]
