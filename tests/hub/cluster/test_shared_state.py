"""Two hubs on a real cluster: what is changed or acknowledged at one of them holds at the other."""

import http.client
import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from stepscope.hub.home import tokens_path
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.store.cluster.placement import run_hash
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric
from stepscope.sinks.hub import Hub
from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing
from tests.dialects.wandb.receiver.conftest import run_wandb
from tests.hub import otlp_bodies as bodies
from tests.hub.cluster.round_robin import balanced
from tests.hub.conftest import Answer, RunningHub
from tests.hub.store.contract import losses, writer
from tests.sinks.servers import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}")
RULES = "rules:\n  - {name: high, key: trainer/loss, when: '> 5'}\n"
JSON = {"content-type": "application/json"}
BOARD = "title: {}\ncharts:\n  - keys: [trainer/loss]\n"


eventually = wait_until


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
    """Two hubs, started at once on an empty cluster, each with a shard; the first has a dashboard from before."""
    env = {"STEPSCOPE_STORE": f"{cluster.url('shared')}&lease=30"}
    homes = [tmp_path_factory.mktemp(name) / "home" for name in ("one", "two")]
    for home in homes:
        home.mkdir()
        (home / "alerts.yaml").write_text(f"notifiers:\n  test: {{webhook: {{url: '{webhook.url}'}}}}\n{RULES}")
    (homes[0] / "dashboards").mkdir()
    (homes[0] / "dashboards" / "before.yaml").write_text(BOARD.format("Before"))
    with ThreadPoolExecutor(2) as both:
        started = list(both.map(lambda home: RunningHub(home, (), env).start(), homes))
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
    Hub(url=hub.url, timeout=300.0).open().write([Batch(writer(run), seq, [record])])


def change(hub: RunningHub, method: str, path: str, body: Any = None) -> Answer:
    """Change something with a JSON body; again, while a shard has no writer, or gave no answer in time."""
    sent = json.dumps(body or {}).encode(), JSON
    answers: list[Answer] = []

    def answered() -> bool:
        answers[:] = [hub.request(method, path, *sent)]
        return answers[0].status not in (503, 504)

    eventually(answered)
    return answers[0]


def read(hub: RunningHub, path: str) -> Any:
    """Ask for JSON."""
    return hub.request("GET", path).json()


def test_dashboards_and_rules(hubs: list[RunningHub]) -> None:
    """A hub brings those of its home; what one saves or deletes the other shows; no version is replaced unseen."""
    one, two = hubs
    eventually(lambda: read(two, "/api/dashboards/before").get("yaml") == BOARD.format("Before"))
    assert change(two, "PUT", "/api/dashboards/mine", {"yaml": BOARD.format("First")}).status == 200
    eventually(lambda: one.request("GET", "/api/dashboards/mine").status == 200)
    version = read(one, "/api/dashboards/mine")["version"]

    def save(hub: RunningHub, title: str) -> int:
        return change(hub, "PUT", "/api/dashboards/mine", {"yaml": BOARD.format(title), "version": version}).status

    with ThreadPoolExecutor(2) as both:
        assert sorted(both.map(save, hubs, ("Here", "There"))) == [200, 409]
    eventually(lambda: read(one, "/api/dashboards/mine") == read(two, "/api/dashboards/mine"))
    assert change(one, "DELETE", "/api/dashboards/mine").status == 200
    eventually(lambda: two.request("GET", "/api/dashboards/mine").status == 404)
    rules = read(one, "/api/alerts/rules")
    page = "rules:\n  - {name: shared, key: other/loss, when: '> 50'}\n"
    assert change(one, "PUT", "/api/alerts/rules", {"yaml": page, "version": rules["version"]}).status == 200
    eventually(lambda: "shared" in [rule["name"] for rule in read(two, "/api/alerts/rules")["rules"]])
    stale = change(two, "PUT", "/api/alerts/rules", {"yaml": "", "version": rules["version"]})
    assert (stale.status, "in the meantime" in stale.json()["error"]["message"]) == (409, True)


