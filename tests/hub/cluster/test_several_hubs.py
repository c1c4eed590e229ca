"""Several hubs on one server: any of them takes and answers everything, and each batch is stored once."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from stepscope.hub.fleet import forwarding, peers
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch
from stepscope.sinks.hub import Hub, HubSink
from tests.hub.cluster.conftest import AddressOf, drop
from tests.hub.conftest import JSON, RunningHub
from tests.hub.store.contract import losses, writer

Until = Callable[..., None]
BATCHES = 40
RUNS = ("run-a", "run-b", "run-c")


@pytest.fixture(scope="module")
def hubs(server: AddressOf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningHub]]:
    """Two hubs with homes of their own and the same store."""
    url = server("several_hubs")
    env = {"STEPSCOPE_STORE": f"{url}?lease=5"}
    started = [RunningHub(tmp_path_factory.mktemp(name) / "home", (), env).start() for name in ("one", "two")]
    yield started
    for hub in started:
        hub.kill()
    drop(url)


def sinks(hubs: list[RunningHub]) -> list[HubSink]:
    """A connection to each hub."""
    return [Hub(url=hub.url, timeout=300.0).open() for hub in hubs]


def points(hub: RunningHub, run: str) -> int:
    """How many points a hub shows of a run."""
    found = hub.request("GET", f"/api/runs/{run}")
    return int(found.json()["counts"]["points"]) if found.status == 200 else 0


def owner(hubs: list[RunningHub]) -> RunningHub:
    """The hub that writes to the store, as a hub says."""
    (address,) = [each["address"] for each in hubs[0].health()["hubs"] if each["shards"] == [0]]
    return next(hub for hub in hubs if hub.url == address)


def test_what_one_hub_takes_the_other_shows(hubs: list[RunningHub], until: Until) -> None:
    """Through either; health names both hubs and which of them writes."""
    until(lambda: len(hubs[0].health()["hubs"]) == 2)
    for seq, sink in enumerate(sinks(hubs)):
        sink.write([Batch(writer("both"), seq, losses([(seq, 1.0)]))])
    for hub in hubs:
        until(lambda hub=hub: points(hub, "both") == 2)
    assert sum(each["here"] for each in hubs[1].health()["hubs"]) == 1
    (other,) = [hub for hub in hubs if hub is not owner(hubs)]
    assert other.health()["receivers"]["native"]["forwarded"] == 1


def test_live_events_reach_every_hub(hubs: list[RunningHub], until: Until) -> None:
    """A stream of the hub that does not write brings what the other one stored, within a second on a quiet machine."""
    (other,) = [hub for hub in hubs if hub is not owner(hubs)]
    connection = http.client.HTTPConnection("127.0.0.1", other.port, timeout=120)
    connection.request("GET", "/api/live?run=streamed")
    stream = connection.getresponse()
    assert stream.readline() != b""
    for sink in sinks(hubs):
        sink.write([Batch(writer("streamed"), 0, losses([(7, 1.5)]))])
    for line in iter(stream.readline, b""):
        if line.startswith(b"data:") and b"trainer/loss" in line:
            break
    assert json.loads(line[5:])["points"]["trainer/loss"]["step"] == [7]
    connection.close()


def test_only_hubs_of_the_store_may_forward(hubs: list[RunningHub]) -> None:
    """A request without the secret, or with another one, is refused."""
    for headers in ({}, {"authorization": "Bearer sst_wrong"}):
        for path in (forwarding.PATH, peers.PATH):
            assert hubs[0].request("POST", path, b"\x90", headers).status == 401


def test_every_batch_is_stored_once_when_the_writing_hub_is_killed(hubs: list[RunningHub], until: Until) -> None:
    """Three writers through both hubs, batches offered to both, the hub that writes killed in the middle.

    The other hub takes over, the killed one comes back, and what both acknowledged is there once.
    """
    half, ready = threading.Event(), threading.Event()
    failures: list[str] = []

    def work(run: str) -> None:
        try:
            send(run, sinks(hubs), half, ready)
        except BaseException as error:  # shown by the assertion below
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(run,)) for run in RUNS]
    for thread in threads:
        thread.start()
    assert half.wait(300)
    killed = owner(hubs)
    killed.kill()
    (left,) = [hub for hub in hubs if hub is not killed]
    ready.set()
    for thread in threads:
        thread.join(300)
    assert failures == []
    until(lambda: [each["shards"] for each in left.health()["hubs"] if each["here"]] == [[0]])
    killed.start()
    for run in RUNS:
        for hub in hubs:
            until(lambda hub=hub, run=run: points(hub, run) >= BATCHES)
            (series,) = hub.request("GET", f"/api/runs/{run}/series?key=trainer/loss").json()["series"]
            assert (points(hub, run), series["total"]) == (BATCHES, BATCHES)


def send(run: str, places: list[HubSink], half: threading.Event, ready: threading.Event) -> None:
    """Send batches in turn to both hubs, some to both, and offer what one does not take to the other."""
    for seq in range(BATCHES):
        if seq == BATCHES // 2:
            half.set()
        batch = Batch(writer(run), seq, losses([(seq, float(seq))]))
        taken = 0
        while not taken:
            for place in (seq % 2, (seq + 1) % 2):
                try:
                    if not taken or seq % 5 == 0:
                        places[place].write([batch])
                        taken += 1
                except Retry:
                    continue
        if seq == BATCHES * 3 // 4:
            assert ready.wait(300)


@pytest.fixture(scope="module")
def keeper(hubs: list[RunningHub]) -> RunningHub:
    """The hub that keeps MLflow's runs, because it was asked first; it does not write them."""
    chosen = next(hub for hub in hubs if hub is not owner(hubs))
    mlflow_run(chosen)
    return chosen


