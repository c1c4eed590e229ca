"""A training process is asked to stop, by a command, through a hub and from another machine, and ends by itself."""

import json
from pathlib import Path
from typing import Any

from stepscope.hub.home import tokens_path
from stepscope.hub.security.tokens import Tokens
from stepscope.journal import layout
from stepscope.model.records import Event
from stepscope.testing import read_run
from tests.conftest import RUN, Start
from tests.forked import stepscope
from tests.hub.conftest import JSON, RunningHub, StartHub, start_hub
from tests.waiting import wait_until

__all__ = ["start_hub"]

TRAIN = """
    import sys, time
    import stepscope
    run = stepscope.init(**eval(sys.argv[1]))
    live = run.live(lr_scale=1.0)
    for step in range(10**9):
        with run.step(step):
            run.log({"loss": 1 / (step + 1), "lr": 0.1 * live.lr_scale}, category="trainer")
        if step == 10:
            print("up", flush=True)
        if run.stop_requested:
            print("last", step, flush=True)
            break
        time.sleep(0.01)
    run.finish(wait=300 if run.settings.sinks else 0)
"""


def is_up(program: Any) -> bool:
    """Tell whether a program trains."""
    return "up" in (program.place / "out").read_text()


def told(hub: RunningHub, run: str = RUN) -> dict[str, Any]:
    """What was asked of a run and what became of it."""
    found: dict[str, Any] = hub.request("GET", f"/api/runs/{run}/control").json()
    return found


def ended(program: Any) -> int:
    """Wait until a program ended by itself; the step it said was its last."""
    done = program.wait()
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split("last ")[1])


def test_a_command_stops_a_run_without_a_hub(start: Start, home: Path) -> None:
    """`stepscope stop` leaves a request in the home; the program ends after its step, and both are recorded."""
    program = start(TRAIN, {"probes": False})
    wait_until(lambda: is_up(program))
    asked = stepscope("stop", RUN, "--home", home, "--json")
    assert asked.returncode == 0, asked.stderr
    (answer,) = json.loads(asked.stdout)
    ended(program)
    events = {each.name: each.attrs for each in read_run(home, RUN) if isinstance(each, Event)}
    assert events["train.stop.requested"]["request"] == events["train.stop.done"]["request"] == answer["stop"]["id"]
    again = stepscope("stop", RUN, "--home", home)
    assert again.returncode == 2
    assert "is finished" in again.stderr


def test_the_api_stops_a_run_while_the_hub_is_restarted(start: Start, home: Path, start_hub: StartHub) -> None:
    """A request is kept by a hub that is killed right after it, heard without one, and its outcome told by the next."""
    program = start(TRAIN, {"probes": False})
    hub = start_hub(home=home)
    wait_until(lambda: is_up(program) and told(hub).get("allowed"))
    answer = hub.request("POST", f"/api/runs/{RUN}/stop", None, {"x-stepscope-user": "ada"})
    hub.kill()
    assert answer.status == 200
    assert (answer.json()["stop"]["who"], answer.json()["stop"]["state"]) == ("ada", "requested")
    last = ended(program)
    hub.start()
    wait_until(lambda: (told(hub).get("stop") or {}).get("state") == "stopped")
    found = told(hub)
    assert (found["stop"]["last_step"], found["stop"]["asks"], found["allowed"]) == (last, True, False)
    assert hub.request("POST", f"/api/runs/{RUN}/stop").status == 409
    assert hub.request("GET", f"/api/runs/{RUN}").json()["status"] == "finished"


def test_a_run_on_another_machine_hears_through_its_shipper(
    start: Start, home: Path, tmp_path: Path, start_hub: StartHub
) -> None:
    """The answers to a shipper carry requests: to change a setting, then to stop, though the hub restarts."""
    hub = start_hub(home=tmp_path / "hub")
    program = start(TRAIN, {"probes": False, "sinks": [{"hub": {"url": hub.url}}]})
    wait_until(lambda: is_up(program) and (told(hub).get("settings") or []))
    body = json.dumps({"lr_scale": 0.5}).encode()
    assert hub.request("POST", f"/api/runs/{RUN}/live", body, {"content-type": JSON}).status == 200
    wait_until(lambda: told(hub)["changes"][0]["state"] == "applied")
    assert told(hub)["settings"][0]["value"] == 0.5
    assert hub.request("POST", f"/api/runs/{RUN}/stop").status == 200
    hub.kill()
    hub.start()
    last = ended(program)
    wait_until(lambda: (told(hub).get("stop") or {}).get("state") == "stopped")
    assert told(hub)["stop"]["last_step"] == last
    assert not (tmp_path / "hub" / "runs" / RUN).exists()
    assert layout.requests_path(home, RUN).is_file()


