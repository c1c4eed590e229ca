"""What a destination refuses is not lost silently: it is counted, kept, reported, and can be retried."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from stepscope.hub.receivers.ingest import OTHER_PROJECT
from stepscope.hub.security.tokens import Tokens
from stepscope.journal.following import Following
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric, Record
from stepscope.sinks.hub import Hub
from tests.conftest import RUN, Python
from tests.forked import stepscope
from tests.hub.conftest import StartHub, start_hub, stored_columns
from tests.sinks.servers import Reply, Server

__all__ = ["start_hub"]

COUNT = 500
TRAIN = """
    import sys, stepscope
    run = stepscope.init(project="mine", capture_logs=False, otel=False)
    for step in range(int(sys.argv[1])):
        run.log({"loss": float(step)}, step=step, category="trainer")
    status = run.finish(wait=60)
    print(bool(status), status.rejected, status.quarantined, status.undelivered)
    print(sum(count for name, count in run.outcomes.snapshot().items() if name.startswith("written/")))
"""


def _cli(home: Path, *words: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return stepscope(*words, "--home", home, **(env or {}))


def test_a_run_of_another_project(python: Python, home: Path, tmp_path: Path, start_hub: StartHub) -> None:
    """All records of a run that a hub refuses are in quarantine; finish, doctor and the list say so; retry works."""
    place = tmp_path / "hub"
    tokens = Tokens(place / "hub" / "tokens.json")
    anyone, mine = tokens.create(["ingest", "admin"])[1], tokens.create(["ingest"], project="mine")[1]
    hub = start_hub(home=place)
    theirs = Hub(url=hub.url, token=anyone).open()
    theirs.write([Batch(Writer(id="w", run=RUN, project="theirs"), 0, [Metric(1, 1, None, "trainer", {"loss": 1.0})])])
    theirs.close()
    sinks = json.dumps([{"hub": {"url": hub.url, "token": mine}}])
    done = python(TRAIN, COUNT, env={"STEPSCOPE_SINKS": sinks, "STEPSCOPE_SHIPPER": "thread"}, timeout=300)
    said, offered = done.stdout.split("\n")[:2]
    truth, rejected, quarantined, undelivered = said.split()
    assert (truth, rejected, quarantined, undelivered) == ("False", offered, offered, "0"), done.stderr
    entries = json.loads(_cli(home, "quarantine", "list", "--json").stdout)
    assert sum(entry["records"] for entry in entries) == int(offered)
    assert {entry["reason"] for entry in entries} == {OTHER_PROJECT}
    told = [line for line in _cli(home, "doctor").stdout.splitlines() if "quarantine" in line]
    assert len(told) == 1
    assert f"refused {int(offered):,} records: {OTHER_PROJECT}" in told[0]
    # Nobody says where the sink is: it is asked again with the settings of the run.
    retried = _cli(home, "quarantine", "retry", "--json")
    assert [row["reason"] for row in json.loads(retried.stdout)] == [OTHER_PROJECT] * len(entries)


def test_refused_mended_retried_and_stored(python: Python, home: Path, tmp_path: Path, start_hub: StartHub) -> None:
    """Of two runs a hub refuses one: all that was offered is counted; with a token that may, retry stores the rest."""
    place = tmp_path / "hub"
    tokens = Tokens(place / "hub" / "tokens.json")
    anyone, mine = tokens.create(["ingest", "admin"])[1], tokens.create(["ingest"], project="mine")[1]
    hub = start_hub(home=place)
    theirs = Hub(url=hub.url, token=anyone).open()
    theirs.write([Batch(Writer(id="w", run=RUN, project="theirs"), 0, [])])
    theirs.close()
    for run in (RUN, "welcome"):
        python(TRAIN, COUNT, env={"STEPSCOPE_RUN_ID": run, "STEPSCOPE_SHIPPER": "none"}, timeout=300)
    known = {"STEPSCOPE_SINKS": json.dumps([{"hub": {"url": hub.url, "token": mine}}])}
    shipped = json.loads(_cli(home, "ship", "--json", "--timeout", "60", env=known).stdout)
    (report,) = shipped["sinks"]
    counts, offered = report["counts"], sum(1 for _ in _offered(home))
    assert counts["written"] + counts["rejected"] + counts.get("dropped", 0) == offered
    assert counts["rejected"] > COUNT
    mended = {"STEPSCOPE_SINKS": json.dumps([{"hub": {"url": hub.url, "token": anyone}}])}
    retried = _cli(home, "quarantine", "retry", "--json", env=mended)
    rows = json.loads(retried.stdout)
    assert retried.returncode == 0, retried.stderr
    assert sum(row["records"] for row in rows if row["taken"]) == counts["rejected"]
    assert json.loads(_cli(home, "quarantine", "list", "--json").stdout) == []
    assert hub.stop() == 0
    sql = "SELECT count() AS n FROM metrics WHERE series IN (SELECT series FROM series WHERE key = 'trainer/loss')"
    assert int(stored_columns(hub.home, sql)["n"][0]) == 2 * COUNT


def _offered(home: Path) -> Iterator[Record]:
    """All records in the journals of a home."""
    for batch in Following(home, "reader").read(1 << 30):
        yield from batch.records


def test_a_server_that_fails_refuses_nothing(python: Python, home: Path) -> None:
    """HTTP 500 is waited for: every record arrives, and none is in quarantine."""
    server = Server()
    try:
        server.replies = [Reply(500, {}, b"no space left")] * 3
        sinks = json.dumps([{"otlp": {"endpoint": server.url}}])
        done = python(TRAIN, 20, env={"STEPSCOPE_SINKS": sinks, "STEPSCOPE_SHIPPER": "thread"}, timeout=300)
        assert done.stdout.startswith("True 0 0 0\n"), done.stderr
        assert not (home / "quarantine").exists()
    finally:
        server.stop()


def test_ship_delivers_what_a_thread_left(python: Python, home: Path) -> None:
    """A trainer that delivers in threads and is killed leaves the rest to `stepscope ship`, which needs no options."""
    server = Server()
    try:
        server.always = Reply(503)
        sinks = json.dumps([{"otlp": {"endpoint": server.url}}])
        killed = TRAIN.split("status =")[0] + "run.flush(); import os; os.kill(os.getpid(), 9)\n"
        python(killed, 20, env={"STEPSCOPE_SINKS": sinks, "STEPSCOPE_SHIPPER": "thread"}, timeout=300)
        server.always = None
        shipped = _cli(home, "ship", "--json", "--timeout", "60")
        assert shipped.returncode == 0, shipped.stderr
        (report,) = json.loads(shipped.stdout)["sinks"]
        assert report["counts"]["written"] >= 20
    finally:
        server.stop()
