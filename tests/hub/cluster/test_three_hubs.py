"""Three hubs on a real cluster of two shards: one of them has none, and takes over when another one is killed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing
from tests.hub import otlp_bodies as bodies
from tests.hub.cluster.test_shared_state import BOARD, change, eventually, points, run_on
from tests.hub.conftest import RunningHub
from tests.repeats import LONG

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}"),
    pytest.mark.skipif(not LONG, reason="STEPSCOPE_TEST_LONG is not set: takes minutes"),
]
HUBS = ("one", "two", "three")


@pytest.fixture(scope="module")
def hubs(cluster: ClusterProcesses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningHub]]:
    """Three hubs that start at once; two of them write."""
    env = {"STEPSCOPE_STORE": f"{cluster.url('three')}&lease=30"}
    made = [RunningHub(tmp_path_factory.mktemp(name) / "home", (), env) for name in HUBS]
    with ThreadPoolExecutor(len(made)) as all_at_once:
        started = list(all_at_once.map(RunningHub.start, made))
    wait_for_shards(started)
    yield started
    for hub in started:
        hub.kill()


def wait_for_shards(hubs: list[RunningHub]) -> None:
    """Wait until every hub knows that two of three write."""
    eventually(lambda: all(sorted(held(hub).values()) == [[], [0], [1]] for hub in hubs))


def held(hub: RunningHub) -> dict[str, list[int]]:
    """The shards of each living hub, by its id."""
    return {each["id"]: each["shards"] for each in hub.health()["hubs"]}


def writer_of(hubs: list[RunningHub], shard: int) -> RunningHub:
    """The hub that writes to a shard."""
    wait_for_shards(hubs)
    return next(hub for hub in hubs if any(each["here"] and shard in each["shards"] for each in hub.health()["hubs"]))


def test_any_hub_takes_and_answers_everything(hubs: list[RunningHub]) -> None:
    """Points of runs on both shards, the same request to all three, a dashboard; also after a writer was killed."""
    runs = [run_on(shard, "any") for shard in (0, 1)]
    for run in runs:
        body = bodies.points(3, run=run)
        assert [hub.post("/v1/metrics", body).status for hub in hubs] == [200] * 3
        eventually(lambda run=run: [points(hub, run) for hub in hubs] == [3] * 3)
    assert change(hubs[2], "PUT", "/api/dashboards/three", {"yaml": BOARD.format("Three")}).status == 200
    eventually(lambda: [hub.request("GET", "/api/dashboards/three").status for hub in hubs] == [200] * 3)
    killed = writer_of(hubs, 1)
    killed.kill()
    left = [hub for hub in hubs if hub is not killed]
    assert left[0].post("/v1/metrics", bodies.points(2, run=runs[1], first=10)).status == 200
    eventually(lambda: [points(hub, runs[1]) for hub in left] == [5] * 2)
    killed.start()
    wait_for_shards(hubs)
    assert [points(hub, run) for hub in hubs for run in runs] == [3, 5] * 3
