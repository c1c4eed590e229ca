"""A hub on a real cluster with parts of it away: no answer lacks a shard without saying so, and nothing is lost."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from stepscope.hub.store.cluster.address import parse
from stepscope.hub.store.cluster.placement import run_hash
from stepscope.hub.store.cluster.server import Server
from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing
from tests.forked import stepscope
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import RunningHub
from tests.hub.test_connections import wait_for

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}")
Until = Callable[..., None]
RUNS = [f"run-{index}" for index in range(6)]
RECEIVER = "otlp_http"


@pytest.fixture(scope="module")
def hub(cluster: ClusterProcesses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub on it, with points of several runs."""
    home = tmp_path_factory.mktemp("hub") / "home"
    running = RunningHub(home, env={"STEPSCOPE_STORE": cluster.url("degraded")}).start()
    for run in RUNS:
        assert running.post("/v1/metrics", bodies.points(2, run=run)).status == 200
    running.wait_stored(RECEIVER, 2 * len(RUNS))
    yield running
    with contextlib.suppress(Exception):
        running.kill()


@pytest.fixture(scope="module")
def shard_of(cluster: ClusterProcesses, hub: RunningHub) -> dict[str, int]:
    """The shard of each run, 0 or 1; both have some."""
    engine = Server(parse(cluster.url("degraded")))
    found = dict(engine.query("SELECT DISTINCT id, run % 2 AS shard FROM runs").rows("id", "shard"))
    engine.close()
    assert set(found.values()) == {0, 1}
    return found


def _points(hub: RunningHub) -> dict[str, int]:
    """The points of each run; none when the hub answers with an error, as it may while a server dies."""
    return {row["id"]: row["counts"]["points"] for row in hub.request("GET", "/api/runs").json().get("runs", ())}


def _points_when_all_stored(hub: RunningHub, until: Until) -> dict[str, int]:
    """The points of each run, in an answer that has all that this hub has taken: others may lack a shard."""
    found: dict[str, int] = {}

    def has_all() -> bool:
        found.clear()
        found.update(_points(hub))
        return sum(found.values()) == hub.health()["receivers"][RECEIVER]["written"]

    until(has_all)
    return found


def _listed(hub: RunningHub) -> set[str]:
    return {row["id"] for row in hub.request("GET", "/api/runs").json()["runs"]}


def test_a_replica_that_is_down_is_not_noticed(cluster: ClusterProcesses, hub: RunningHub, until: Until) -> None:
    """Answers are complete, records are stored, statements for all servers are queued for it; health names it."""
    replica = cluster.servers[1][0]
    replica.kill()
    answer = hub.request("GET", "/api/runs")
    assert ("partial" in answer.json(), "x-stepscope-partial" in answer.headers) == (False, False)
    assert _listed(hub) == set(RUNS)
    until(lambda: hub.health()["cluster"]["servers_down"] == [f"127.0.0.1:{replica.port}"])
    assert hub.health()["cluster"]["missing_shards"] == []
    assert "1 of 4 servers" in hub.health()["trouble"]
    engine = Server(parse(cluster.url("degraded")))
    engine.execute("ALTER TABLE exemplars DELETE WHERE commit > 4000000000")
    engine.close()
    before = hub.stored(RECEIVER)
    for run in RUNS:
        assert hub.post("/v1/metrics", bodies.points(1, run=run, first=10)).status == 200
    hub.wait_stored(RECEIVER, before + len(RUNS), 120)
    replica.start()
    until(lambda: hub.health()["cluster"]["servers_down"] == [])


def test_a_shard_that_is_down_is_told(
    cluster: ClusterProcesses, hub: RunningHub, shard_of: dict[str, int], until: Until
) -> None:
    """In the API, in SQL, in health, in metrics, in the terminal; what may be on it is not called missing."""
    here = {run for run, shard in shard_of.items() if shard == 0}
    (there, *_) = (run for run, shard in shard_of.items() if shard == 1)
    for replica in cluster.servers[1]:
        replica.kill()
    answer = hub.request("GET", "/api/runs")
    assert answer.json()["partial"] == {"missing": [2], "shards": 2}
    assert answer.headers["x-stepscope-partial"] == "shard 2 of 2"
    assert _listed(hub) == here
    series = hub.request("GET", f"/api/runs/{min(here)}/series?key=loss")
    assert (series.status, series.json()["partial"]["missing"]) == (200, [2])
    export = hub.request("GET", f"/api/runs/{min(here)}/export?format=jsonl")
    assert (export.status, export.headers["x-stepscope-partial"]) == (200, "shard 2 of 2")
    away = hub.request("GET", f"/api/runs/{there}")
    assert (away.status, "shard 2 of 2" in away.json()["error"]["message"]) == (503, True)
    sql = hub.post("/api/sql", b'{"sql": "SELECT DISTINCT id FROM runs"}', "application/json")
    assert {row[0] for row in sql.json()["rows"]} == here
    assert sql.json()["partial"] == {"missing": [2], "shards": 2}

    until(lambda: hub.health()["cluster"]["missing_shards"] == [2])
    assert "shard 2 of 2 does not answer" in hub.health()["trouble"]
    assert "stepscope_hub_cluster_shards_missing 1" in hub.request("GET", "/metrics").body.decode()
    listed = stepscope("runs", "--home", hub.home)
    assert (listed.returncode, "the answer lacks shard 2 of 2" in listed.stderr) == (0, True), listed.stderr
    assert "shard 2 of 2 does not answer" in stepscope("doctor", "--home", hub.home).stdout

    for replica in cluster.servers[1]:
        replica.start()
    until(lambda: "partial" not in hub.request("GET", "/api/runs").json())
    assert _listed(hub) == set(RUNS)