def test_views_and_notes_changed_at_once(hubs: list[RunningHub]) -> None:
    """What was acknowledged at either hub is kept, once, also beside a deletion; what lost is told."""
    path = "/api/views?project=pair"

    def save(hub: RunningHub, name: str) -> dict[str, Any]:
        answers: list[Answer] = []

        def saved() -> bool:
            answers[:] = [change(hub, "POST", path, {"name": name, "query": ""})]
            assert answers[0].status in (200, 409)
            return answers[0].status == 200

        eventually(saved)
        found: dict[str, Any] = answers[0].json()
        return found

    def views(hub: RunningHub) -> list[str]:
        return sorted(view["id"] for view in read(hub, path)["views"])

    def both(call: Any, *given: Any) -> list[Any]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(call, hubs, *given))

    for number in range(6):
        kept = both(save, [f"{number} here", f"{number} there"])
        for hub in hubs:
            eventually(lambda hub=hub, kept=kept: views(hub) == sorted(view["id"] for view in kept))
        gone = f"/api/views/{kept[0]['id']}?project=pair"
        assert change(hubs[0], "DELETE", gone).status == 200
        eventually(lambda kept=kept: views(hubs[1]) == [kept[1]["id"]])
        last = f"/api/views/{kept[1]['id']}?project=pair"

        def turn(hub: RunningHub, last: str = last, number: int = number) -> dict[str, Any] | int:
            return save(hub, f"{number} new") if hub is hubs[0] else change(hub, "DELETE", last).status

        new, status = both(turn)
        left = [new["id"], *([] if status == 200 else [kept[1]["id"]])]
        for hub in hubs:
            eventually(lambda hub=hub, left=left: views(hub) == sorted(left))
        for id in left:
            eventually(lambda id=id: change(hubs[0], "DELETE", f"/api/views/{id}?project=pair").status in (200, 404))
        for hub in hubs:
            eventually(lambda hub=hub: views(hub) == [])
    version = read(hubs[0], path)["version"]
    for number in range(4):
        bodies = [{"notes": f"{number} {name}", "version": version} for name in ("here", "there")]
        answers = both(lambda hub, body: change(hub, "PUT", path, body), bodies)
        assert sorted(answer.status for answer in answers) == [200, 409]
        won = next(body["notes"] for body, answer in zip(bodies, answers, strict=True) if answer.status == 200)
        for hub in hubs:
            eventually(lambda hub=hub, won=won: read(hub, path)["notes"] == won)
        version = read(hubs[0], path)["version"]


def test_edits_and_deletions(hubs: list[RunningHub]) -> None:
    """Changes at both hubs at once are all there; a run deleted at the hub that does not write it is gone for good."""
    _, other = of_shard(hubs, 1)
    run = run_on(1, "edited")
    Hub(url=other.url, timeout=300.0).open().write([Batch(writer(run), 0, losses([(0, 1.0)]))])  # long ago
    for hub in hubs:
        eventually(lambda hub=hub: hub.request("GET", f"/api/runs/{run}").status == 200)
    with ThreadPoolExecutor(2) as both:
        changes: list[dict[str, Any]] = [{"name": "renamed"}, {"tags": {"good": True}}]
        answers = both.map(lambda hub, body: change(hub, "PATCH", f"/api/runs/{run}", body), hubs, changes)
        assert [answer.status for answer in answers] == [200, 200]
    for hub in hubs:
        eventually(lambda hub=hub: described(hub, run) == ("renamed", {"good": True}))
    assert change(other, "DELETE", f"/api/runs/{run}").status == 200
    assert_gone(hubs, run)


def assert_gone(hubs: list[RunningHub], run: str) -> None:
    """A deleted run is at no hub, late records of it bring nothing back, and a new start with its id is a new run."""
    for hub in hubs:
        eventually(lambda hub=hub: hub.request("GET", f"/api/runs/{run}").status == 404)
        assert run not in [row["id"] for row in read(hub, "/api/runs")["runs"]]
    late = [Batch(writer(run), seq, losses([(seq, 1.0)])) for seq in (0, 1)]
    again = Writer(id="r0-a2-host-9-abe", run=run, project="contract", wall_ns=time.time_ns())
    for seq, hub in enumerate(hubs):
        sink = Hub(url=hub.url, timeout=300.0).open()
        for batch in late:
            sink.write([batch])
        sink.write([Batch(again, seq, losses([(seq, 1.0)]))])
    for hub in hubs:
        eventually(lambda hub=hub: points(hub, run) >= 2)
    eventually(lambda: all(hub.health()["lag"]["bytes"] == 0 for hub in hubs))
    assert [points(hub, run) for hub in hubs] == [2, 2]


def described(hub: RunningHub, run: str) -> tuple[str, dict[str, Any]]:
    """Name and tags of a run."""
    found = read(hub, f"/api/runs/{run}")
    return found["name"], found["tags"]


def _muted(hub: RunningHub) -> Any:
    return read(hub, "/api/alerts/silences")


