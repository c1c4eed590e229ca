"""Edits of runs on a real hub: acknowledged ones survive, the last wins, a deleted run does not come back."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stepscope import init
from stepscope.hub.home import tokens_path
from stepscope.hub.security.tokens import Tokens
from tests.forked import ROOT, stepscope
from tests.hub.conftest import JSON, RunningHub, StartHub
from tests.waiting import wait_until

_SCRIPT = """
import sys
from pathlib import Path
from tests.hub.test_edits import record
record(Path(sys.argv[1]), "one", lambda: print("ready", flush=True) or sys.stdin.readline())
"""


def record(home: Path, name: str, before_the_end: Callable[[], object] = str) -> None:
    """Record a run to its end."""
    run = init(
        project="p",
        name=name,
        run_id=name,
        home=home,
        probes=False,
        tags=["first", "team=red"],
        notes="as started",
        group="sweep",
        job_type="train",
    )
    for step in range(20):
        run.log({"loss": 1 / (step + 1)}, step=step)
    run.tag("told", seed=3)
    before_the_end()
    run.finish()


def trained(home: Path, *runs: str) -> None:
    """Record runs to their ends."""
    for run in runs:
        record(home, run)


def patch(hub: RunningHub, run: str, **change: Any) -> dict[str, Any]:
    """Edit a run."""
    answer = hub.request("PATCH", f"/api/runs/{run}", json.dumps(change).encode(), {"content-type": JSON})
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


def read(hub: RunningHub, run: str = "one") -> dict[str, Any]:
    """One run as the hub tells it."""
    found: dict[str, Any] = hub.request("GET", f"/api/runs/{run}").json()
    return found


def wait_for(hub: RunningHub, run: str = "one", step: int = 19) -> dict[str, Any]:
    """Wait until a run is stored with its end."""
    wait_until(lambda: (found := read(hub, run)).get("step") == step and found["endings"])
    return read(hub, run)


def listed(hub: RunningHub, query: str = "") -> set[str]:
    """The ids that a list has."""
    answer = hub.request("GET", f"/api/runs{query}")
    assert answer.status == 200, answer.body
    return {run["id"] for run in answer.json()["runs"]}


def test_init_and_the_run_itself_describe_it(hub: RunningHub) -> None:
    """What `init` and `run.tag` say is in the table and can be filtered by."""
    trained(hub.home, "one")
    found = wait_for(hub)
    assert found["tags"] == {"first": True, "team": "red", "told": True, "seed": 3}
    assert (found["notes"], found["group"], found["job_type"]) == ("as started", "sweep", "train")
    for wanted in (
        "tag.team = red",
        "tag = first",
        "tags = team=red",
        "tag.seed > 2",
        "group = sweep",
        "tag.told = true",
    ):
        quoted = wanted.replace("tags = team=red", 'tags = "team=red"')
        assert listed(hub, f"?filter={quoted.replace(' ', '%20').replace('=', '%3D').replace('>', '%3E')}") == {"one"}
    assert listed(hub, "?filter=tag%20%3D%20absent") == set()
    fields = hub.request("GET", "/api/fields").json()
    assert {each["name"] for each in fields["tags"]} == {"first", "team", "told", "seed"}


def test_an_acknowledged_edit_survives_kill_and_import_anew(start_hub: StartHub, tmp_path: Path) -> None:
    """An edit that was answered is there after SIGKILL, and after the store was removed and read in again."""
    trained(tmp_path / "home", "one")
    hub = start_hub()
    wait_for(hub)
    patch(
        hub, "one", name="renamed", notes="as edited", tags={"first": None, "kept": True, "team": "blue"}, archived=True
    )
    hub.kill()
    wanted = {"team": "blue", "told": True, "seed": 3, "kept": True}
    hub.start()
    for _ in range(2):
        found = wait_for(hub)
        assert (found["name"], found["notes"], found["archived"]) == ("renamed", "as edited", True)
        assert found["tags"] == wanted
        hub.stop()
        shutil.rmtree(hub.home / "hub" / "store")
        hub.start()
    wait_for(hub)
    (edit,) = [each for each in hub.request("GET", "/api/runs/one/edits").json()["edits"] if "name" in each["change"]]
    assert edit["who"] == "local"
    assert edit["change"]["tags"] == {"first": None, "kept": True, "team": "blue"}


def test_concurrent_edits_all_count_and_the_last_wins(start_hub: StartHub, tmp_path: Path) -> None:
    """Tags set at once by many are all kept; of names the last edit's is the one, before and after a restart."""
    trained(tmp_path / "home", "one")
    hub = start_hub()
    wait_for(hub)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: patch(hub, "one", name=f"name {n}", tags={f"tag{n}": True}), range(24)))
    found = read(hub)
    assert {f"tag{n}" for n in range(24)} <= found["tags"].keys()
    edits = hub.request("GET", "/api/runs/one/edits").json()["edits"]
    assert found["name"] == next(each["change"]["name"] for each in edits if "name" in each["change"])
    hub.kill()
    hub.start()
    assert read(hub)["name"] == found["name"]


