"""Alerts in the hub: evaluated on what is stored, kept across restarts, muted and delivered as configured."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from stepscope.alerts.alert import Silence
from stepscope.alerts.rule_file import NAME
from stepscope.diagnosis.finding import Finding
from stepscope.hub.alerting.alerting_thread import Alerting
from stepscope.hub.alerting.rule_files import PAGE
from stepscope.hub.home import HubHome
from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric
from tests.sinks.servers import Server

NS = 1_000_000_000
RULES = "rules:\n  - {name: high, key: trainer/loss, when: '> 5'}\n"


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.ns = time.time_ns()

    def __call__(self) -> int:
        return self.ns

    def pass_by(self, seconds: float) -> None:
        """Let time go by."""
        self.ns += int(seconds * NS)


@pytest.fixture
def clock() -> Clock:
    """A clock."""
    return Clock()


@pytest.fixture
def open_hub(tmp_path: Path, clock: Clock) -> Callable[..., Alerting]:
    """Open the alerts of a home; their thread does not run."""

    def make(rules: str | None = None, **more: object) -> Alerting:
        if rules is not None:
            (tmp_path / NAME).write_text(rules)
        (tmp_path / "hub").mkdir(exist_ok=True)
        return Alerting(tmp_path, tmp_path / "hub", now=clock, **more)  # type: ignore[arg-type]

    return make


def items(clock: Clock, value: float, step: int = 0, run: str = "r1") -> list[ReceivedBatch]:
    """A loss that was just stored."""
    writer = Writer(id="w", run=run, project="gpt")
    return [ReceivedBatch("test", Batch(writer, step, [Metric(clock.ns, step, None, "trainer", {"loss": value})]))]


def feed(alerting: Alerting, clock: Clock, *values: float, run: str = "r1") -> None:
    """Store values one second apart, and evaluate each."""
    for step, value in enumerate(values):
        clock.pass_by(1)
        alerting.waiting.add(items(clock, value, step, run))
        alerting.step()


def test_states_survive_a_restart(open_hub: Callable[..., Alerting], clock: Clock) -> None:
    """A hub that starts again, after any end, knows what fires, and neither fires it again nor forgets it."""
    first = open_hub(RULES)
    feed(first, clock, 1, 6)
    (fired,) = first.alerts()
    second = open_hub()  # the first one was killed: nothing was closed
    feed(second, clock, 7)
    (alert,) = second.alerts()
    assert (alert.id, alert.state, alert.count) == (fired.id, "firing", 1)
    feed(second, clock, 1)
    assert [each.state for each in open_hub().alerts()] == ["resolved"]


class Changed(NamedTuple):
    """Findings of a run, as the diagnosis tells them."""

    run: str
    project: str
    findings: list[Finding]


def test_findings_are_alerts_once(open_hub: Callable[..., Alerting], clock: Clock) -> None:
    """A finding reported again, also after a restart and after it resolved, is the alert it was."""
    finding = Finding("not_finite", "FATAL", "loss is NaN", step=3, key="trainer/loss", time=clock.ns)
    for alerting in (open_hub(), open_hub()):
        alerting.waiting.put([Changed("r1", "gpt", [finding])])
        alerting.step()
        assert [(each.state, each.severity) for each in alerting.alerts()] == [("firing", "FATAL")]
    clock.pass_by(20 * 60)
    alerting.step()
    alerting.waiting.put([Changed("r1", "gpt", [finding])])
    alerting.step()
    assert [each.state for each in alerting.alerts()] == ["resolved"]


def test_a_run_that_ended_is_resolved(open_hub: Callable[..., Alerting], clock: Clock) -> None:
    """What is open of a run that does not go on is resolved and marked so."""
    alerting = open_hub(RULES, ended=lambda runs: runs)
    feed(alerting, clock, 6)
    clock.pass_by(10)
    alerting.step()
    assert [(each.state, each.ended) for each in alerting.alerts()] == [("resolved", True)]


def test_only_built_in_rules_let_the_thread_rest(open_hub: Callable[..., Alerting], clock: Clock) -> None:
    """With rules of users, or while an alert is open, time that passes may change something."""
    alerting = open_hub()
    feed(alerting, clock, 6)
    assert alerting._is_resting()
    alerting.waiting.put([Changed("r1", "gpt", [Finding("spike", "ERROR", "loss jumped", step=3, time=clock.ns)])])
    alerting.step()
    assert not alerting._is_resting()
    assert not open_hub(RULES)._is_resting()


def test_rules_are_read_again(open_hub: Callable[..., Alerting], clock: Clock, tmp_path: Path) -> None:
    """A file that changes is read; alerts of a rule that changed are resolved, others stay."""
    alerting = open_hub(RULES + "  - {name: other, key: trainer/loss, when: '> 5'}\n")
    feed(alerting, clock, 6)
    (tmp_path / NAME).write_text(RULES.replace("> 5", "> 50") + "  - {name: other, key: trainer/loss, when: '> 5'}\n")
    clock.pass_by(10)
    alerting.step()
    assert {each.subject.rule: each.state for each in alerting.alerts()} == {"high": "resolved", "other": "firing"}
    (tmp_path / NAME).write_text("rules: [{name: high, when: nonsense}]")
    clock.pass_by(10)
    alerting.step()
    (mistake,) = alerting.rules()[1]
    assert (mistake.file, mistake.line, mistake.column) == (NAME, 1, 28)


def test_the_page_writes_no_notifiers(open_hub: Callable[..., Alerting], tmp_path: Path) -> None:
    """Rules of the page are checked and saved apart; one that would run commands is refused."""
    alerting = open_hub(RULES)
    alerting.save_rules("rules: [{name: mine, when: '> 1'}]")
    assert "mine" in (tmp_path / PAGE).read_text()
    assert {"mine", "high"} <= {status.rule.name for status in alerting.rules()[0]}
    with pytest.raises(Exception, match="not from the page"):
        alerting.save_rules("notifiers: {x: {command: {run: [id]}}}")
    assert "mine" in (tmp_path / PAGE).read_text()


def test_notifications_reach_a_server(open_hub: Callable[..., Alerting], clock: Clock) -> None:
    """A firing alert is posted once, and again after a restart only if it was not delivered."""
    server = Server()
    hook = f"notifiers: {{ops: {{webhook: {{url: '{server.url}/hook'}}}}}}\n"
    alerting = open_hub(RULES.replace("'> 5'}", "'> 5', notify: [ops]}") + hook)
    alerting.deliver("http://hub:4318")
    feed(alerting, clock, 6)
    clock.pass_by(2)
    alerting.step()
    alerting.stop(30.0)
    assert len(server.received) == 1
    again = open_hub()
    again.deliver("http://hub:4318")
    feed(again, clock, 7)
    clock.pass_by(5)
    again.step()
    again.stop(30.0)
    assert len(server.received) == 1
    server.stop()


def test_marks_are_read_while_alerts_are_evaluated(open_hub: Callable[..., Alerting]) -> None:
    """A list of findings does not wait for rules."""
    alerting = open_hub(RULES)
    with alerting._lock, ThreadPoolExecutor() as pool:
        assert pool.submit(alerting.expected).result(timeout=60) == []


def test_silences_and_marks(open_hub: Callable[..., Alerting], clock: Clock) -> None:
    """A silence with an end, an acknowledgement and a mark as expected are kept, and say why nothing is sent."""
    alerting = open_hub(RULES)
    alerting.deliver("")
    alerting.silence(Silence(id="s", rule="high", until=clock.ns + 60 * NS))
    feed(alerting, clock, 6)
    (alert,) = alerting.alerts()
    assert (alert.muted, alert.notified) == ("silence s", 0)
    clock.pass_by(120)
    for _ in range(3):
        alerting.step()
        clock.pass_by(2)
    assert alerting.silences() == []
    assert (alert.muted, alert.notified > 0) == ("", True)
    alerting.acknowledge(alert.id, "ann")
    mark = alerting.mark_expected(alert.id, "ann", project=True)
    assert mark is not None
    assert alerting.mark_expected(alert.id, "bob", project=True) == mark
    assert alerting.expected() == [mark]
    other = alerting.mark_expected(alert.id, "bob")
    assert other is not None
    assert alerting.remove(other.id)
    feed(alerting, clock, 6, run="r2")
    alerting.stop()
    kept = {each.subject.run: each for each in open_hub().alerts()}
    assert kept["r1"].acknowledged_by == "ann"
    assert (kept["r2"].expected, kept["r2"].muted) == (True, "expected, marked by ann")


@pytest.mark.parametrize(("limit", "most"), [("most_records", 3), ("most_bytes", 1300)])
def test_too_much_is_passed_over(
    open_hub: Callable[..., Alerting], clock: Clock, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """If records arrive faster than they are evaluated, some are skipped and counted; ingest does not wait."""
    alerting = open_hub(RULES)
    monkeypatch.setattr(alerting.waiting, limit, most)
    for step in range(5):
        alerting.waiting.add([item._replace(bytes=400) for item in items(clock, 1.0, step)])
    assert alerting.waiting.skipped == 2
    alerting.step()
    alerting.waiting.add(items(clock, 6.0, 9))
    alerting.step()
    assert len(alerting.alerts()) == 1


def test_every_firing_has_a_snapshot(open_hub: Callable[..., Alerting], clock: Clock) -> None:
    """What explains an alert is read once when it fires, and kept with it."""
    alerting = open_hub(RULES)
    asked: list[str] = []
    alerting.explain_with(lambda alert: asked.append(alert.id) or {"step": alert.step})  # type: ignore[func-returns-value]
    feed(alerting, clock, 1, 6, 7)
    (alert,) = open_hub().alerts()
    assert (asked, alert.snapshot) == ([alert.id], {"step": 1})


def test_a_test_of_a_notifier(open_hub: Callable[..., Alerting]) -> None:
    """A test says whether it was taken; a dead destination says why, an unknown name nothing."""
    alerting = open_hub("notifiers: {dead: {webhook: {url: 'http://127.0.0.1:1/x'}}}")
    assert alerting.test_notifier("log") == ""
    assert "nothing listens" in (alerting.test_notifier("dead") or "")
    assert alerting.test_notifier("none") is None


def test_a_home_may_begin_with_rules(tmp_path: Path) -> None:
    """A folder that holds nothing but a file of rules is a home that a hub opens."""
    (tmp_path / NAME).write_text(RULES)
    HubHome(tmp_path).close()
    assert (tmp_path / "hub").is_dir()
