"""Alerts over HTTP: states, snapshots, silences, rules, previews; and who may change them."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.questions.alerts import alert_rules
from stepscope.hub.service import Hub
from stepscope.hub.store.maintenance import retain
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import SPIKE, START

Ask = Callable[..., Any]
RULES = "rules:\n  - {name: spike, key: trainer/loss, rank: 0, when: '> 2', severity: ERROR}\n"


@pytest.fixture(scope="module")
def fired(hub: Hub, ask: Ask) -> str:
    """The id of an alert of the run `big`."""
    answer = ask("PUT", "/api/alerts/rules", json={"yaml": RULES})
    assert answer.status_code == 200, answer.text
    writer = Writer(id="w0", run="big", project="gpt", name="baseline", wall_ns=START)
    now = time.time_ns()  # a value of the past would be history, of which nobody is notified
    hub.alerting.waiting.add(
        [ReceivedBatch("t", Batch(writer, 9, [Metric(now, SPIKE, None, "trainer", {"loss": 9.0})]))]
    )
    hub.alerting.step()
    (alert,) = [each for each in hub.alerting.alerts() if each.subject.rule == "spike"]
    return alert.id


def test_an_alert_explains_itself(get: Get, fired: str) -> None:
    """The alert is listed, and has a snapshot with the values, spans and logs around its step."""
    (listed,) = [each for each in get("/api/alerts/states", rule="spike")["alerts"] if each["id"] == fired]
    assert (listed["run"], listed["step"], listed["severity"]) == ("big", SPIKE, "ERROR")
    found = get(f"/api/alerts/states/{fired}")["snapshot"]
    assert found["step"] == SPIKE
    assert SPIKE in found["values"]["x"]
    assert {"train.step"} <= {span["name"] for span in found["spans"]}
    assert get("/api/alerts/states/none", expect=404)


def test_filters(get: Get, fired: str) -> None:
    """Alerts are found by run, rule and state, and counted by state."""
    assert get("/api/alerts/states", run="small-3")["alerts"] == []
    assert get("/api/alerts/states", rule="none")["alerts"] == []
    found = get("/api/alerts/states", rule="spike")
    assert sum(found["counts"].values()) == len(found["alerts"])
    assert get("/api/alerts/states", state="nonsense", expect=400)


def test_what_a_run_recorded_is_answered_as_before(get: Get, fired: str) -> None:
    """`/api/alerts` lists the alerts of the journals."""
    found = get("/api/alerts", run="big")
    assert found["alerts"]
    assert all(each["kind"] == "alert" for each in found["alerts"])


def test_acknowledge_expect_silence(ask: Ask, get: Get, fired: str) -> None:
    """A person can acknowledge, expect and silence; each is shown with who did it, and can be taken back."""
    answer = ask("POST", f"/api/alerts/states/{fired}/acknowledge", headers={"X-Stepscope-User": "ann"})
    assert answer.json()["acknowledged_by"] == "ann"
    mark = ask("POST", f"/api/alerts/states/{fired}/expected", json={"project": True}).json()
    assert (mark["project"], mark["run"], mark["key"]) == ("gpt", "", "trainer/loss")
    assert get(f"/api/alerts/states/{fired}")["expected"] is True
    silence = ask("POST", "/api/alerts/silences", json={"rule": "sp*", "for": "2h", "why": "known"}).json()
    assert silence["until"] - silence["since"] == pytest.approx(7200)
    both = get("/api/alerts/silences")
    assert ([each["id"] for each in both["silences"]], [each["id"] for each in both["expected"]]) == (
        [silence["id"]],
        [mark["id"]],
    )
    for id in (silence["id"], mark["id"]):
        assert ask("DELETE", f"/api/alerts/silences/{id}").status_code == 200
    assert ask("DELETE", f"/api/alerts/silences/{mark['id']}").status_code == 404
    assert get(f"/api/alerts/states/{fired}")["expected"] is False


def test_a_repeated_silence_is_the_same_one(ask: Ask, get: Get, fired: str) -> None:
    """Sent again, as after a request without an answer, it is there once; a longer one extends it, no shorter one."""
    patterns = {"rule": "twice", "run": "big"}
    first = ask("POST", "/api/alerts/silences", json={**patterns, "for": "2h", "why": "known"}).json()
    again = ask("POST", "/api/alerts/silences", json={**patterns, "for": "2h"}).json()
    shorter = ask("POST", "/api/alerts/silences", json={**patterns, "for": "1m"}).json()
    longer = ask("POST", "/api/alerts/silences", json={**patterns, "for": "4h"}).json()
    other = ask("POST", "/api/alerts/silences", json={**patterns, "key": "loss", "for": "1h"}).json()
    assert {each["id"] for each in (first, again, shorter, longer)} == {first["id"]} != {other["id"]}
    assert (again["since"], again["why"]) == (first["since"], "known")
    assert shorter["until"] == again["until"] == pytest.approx(first["until"], abs=60)
    assert longer["until"] == pytest.approx(first["until"] + 7200, abs=60)
    assert [each["id"] for each in get("/api/alerts/silences")["silences"]] == [first["id"], other["id"]]
    for each in (first, other):
        assert ask("DELETE", f"/api/alerts/silences/{each['id']}").status_code == 200


def test_rules_are_listed_checked_and_kept(ask: Ask, get: Get, fired: str) -> None:
    """The rules in force are listed with their source; a wrong text is refused with its place, and nothing changes."""
    rules = {each["name"]: each for each in get("/api/alerts/rules")["rules"]}
    assert (rules["spike"]["source"], rules["findings"]["source"]) == ("alerts-page.yaml", "pack findings")
    wrong = ask("PUT", "/api/alerts/rules", json={"yaml": "rules:\n  - {name: a, when: '='}\n"})
    assert wrong.status_code == 400
    assert "line 2, column 21" in wrong.json()["error"]["message"]
    refused = ask("PUT", "/api/alerts/rules", json={"yaml": "notifiers: {x: {command: {run: [id]}}}"})
    assert "not from the page" in refused.json()["error"]["message"]
    assert get("/api/alerts/rules")["yaml"] == RULES


def test_a_preview(ask: Ask) -> None:
    """Rules are tried on a stored run: what would have fired, where, and where the text is wrong."""

    def preview(text: str, run: str = "big") -> Any:
        return ask("POST", "/api/alerts/preview", json={"yaml": text, "run": run})

    found = preview(RULES).json()
    assert SPIKE in {each["step"] for each in found["alerts"]}
    assert (found["keys"], found["complete"]) == (["trainer/loss"], True)
    assert preview("rules: [{name: a, key: nothing, when: '> 2'}]").json()["alerts"] == []
    assert preview("rules: [{name: a, when: '='}]").json()["mistake"]["line"] == 1
    assert preview(RULES, "no-such-run").status_code == 404
    whole_file = f"{RULES}\nnotifiers: {{x: {{command: {{run: [id]}}}}}}"
    assert preview(whole_file).json() == found


def test_a_preview_of_many_rules_reads_fewer_points(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a preview compares is bounded, however many rules are typed, and the answer says that it is not all."""
    monkeypatch.setattr(alert_rules, "MAX_CHECKS", 200)
    monkeypatch.setattr(alert_rules, "MAX_SHOWN", 3)
    rules = "".join(f"  - {{name: rule {at}, key: trainer/loss, when: '> 0'}}\n" for at in range(20))
    found = ask("POST", "/api/alerts/preview", json={"yaml": f"rules:\n{rules}", "run": "big"}).json()
    assert (found["points"], found["complete"]) == (10, False)
    assert len(found["alerts"]) == 3 < 20 <= found["fired"]
    assert found["matched"] == 1


