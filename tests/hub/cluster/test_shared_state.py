"""Two hubs on a real cluster: what is changed or acknowledged at one of them holds at the other."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stepscope.hub.store.shards import run_hash
from stepscope.model.ports import Batch
from stepscope.model.records import Metric
from stepscope.sinks.hub import Hub
from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing
from stepscope.testing.stores import writer
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import RunningHub
from tests.sinks.servers import Server

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}")
RULES = "rules:\n  - {name: high, key: trainer/loss, when: '> 5'}\n"
JSON = {"content-type": "application/json"}
BOARD = "title: {}\ncharts:\n  - keys: [trainer/loss]\n"


def eventually(is_true: Callable[[], object], seconds: float = 300) -> None:
    """Wait until something is true; ask seldom, for each question costs the cluster some milliseconds."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, f"not true within {seconds} s"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def webhook() -> Iterator[Server]:
    """Takes the notifications of both hubs."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def hubs(
    cluster: ClusterProcesses, webhook: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[RunningHub]]:
    """Two hubs on the cluster, each with a shard; the first has a dashboard from before it shared the store."""
    env = {"STEPSCOPE_STORE": f"{cluster.url('shared')}&lease=30"}
    homes = [tmp_path_factory.mktemp(name) / "home" for name in ("one", "two")]
    for home in homes:
        home.mkdir()
        (home / "alerts.yaml").write_text(f"notifiers:\n  test: {{webhook: {{url: '{webhook.url}'}}}}\n{RULES}")
    (homes[0] / "dashboards").mkdir()
    (homes[0] / "dashboards" / "before.yaml").write_text(BOARD.format("Before"))
    started = [RunningHub(home, (), env).start() for home in homes]
    wait_for_shards(started)
    yield started
    for hub in started:
        hub.kill()


def shards(hub: RunningHub) -> dict[str, list[int]]:
    """The shards of each living hub, as one of them says."""
    return {each["address"]: each["shards"] for each in hub.health()["hubs"]}


def wait_for_shards(hubs: list[RunningHub]) -> None:
    """Wait until each hub has one shard, and each of them knows it."""
    eventually(lambda: all(sorted(shards(hub).values()) == [[0], [1]] for hub in hubs))


def of_shard(hubs: list[RunningHub], shard: int) -> tuple[RunningHub, RunningHub]:
    """The hub that writes to a shard, and the other one."""
    wait_for_shards(hubs)
    known = shards(hubs[0])
    writes = next(hub for hub in hubs if shard in known[hub.url])
    return writes, next(hub for hub in hubs if hub is not writes)


def run_on(shard: int, name: str) -> str:
    """The id of a run that is stored on a shard."""
    return next(run for run in (f"{name}-{index}" for index in range(100)) if run_hash(run) % 2 == shard)


def send(hub: RunningHub, run: str, seq: int, value: float) -> None:
    """Send a loss with our own protocol."""
    record = Metric(time.time_ns(), seq, None, "trainer", {"loss": value})
    Hub(url=hub.url, timeout=60.0).open().write([Batch(writer(run), seq, [record])])


def read(hub: RunningHub, path: str) -> Any:
    """Ask for JSON."""
    return hub.request("GET", path).json()


def test_a_repeated_request_is_stored_once(hubs: list[RunningHub]) -> None:
    """The same OTLP request to both hubs, as when the answer of the first was lost."""
    first, second = (run_on(shard, "repeated") for shard in (0, 1))
    for run in (first, second):
        body = bodies.points(3, run=run)
        with ThreadPoolExecutor(2) as both:
            answers = both.map(lambda hub, body: hub.post("/v1/metrics", body), hubs, [body, body])
            assert [each.status for each in answers] == [200, 200]
        last = bodies.points(1, run=run, first=10)  # the same writer: it is stored after the others
        for hub in hubs:
            assert hub.post("/v1/metrics", last).status == 200
        eventually(lambda run=run: sum(points(hub, run) for hub in hubs) == 8)
    eventually(lambda: all(hub.health()["lag"]["bytes"] == 0 for hub in hubs))
    assert [points(hub, run) for hub in hubs for run in (first, second)] == [4, 4, 4, 4]


def points(hub: RunningHub, run: str) -> int:
    """How many points a hub shows of a run."""
    found = hub.request("GET", f"/api/runs/{run}")
    return int(found.json()["counts"]["points"]) if found.status == 200 else 0


def test_streams_and_states(hubs: list[RunningHub]) -> None:
    """A point acknowledged by one hub comes with the live stream of the other, where its run is running, too."""
    writes, other = of_shard(hubs, 0)
    run = run_on(0, "streamed")
    for sender, reader in ((writes, other), (other, writes)):
        connection = http.client.HTTPConnection("127.0.0.1", reader.port, timeout=300)
        connection.request("GET", f"/api/live?run={run}")
        stream = connection.getresponse()
        assert stream.readline() != b""
        step = int(sender is other)
        send(sender, run, step, 2.5)
        line = next(line for line in iter(stream.readline, b"") if b"trainer/loss" in line)
        assert json.loads(line.partition(b":")[2])["points"]["trainer/loss"]["step"] == [step]
        connection.close()
        assert read(reader, f"/api/runs/{run}")["status"] == read(sender, f"/api/runs/{run}")["status"]