def test_one_cause_is_one_notification(hubs: list[RunningHub], webhook: Server) -> None:
    """Raised by the hub that stores the run, acknowledged and muted at either, and not sent again by the next hub."""
    writes, other = of_shard(hubs, 1)
    run = run_on(1, "alerting")
    send(other, run, 0, 9.0)
    eventually(lambda: len(alerts(other, run)) == 1 and webhook.received != [])
    (alert,) = alerts(other, run)
    assert change(other, "POST", f"/api/alerts/states/{alert['id']}/acknowledge").status == 200
    eventually(lambda: all(each["acknowledged"] for each in alerts(writes, run)))
    made = change(other, "POST", "/api/alerts/silences", {"run": run, "for": "1h"}).json()
    eventually(lambda: made["id"] in [each["id"] for each in read(writes, "/api/alerts/silences")["silences"]])
    assert change(writes, "DELETE", f"/api/alerts/silences/{made['id']}").status == 200
    eventually(lambda: read(other, "/api/alerts/silences")["silences"] == [])
    with ThreadPoolExecutor(2) as both:
        marks = list(
            both.map(lambda hub: change(hub, "POST", f"/api/alerts/states/{alert['id']}/expected").json(), hubs)
        )
    mark = marks[0]
    assert mark["id"] == marks[1]["id"]
    for hub in hubs:
        eventually(
            lambda hub=hub: [each["id"] for each in read(hub, "/api/alerts/silences")["expected"]] == [mark["id"]]
        )
    eventually(lambda: all(each["expected"] for each in alerts(writes, run)))
    assert change(writes, "DELETE", f"/api/alerts/silences/{mark['id']}").status == 200
    eventually(lambda: not any(each["expected"] for each in alerts(other, run)))
    eventually(lambda: all(each["notified"] for each in alerts(other, run)))
    writes.stop()
    eventually(lambda: shards(other).get(other.url) == [0, 1])
    send(other, run, 1, 9.5)
    eventually(lambda: alerts(other, run)[0]["last_step"] == 1)
    found = alerts(other, run)
    assert [(each["id"], each["state"], each["count"], bool(each["acknowledged"])) for each in found] == [
        (alert["id"], "firing", 1, True)
    ]
    assert len([each for each in webhook.received if run.encode() in each.body]) == 1
    writes.start()
    wait_for_shards(hubs)
    assert [each["id"] for each in alerts(writes, run)] == [alert["id"]]


def alerts(hub: RunningHub, run: str) -> list[dict[str, Any]]:
    """The alerts of a run."""
    found: list[dict[str, Any]] = read(hub, f"/api/alerts/states?run={run}")["alerts"]
    return found


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


def test_a_hub_that_was_stopped_changes_nothing(hubs: list[RunningHub]) -> None:
    """It loses its shard while it is stopped; awake again, what it had taken is stored once, and its edits count."""
    zombie, other = of_shard(hubs, 0)
    run = run_on(0, "stopped")
    send(zombie, run, 0, 1.0)
    eventually(lambda: points(other, run) == 1)
    process = zombie.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    waiting = threading.Thread(target=send, args=(zombie, run, 1, 2.0))
    waiting.start()
    eventually(lambda: shards(other).get(other.url) == [0, 1])
    assert change(other, "PUT", "/api/dashboards/meanwhile", {"yaml": BOARD.format("New")}).status == 200
    send(other, run, 2, 3.0)
    process.send_signal(signal.SIGCONT)
    waiting.join(300)
    send(zombie, run, 2, 3.0)
    for hub in hubs:
        eventually(lambda hub=hub: points(hub, run) == 3)
    eventually(lambda: zombie.request("GET", "/api/dashboards/meanwhile").status == 200)
    eventually(lambda: change(zombie, "DELETE", "/api/dashboards/meanwhile").status == 200)
    eventually(lambda: other.request("GET", "/api/dashboards/meanwhile").status == 404)
    wait_for_shards(hubs)


def test_without_the_first_shard_all_stays_as_known(cluster: ClusterProcesses, hubs: list[RunningHub]) -> None:
    """A change is refused with the reason, what is known is answered, and a hub starts; all goes on afterwards."""
    one, two = hubs
    board = {"yaml": BOARD.format("Kept")}
    assert change(one, "PUT", "/api/dashboards/kept", board).status == 200
    eventually(lambda: two.request("GET", "/api/dashboards/kept").status == 200)
    run = run_on(1, "kept")
    Hub(url=one.url, timeout=300.0).open().write([Batch(writer(run), 0, losses([(0, 1.0)]))])  # long ago
    for hub in hubs:
        eventually(lambda hub=hub: points(hub, run) == 1)
    for replica in cluster.servers[0]:
        replica.kill()
    for hub in hubs:
        for method, path, body in (
            ("PUT", "/api/dashboards/kept", board),
            ("POST", "/api/alerts/silences", {"run": run, "for": "1h"}),
            ("PATCH", f"/api/runs/{run}", {"name": "renamed"}),
            ("DELETE", f"/api/runs/{run}", {}),
        ):
            refused = hub.request(method, path, json.dumps(body).encode(), JSON)
            why = refused.json()["error"]["message"]
            assert refused.status == 503
            assert "nothing can be changed" in why or "a part of the store does not answer" in why
        assert read(hub, "/api/dashboards/kept")["yaml"] == board["yaml"]
        assert points(hub, run) == 1
    eventually(lambda: one.health()["status"] == "degraded")
    two.kill()
    two.start()
    assert two.request("GET", "/api/dashboards").status == 200
    for replica in cluster.servers[0]:
        replica.start()
    eventually(lambda: two.request("GET", "/api/dashboards/kept").status == 200)
    assert change(two, "DELETE", "/api/dashboards/kept").status in (200, 404)  # 404 after one without an answer
    eventually(lambda: one.request("GET", "/api/dashboards/kept").status == 404)
    wait_for_shards(hubs)