def test_a_notifier_is_tested(ask: Ask) -> None:
    """The test button sends; an unknown notifier is not found."""
    assert ask("POST", "/api/alerts/notifiers/log/test").json() == {"name": "log", "sent": True, "reason": ""}
    assert ask("POST", "/api/alerts/notifiers/none/test").status_code == 404


WORDS = st.sampled_from(["> 5", "< nan", "outside 1 0", "absent 1s", "changes", "finding *", "", "x" * 2000, "{"])
TEXTS = st.one_of(
    st.text(max_size=200),
    st.builds(
        lambda when, key, hold: f"rules:\n  - {{name: a, key: {key!r}, when: {when!r}, for: {hold!r}}}\n",
        WORDS,
        st.sampled_from(["*", "trainer/*", "[", "[!a", "**/**", "trainer/loss"]),
        st.sampled_from(["1 step", "-1", "1e9", "99999999999999999999 steps", "5m"]),
    ),
)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(TEXTS)
def test_fuzzed_rules_are_no_server_error(ask: Ask, text: str) -> None:
    """Any rules text is refused or previewed, never answered with a 5xx."""
    answer = ask("POST", "/api/alerts/preview", json={"yaml": text, "run": "small-3"})
    assert answer.status_code == 200, answer.text


def test_an_alert_explains_itself_after_retention(hub: Hub, get: Get, fired: str) -> None:
    """The snapshot is with the alert: it is the same when the run and its records are gone. The last test."""
    before = get(f"/api/alerts/states/{fired}")["snapshot"]
    retain(hub.store, keep=1.0, clock=lambda: time.time_ns() + 10**18)
    assert get("/api/runs/big", expect=404)
    assert get(f"/api/alerts/states/{fired}")["snapshot"] == before
    assert SPIKE in before["values"]["x"]
