"""`/api/runs/{run}/findings`: what went wrong in the runs of `world.py`."""

from collections.abc import Callable
from typing import Any

from stepscope.hub.service import Hub
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Log, Record
from tests.hub.questions.world import BAD, FAILED, SPIKE, START, began, ended

Get = Callable[..., Any]


def test_what_went_wrong_is_named(get: Get) -> None:
    """The spike, the NaN, the slow step and the failed span, with their steps and ranks."""
    answer = get("/api/runs/big/findings")
    assert (answer["complete"], answer["progress"]) == (True, 1.0)
    found = {each["kind"]: each for each in answer["findings"]}
    assert found.keys() == {"spike", "not_finite", "slow_span", "error"}
    assert (found["spike"]["step"], found["spike"]["key"], found["spike"]["ranks"]) == (SPIKE, "trainer/loss", [0, 1])
    assert (found["not_finite"]["step"], found["not_finite"]["rank"]) == (BAD, 1)
    assert (found["slow_span"]["step"], found["slow_span"]["span"]) == (SPIKE, "train.backward")
    assert (found["error"]["step"], found["error"]["rank"], found["error"]["span"]) == (FAILED, 0, "train.backward")


def test_a_restart_is_named(get: Get) -> None:
    """The finding has the step at which the run resumed."""
    first = get("/api/runs/again/findings")["findings"][0]
    assert (first["kind"], first["attempt"]) == ("crash", 1)
    assert "attempt 2 resumed at step 50, 50 steps were repeated" in first["text"]


def test_a_finding_explains_itself(get: Get) -> None:
    """What was expected, since when, the likely cause and what to do."""
    found = {each["kind"]: each for each in get("/api/runs/big/findings")["findings"]}["spike"]
    low, high = found["expected"]
    assert low < found["usual"] < high < found["value"] == 50.0
    assert START / 1e9 <= found["since"] <= START / 1e9 + 120
    assert found["cause"]
    assert found["advice"]


def test_runs_have_the_count_of_their_findings(get: Get) -> None:
    """Runs have the number of findings and the worst severity, and can be sorted and filtered by them."""
    rows = get("/api/runs", sort="-findings", filter="findings > 0")["runs"]
    counts = {row["id"]: (row["findings"], row["worst_finding"]) for row in rows}
    assert counts["again"][1] == "FATAL"
    assert counts["big"] == (len(get("/api/runs/big/findings")["findings"]), "ERROR")
    assert get("/api/runs/small-2")["findings"] == 0


def test_a_quiet_run_has_none_and_an_unknown_one_is_refused(get: Get) -> None:
    """An empty list is an answer."""
    assert get("/api/runs/small-2/findings")["findings"] == []
    get("/api/runs/nobody/findings", expect=404)


def test_a_slow_step_says_why(get: Get) -> None:
    """The inspector names the span that took the time; an ordinary step has nothing to say."""
    why = get(f"/api/runs/big/steps/{SPIKE}")["slow"]
    assert (why["span"], why["rank"]) == ("train.backward", None)
    assert why["text"].startswith(f"train.backward took 450 ms at step {SPIKE}, usually 150 ms")
    assert get(f"/api/runs/big/steps/{SPIKE + 1}")["slow"] is None


def test_alerts_are_named(get: Get, hub: Hub) -> None:
    """Seven hundred of one name are one finding; what a run says outside its steps is there, what it notes is not."""
    records: list[Record] = [began({})]
    records += [Alert(START + step, step, None, None, None, 17, "mine", f"at {step}") for step in range(700)]
    records.append(Alert(START, None, None, None, None, 21, "disk full", "no room on /data"))
    records += [Alert(START, 3, None, None, None, 9, "by the way"), ended(START + 700)]
    hub.store.write(Batch(Writer(id="w", run="loud", project="gpt", wall_ns=START), 1, records))
    hub.diagnosing.catch_up("loud")
    full, mine = get("/api/runs/loud/findings")["findings"]
    assert (full["kind"], full["severity"], full["step"]) == ("alert", "FATAL", None)
    assert full["text"] == "alert disk full: no room on /data"
    assert (mine["severity"], mine["step"], mine["first_step"], mine["last_step"]) == ("ERROR", 0, 0, 699)
    assert mine["text"] == "alert mine: at 0, 700 times in steps 0 to 699"
    assert (mine["attempt"], mine["rank"]) == (1, 0)


def test_what_is_expected_is_muted_everywhere(ask: Get, get: Get, hub: Hub) -> None:
    """A mark on a finding moves it to the end, takes it out of counts and of the step, and can be taken back."""
    late = Log(START, None, None, None, None, 9, "uploaded")
    hub.store.write(Batch(Writer(id="late", run="big", project="gpt", main=False, wall_ns=START), 1, [late]))
    hub.diagnosing.catch_up("big")  # which follows a run that has something new
    passed_on: list[Any] = []
    hub.here.found.subscribe(passed_on.extend)
    before, step = get("/api/runs/big"), get(f"/api/runs/big/steps/{SPIKE}")
    about = {"kind": "spike", "key": "trainer/loss"}
    mark = ask("POST", "/api/runs/big/findings/expected", json=about).json()
    *others, last = get("/api/runs/big/findings")["findings"]
    assert (last["kind"], last["muted"]) == ("spike", f"expected, marked by {mark['who']}")
    assert not any(each["muted"] for each in others)
    assert get("/api/runs/big")["findings"] == before["findings"] - 1
    assert {row["id"]: row["findings"] for row in get("/api/runs")["runs"]}["big"] == before["findings"] - 1
    assert "spike" not in {each["kind"] for each in get(f"/api/runs/big/steps/{SPIKE}")["findings"]}
    hub.diagnosing.step()
    assert [each.run for each in passed_on] == ["big"]  # pages that are open are told
    assert ask("DELETE", f"/api/alerts/silences/{mark['id']}").json()["removed"]
    assert get("/api/runs/big")["findings"] == before["findings"]
    assert get(f"/api/runs/big/steps/{SPIKE}")["findings"] == step["findings"]


def test_only_a_finding_that_is_there_is_expected(ask: Get) -> None:
    """An unknown kind, key or field is refused, and so is a run that does not exist."""
    place = "/api/runs/big/findings/expected"
    assert ask("POST", place, json={"kind": "spike", "key": "nothing"}).status_code == 404
    assert ask("POST", place, json={"kind": "spike", "keys": "x"}).status_code == 400
    assert ask("POST", place, content=b"\xff").status_code == 400
    assert ask("POST", "/api/runs/nobody/findings/expected", json={"kind": "spike"}).status_code == 404