def mlflow_run(hub: RunningHub) -> str:
    """Create a run as MLflow's clients do."""
    made = hub.post("/api/2.0/mlflow/runs/create", b'{"experiment_id": "0"}', JSON)
    return str(made.json()["run"]["info"]["run_id"])


def test_clients_read_what_was_forwarded(keeper: RunningHub) -> None:
    """The hub that keeps MLflow's runs does not write them; a history has every value that was acknowledged before."""
    api = "/api/2.0/mlflow"
    run = mlflow_run(keeper)
    forwarded = keeper.health()["receivers"]["mlflow"].get("forwarded", 0)
    for step in range(5):
        value = json.dumps({"run_id": run, "key": "loss", "value": step, "timestamp": 1, "step": step}).encode()
        assert keeper.post(f"{api}/runs/log-metric", value, JSON).status == 200
        history = keeper.request("GET", f"{api}/metrics/get-history?run_id={run}&metric_key=loss").json()
        assert [each["value"] for each in history.get("metrics", ())] == list(range(step + 1))
    assert keeper.health()["receivers"]["mlflow"]["forwarded"] > forwarded


def test_clients_of_one_hub_are_answered_by_the_other(hubs: list[RunningHub], keeper: RunningHub, until: Until) -> None:
    """The hub that was asked first keeps MLflow's runs: without it others say so, as secured as any answer.

    Datadog's clients need no hub.
    """
    one, two = keeper, next(hub for hub in hubs if hub is not keeper)
    path = f"/api/2.0/mlflow/runs/get?run_id={mlflow_run(one)}"
    assert [hub.request("GET", path).status for hub in hubs] == [200, 200]
    secured = {
        (name, value)
        for name, value in two.request("GET", "/api/health").headers.items()
        if name.startswith(("content-security", "cross-origin", "x-", "referrer"))
    }
    assert len(secured) == 6
    series = {"series": [{"metric": "a", "points": [[time.time(), 1.0]], "host": "h"}]}
    assert [hub.post("/api/v1/series", json.dumps(series).encode(), JSON).status for hub in hubs] == [202, 202]
    one.kill()
    refused = two.request("GET", path)
    assert (refused.status, refused.json()["error_code"]) == (503, "TEMPORARILY_UNAVAILABLE")
    assert "retry-after" in refused.headers
    assert secured <= refused.headers.items()
    assert two.post("/api/v1/series", json.dumps(series).encode(), JSON).status == 202
    one.start()
    until(lambda: two.request("GET", path).status == 200)