def test_undo_restores_what_was(hub: RunningHub) -> None:
    """The answer to an edit holds the edit that takes it back."""
    trained(hub.home, "undone")
    before = wait_for(hub, "undone")
    made = patch(hub, "undone", name="other", notes="", tags={"first": None, "new": "x"}, archived=True)
    assert made["undo"] == {"name": None, "notes": None, "tags": {"first": True, "new": None}, "archived": False}
    patch(hub, "undone", **made["undo"])
    after = read(hub, "undone")
    assert {key: after[key] for key in ("name", "notes", "archived", "tags")} == {
        key: before[key] for key in ("name", "notes", "archived", "tags")
    }


def test_archived_runs_are_hidden_until_asked_for(hub: RunningHub) -> None:
    """An archived run is in no list but one that asks for it."""
    trained(hub.home, "old", "new")
    wait_for(hub, "old"), wait_for(hub, "new")
    others = listed(hub) - {"old", "new"}
    patch(hub, "old", archived=True)
    assert listed(hub) == {"new", *others}
    assert hub.request("GET", "/api/runs").json()["archived"] == 1
    assert listed(hub, "?archived=show") == {"old", "new", *others}
    assert listed(hub, "?archived=only") == {"old"}
    assert listed(hub, "?filter=archived%20%3D%20true") == {"old"}
    patch(hub, "old", archived=False)
    assert listed(hub) == {"old", "new", *others}


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"name": ""}', b'{"name": " "}', b'{"tags": {"": true}}', b'{"status": 1}', b"\xff"]
)
def test_an_edit_that_makes_no_sense_is_refused(hub: RunningHub, body: bytes) -> None:
    """A wrong body is a 400 that says what is right, and changes nothing."""
    if read(hub, "one").get("id") is None:
        trained(hub.home, "one")
        wait_for(hub)
    answer = hub.request("PATCH", "/api/runs/one", body, {"content-type": JSON})
    assert answer.status == 400
    assert read(hub)["name"] == "one"
    assert hub.request("PATCH", "/api/runs/absent", b'{"name": "x"}', {"content-type": JSON}).status == 404
    foreign = {"content-type": JSON, "origin": "http://elsewhere.example"}
    assert hub.request("PATCH", "/api/runs/one", b'{"name": "x"}', foreign).status == 403
    assert hub.request("DELETE", "/api/runs/one", None, foreign).status == 403


def test_a_deleted_run_is_gone_for_good(start_hub: StartHub, tmp_path: Path) -> None:
    """Deleting takes journals and rows, says what it freed, leaves other runs, and nothing brings the run back."""
    home = tmp_path / "home"
    trained(home, "one", "two")
    hub = start_hub()
    wait_for(hub, "one"), wait_for(hub, "two")
    patch(hub, "one", name="other")
    shutil.copytree(home / "runs" / "one", tmp_path / "kept")
    size = sum(path.stat().st_size for path in (home / "runs" / "one").rglob("*.seg"))
    answer = hub.request("DELETE", "/api/runs/one")
    assert answer.status == 200, answer.body
    assert answer.json()["freed"]["journals"] == size
    assert answer.json()["bytes"] >= size
    assert not (home / "runs" / "one").exists()
    assert listed(hub, "?archived=show") == {"two"}
    assert hub.request("DELETE", "/api/runs/one").status == 404
    # Journals that come back, such as from a backup, are read and dropped; a new start of the same id is a new run.
    hub.kill()
    shutil.copytree(tmp_path / "kept", home / "runs" / "one")
    shutil.rmtree(home / "hub" / "store")
    hub.start()
    wait_for(hub, "two")
    assert listed(hub, "?archived=show") == {"two"}
    assert not (home / "runs" / "one").exists()
    trained(home, "one", "three")
    wait_for(hub, "three")
    assert wait_for(hub, "one")["name"] == "one"