def test_clients_whose_requests_reach_another_hub_each_time(hubs: list[RunningHub], tmp_path: Path) -> None:
    """MLflow and W&B clients read what they wrote, resume, upload and download; both hubs show all of it, once."""
    mlflow = pytest.importorskip("mlflow")
    with balanced(hubs) as balancer:
        client = mlflow.MlflowClient(balancer.url)
        run = client.create_run(client.create_experiment("balanced")).info.run_id
        client.log_param(run, "lr", "0.1")
        for step in range(4):
            client.log_metric(run, "loss", float(step), step=step)
        client.log_text(run, "hello", "note.txt")
        client.set_terminated(run)
        (found,) = client.search_runs([client.get_experiment_by_name("balanced").experiment_id], "params.lr = '0.1'")
        assert (found.info.run_id, found.data.metrics) == (run, {"loss": 3.0})
        assert [each.value for each in client.get_metric_history(run, "loss")] == [0.0, 1.0, 2.0, 3.0]
        assert [each.path for each in client.list_artifacts(run)] == ["note.txt"]
        for first in (0, 3):
            run_wandb(balancer, tmp_path / str(first), WANDB.format(first=first))
        assert min(balancer.asked) > 10
    for hub in hubs:
        eventually(lambda hub=hub: (points(hub, run), keys(hub, "resumed")) == (4, {"loss": 6}))
        for each, name in ((run, "note.txt"), ("resumed", "kept.txt")):
            assert name in {file["name"] for file in read(hub, f"/api/runs/{each}/files")["files"]}
            assert hub.request("GET", f"/api/runs/{each}/files/content?name={name}").body == b"hello"
        assert hub.request("GET", f"/api/runs/{run}/files/content?name=none").status == 404


WANDB = """
import wandb
run = wandb.init(project="balanced", id="resumed", resume="allow", settings=wandb.Settings(x_disable_stats=True))
assert run.starting_step == {first}, run.starting_step
for step in range(3):
    run.log({{"loss": step}})
open("kept.txt", "w").write("hello")
run.save("kept.txt")
run.finish()
"""


def keys(hub: RunningHub, run: str) -> dict[str, int]:
    """The metrics of a run that it logged itself, and how many points each has."""
    found = hub.request("GET", f"/api/runs/{run}/series?key=loss").json().get("series", [])
    return {each["key"]: each["total"] for each in found}


def test_tokens_and_their_rates(hubs: list[RunningHub]) -> None:
    """Created at one home, known at both hubs; a rate is that of both together; revoked anywhere, refused everywhere.

    This test is the last: from now on the hubs need tokens.
    """
    one, two = (Tokens(tokens_path(hub.home)) for hub in hubs)
    admin, text = one.create(["admin"])
    slow, limited = one.create(["read"], requests=1.0)
    eventually(lambda: [asked(hub, "sst_wrong") for hub in hubs] == [401, 401])
    eventually(lambda: [asked(hub, text) for hub in hubs] == [200, 200])
    eventually(lambda: {each.id for each in two.all()} == {admin.id, slow.id})
    began = time.monotonic()
    passed = 0
    while time.monotonic() - began < 3:
        passed += sum(asked(hub, limited) == 200 for hub in hubs)
        time.sleep(0.05)  # forty requests a second are many for a rate of one
    assert passed <= 2 + 2 + (time.monotonic() - began) * 1.5  # the bursts of both, then one each second
    assert two.revoke(slow.id)
    eventually(lambda: [asked(hub, limited) for hub in hubs] == [401, 401])
    hubs[0].kill()
    hubs[0].start()
    assert [asked(hub, text) for hub in hubs] == [200, 200]
    assert asked(hubs[0], limited) == 401


def asked(hub: RunningHub, token: str) -> int:
    """The status of a request with a token."""
    return hub.request("GET", "/api/dashboards", None, {"authorization": f"Bearer {token}"}).status