def test_every_rank_hears(start: Start, home: Path) -> None:
    """A request reaches all processes of the run."""
    env = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"}
    ranks = [start(TRAIN, {"probes": False}, env={**env, "RANK": str(n), "LOCAL_RANK": str(n)}) for n in range(3)]
    wait_until(lambda: all(map(is_up, ranks)))
    assert stepscope("stop", RUN, "--home", home).returncode == 0
    for program in ranks:
        ended(program)
    heard = [each for each in read_run(home, RUN) if isinstance(each, Event) and each.name == "train.stop.requested"]
    assert len(heard) == 3


def test_settings_are_changed_by_a_stepscope(start: Start, home: Path, start_hub: StartHub) -> None:
    """`stepscope set` asks the hub, lists what is declared, and refuses what is not."""
    program = start(TRAIN, {"probes": False})
    hub = start_hub(home=home)
    wait_until(lambda: is_up(program) and (told(hub).get("settings") or []))
    assert stepscope("set", RUN, "--home", home).stdout == "lr_scale=1.0\n"
    assert stepscope("set", RUN, "lr_scale=0.25", "--home", home).returncode == 0
    wait_until(lambda: stepscope("set", RUN, "--home", home).stdout == "lr_scale=0.25\n")
    for wrong, why in (
        ("other=1", "did not declare"),
        ("lr_scale=fast", "must be a number"),
        ("lr_scale", "NAME=VALUE"),
    ):
        refused = stepscope("set", RUN, wrong, "--home", home)
        assert refused.returncode == 2
        assert why in refused.stderr
    assert stepscope("stop", RUN, "--home", home).returncode == 0
    ended(program)
    lr = [each.values["lr"] for each in read_run(home, RUN) if getattr(each, "category", "") == "trainer"]
    assert (lr[0], lr[-1]) == (0.1, 0.1 * 0.25)


def test_hostile_requests_are_refused(start: Start, home: Path, start_hub: StartHub) -> None:
    """Wrong tokens, other projects, foreign pages and odd bodies change nothing, and the program goes on."""
    tokens = Tokens(tokens_path(home))
    scopes: dict[str, Any] = {"read": ["read"], "ingest": ["ingest"], "control": ["control"], "admin": ["admin"]}
    known = {name: tokens.create(each)[1] for name, each in scopes.items()}
    known["other"] = tokens.create(["control"], project="other")[1]
    program = start(TRAIN, {"probes": False, "project": "mine"})
    hub = start_hub(home=home)
    headers = {name: {"authorization": f"Bearer {text}", "content-type": JSON} for name, text in known.items()}
    control = f"/api/runs/{RUN}/control"
    wait_until(lambda: is_up(program) and hub.request("GET", control, None, headers["read"]).json().get("settings"))
    stop, live = f"/api/runs/{RUN}/stop", f"/api/runs/{RUN}/live"
    body = b'{"lr_scale": 2.0}'
    for path, sent in ((stop, None), (live, body)):
        for who, status in (({}, 401), (headers["read"], 403), (headers["ingest"], 403), (headers["other"], 404)):
            assert hub.request("POST", path, sent, who).status == status
        foreign = {**headers["control"], "origin": "http://evil.example"}
        assert hub.request("POST", path, sent, foreign).status == 403
        assert hub.request("GET", path, None, headers["admin"]).status in (404, 405)
    odd = [b"", b"[]", b"{}", b"null", b'{"lr_scale": null}', b'{"lr_scale": [1]}', b'{"lr_scale": 1e400}', b"\xff",
           b'{"lr_scale": "2"}', b'{"' + b"x" * 300 + b'": 1}', b"[" * 100_000]  # fmt: skip
    for sent in odd:
        assert hub.request("POST", live, sent, headers["control"]).status == 400, sent[:40]
    assert hub.request("POST", live, b'{"__class__": 1}', headers["control"]).status == 409
    many = json.dumps({f"s{number}": 1 for number in range(101)}).encode()
    assert hub.request("POST", live, many, headers["control"]).status == 400
    assert hub.request("POST", live, b" " * (2 << 20), headers["control"]).status == 413
    assert hub.request("POST", "/api/runs/..%2F..%2Fetc/stop", None, headers["control"]).status == 404
    found = hub.request("GET", control, None, headers["read"]).json()
    assert (found["stop"], found["changes"]) == (None, [])
    assert not layout.requests_path(home, RUN).exists()
    answer = hub.request("POST", stop, None, {**headers["control"], "x-stepscope-user": "somebody else"})
    assert answer.status == 200
    assert answer.json()["stop"]["who"].startswith("token ")
    ended(program)