def test_a_deletion_that_was_interrupted_is_finished(start_hub: StartHub, tmp_path: Path) -> None:
    """With the tombstone alone on disk, the hub's next start removes journals and rows."""
    from stepscope.journal.run_edits import Edits

    home = tmp_path / "home"
    trained(home, "one", "two")
    hub = start_hub()
    wait_for(hub, "one"), wait_for(hub, "two")
    hub.kill()
    Edits(home).append("one", "test", deleted=True)
    hub.start()
    assert listed(hub, "?archived=show") == {"two"}
    assert not (home / "runs" / "one").exists()
    assert read(hub, "one")["error"]["code"] == "not_found"


def test_late_batches_of_a_deleted_run_are_dropped_and_counted(start_hub: StartHub, tmp_path: Path) -> None:
    """A shipper that sends a deleted run again to a hub does not bring it back."""
    there, here = tmp_path / "there", tmp_path / "home"
    trained(there, "one", "two")
    hub = start_hub(home=here)
    ship = ("ship", "--home", there, "--sink", json.dumps({"hub": {"url": hub.url}}))
    assert stepscope(*ship).returncode == 0
    wait_for(hub, "one"), wait_for(hub, "two")
    assert hub.request("DELETE", "/api/runs/one").status == 200
    shutil.rmtree(there / "cursors")
    assert stepscope(*ship).returncode == 0
    wait_until(lambda: hub.health()["receivers"]["native"].get("dropped"))
    assert listed(hub, "?archived=show") == {"two"}


def test_a_running_run_is_not_deleted(start_hub: StartHub, tmp_path: Path) -> None:
    """A run that still writes is refused, with what to do, and left as it is."""
    home = tmp_path / "home"
    line = [sys.executable, "-c", _SCRIPT, str(home)]
    process = subprocess.Popen(line, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    hub = start_hub()
    wait_until(lambda: read(hub).get("step") == 19)
    answer = hub.request("DELETE", "/api/runs/one")
    assert answer.status == 409
    assert "running" in answer.json()["error"]["message"]
    process.communicate("\n", timeout=300)
    wait_for(hub)
    assert hub.request("DELETE", "/api/runs/one").status == 200
    # A new start of the same id, with the hub still running, is a new run.
    trained(home, "one")
    assert wait_for(hub)["attempts"] == 1


def test_tokens_decide_who_edits(start_hub: StartHub, tmp_path: Path) -> None:
    """Reading is not enough to edit or delete; an edit bears the name of its token; other projects are out of reach."""
    home = tmp_path / "home"
    trained(home, "one")
    tokens = Tokens(tokens_path(home))
    reading, editing, other = (
        {"authorization": f"Bearer {tokens.create(scopes, project=project, name=name)[1]}", "content-type": JSON}
        for scopes, project, name in ((["read"], None, "r"), (["admin"], "p", "ada"), (["admin"], "q", "o"))
    )
    hub = start_hub()
    wait_until(lambda: hub.request("GET", "/api/runs/one", None, reading).json().get("endings"))
    body = b'{"name": "renamed"}'
    for headers, status in (({}, 401), (reading, 403), (other, 404)):
        assert hub.request("PATCH", "/api/runs/one", body, headers).status == status
        assert hub.request("DELETE", "/api/runs/one", None, headers).status == status
    answer = hub.request("PATCH", "/api/runs/one", body, {**editing, "x-stepscope-user": "somebody else"})
    assert (answer.status, answer.json()["edit"]["who"]) == (200, "ada")
    assert hub.request("DELETE", "/api/runs/one", None, editing).status == 200


def test_a_half_sent_run_is_deleted_beside_another(start_hub: StartHub, tmp_path: Path) -> None:
    """Deleting a run of which a sink has a part leaves the other run's delivery where it was: the rest, once."""
    there = tmp_path / "there"
    trained(there, "one", "two")
    hub = start_hub(home=tmp_path / "home")
    sink = json.dumps({"hub": {"url": hub.url}})
    ship = ("ship", "--home", there, "--sink", sink)
    assert stepscope(*ship).returncode == 0
    trained(there, "one", "two")  # a second attempt, of which nothing is sent yet
    assert stepscope("delete", "one", "--yes", "--home", there).returncode == 0
    assert stepscope(*ship).returncode == 0
    wait_for(hub, "one")
    wait_until(lambda: (two := read(hub, "two")).get("attempts") == 2 and len(two["endings"]) == 2)
    assert read(hub, "one")["attempts"] == 1
    (loss,) = [key for key in hub.request("GET", "/api/runs/two/keys").json()["keys"] if key["key"] == "loss"]
    assert loss["points"] == 40
    kept = {key for path in (there / "cursors").glob("*.json") for key in json.loads(path.read_bytes())["positions"]}
    assert {key.partition("/")[0] for key in kept} == {"two"}