def test_while_a_shard_is_down_the_others_are_written(
    cluster: ClusterProcesses, hub: RunningHub, shard_of: dict[str, int], until: Until
) -> None:
    """Also new runs, and by a hub that starts meanwhile; records of the shard that is down are stored later, once."""
    fresh = next(name for name in map("new-{}".format, range(100)) if run_hash(name) % 2 == 1)
    expected = {**_points_when_all_stored(hub, until), fresh: 0}
    for replica in cluster.servers[0]:
        replica.kill()
    for first in (200, 210):
        for run in expected:
            assert hub.post("/v1/metrics", bodies.points(2, run=run, first=first)).status == 200
            expected[run] += 2
        there = {run: count for run, count in expected.items() if shard_of.get(run, 1) == 1}
        with _explained(lambda there=there: (there, _points(hub), hub.health())):
            until(lambda there=there: _points(hub) == there)
        if first == 200:
            hub.kill()
            hub.start()
    until(lambda: hub.health()["journal"]["deferred_bytes"] > 0)
    for replica in cluster.servers[0]:
        replica.launch()
    for replica in cluster.servers[0]:
        replica.wait()
    with _explained(lambda: (expected, _points(hub), hub.health())):
        until(lambda: _points(hub) == expected)
    until(lambda: hub.health()["journal"]["deferred_bytes"] == 0)


def test_without_zookeeper_reads_go_on_and_writes_wait(
    cluster: ClusterProcesses, hub: RunningHub, until: Until
) -> None:
    """What is acknowledged meanwhile is stored when it is back, once."""
    until(lambda: hub.health()["lag"]["bytes"] == 0)
    total = {run: count for run, count in _points(hub).items() if run in RUNS}
    cluster.zookeeper.kill()
    for run in RUNS:
        assert hub.post("/v1/metrics", bodies.points(3, run=run, first=100)).status == 200
    answer = hub.request("GET", "/api/runs").json()  # partial where the replica that answers had not caught up
    assert {row["id"] for row in answer["runs"]} >= set(RUNS)
    until(lambda: not hub.health()["cluster"]["zookeeper"])
    assert "reads go on" in hub.health()["trouble"]
    cluster.zookeeper.start()

    def missing_points() -> dict[str, int]:
        found = _points(hub)
        return {run: count + 3 - found[run] for run, count in total.items() if count + 3 != found[run]}

    with _explained(lambda: (missing_points(), hub.health())):
        until(lambda: not missing_points(), 240)
    until(lambda: hub.health()["cluster"]["zookeeper"])


def test_a_token_of_another_project_sees_nothing(hub: RunningHub) -> None:
    """On every path of the API that reads: neither the runs of a project, nor what they recorded, nor SQL."""
    made = stepscope("hub", "token", "create", "--scope", "read", "--project", "another", "--home", hub.home)
    bound = {"authorization": f"Bearer {made.stdout.strip()}"}
    wait_for(lambda: hub.request("GET", f"/api/runs/{RUNS[0]}", headers=bound).status != 200)  # the hub has read it
    paths = hub.request("GET", "/api/openapi.json", headers=bound).json()["paths"]
    asked = [(path, verbs["get"]["parameters"]) for path, verbs in paths.items() if "get" in verbs]
    answers = {}
    for path, params in asked:
        if path == "/api/live":
            continue
        given = "?run=" + RUNS[0] if any((each["name"], each["in"]) == ("run", "query") for each in params) else ""
        answers[path] = hub.request("GET", path.replace("{run}", RUNS[0]) + given, headers=bound)
    assert len(answers) > 20
    assert [path for path, answer in answers.items() if "{run}" in path and answer.status == 200] == []
    seen = [path for path, answer in answers.items() if answer.status == 200 and RUNS[0].encode() in answer.body]
    assert seen == []
    sql = hub.request(
        "POST", "/api/sql", b'{"sql": "SELECT id FROM runs"}', {**bound, "content-type": "application/json"}
    )
    assert sql.status == 403


@contextlib.contextmanager
def _explained(state: Callable[[], object]) -> Iterator[None]:
    """Add the state of the hub to a failure."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{state()}") from error
