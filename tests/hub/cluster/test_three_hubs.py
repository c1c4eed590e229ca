"""Three hubs on a real cluster: one of them has no shard, none may reach another one, or the first shard is away."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stepscope.hub.home import tokens_path
from stepscope.hub.security.tokens import Tokens
from stepscope.testing.clickhouse import free_port
from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing
from tests.hub import otlp_bodies as bodies
from tests.hub.cluster.test_shared_state import BOARD, RULES, alerts, asked, change, eventually, points, run_on, send
from tests.hub.conftest import RunningHub
from tests.repeats import LONG
from tests.sinks.faults import Relay
from tests.sinks.servers import Server

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}"),
    pytest.mark.skipif(not LONG, reason="STEPSCOPE_TEST_LONG is not set: takes minutes"),
]
HUBS = ("one", "two", "three")
SILENT = 10_000.0


@pytest.fixture(scope="module")
def webhook() -> Iterator[Server]:
    """Takes the notifications of all hubs."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def ways() -> Iterator[list[Relay]]:
    """What other hubs go through to reach a hub; one whose `delay` is long lets nothing back."""
    made = [Relay(free_port()) for _ in HUBS]
    yield made
    for each in made:
        each.stop()


@pytest.fixture(scope="module")
def hubs(
    cluster: ClusterProcesses, webhook: Server, ways: list[Relay], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[RunningHub]]:
    """Three hubs that start at once; two of them write."""
    env = {"STEPSCOPE_STORE": f"{cluster.url('three')}&lease=30"}
    made = []
    for name, way in zip(HUBS, ways, strict=True):
        home = tmp_path_factory.mktemp(name) / "home"
        home.mkdir()
        (home / "alerts.yaml").write_text(f"notifiers:\n  test: {{webhook: {{url: '{webhook.url}'}}}}\n{RULES}")
        made.append(RunningHub(home, ("--advertise", f"http://127.0.0.1:{way.port}"), env, port=way.target))
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


def test_a_hub_that_others_do_not_reach(hubs: list[RunningHub], ways: list[Relay]) -> None:
    """Its answers to other hubs are lost, not what they send it: all of it is stored, once, and all hubs answer."""
    cut_off = writer_of(hubs, 1)
    others = [hub for hub in hubs if hub is not cut_off]
    away, here = run_on(1, "cut"), run_on(0, "cut")
    way = ways[hubs.index(cut_off)]
    way.delay = SILENT
    for first, hub in enumerate(others):
        for run in (away, here):
            assert hub.post("/v1/metrics", bodies.points(2, run=run, first=10 * first)).status == 200
    assert cut_off.post("/v1/metrics", bodies.points(2, run=away, first=100)).status == 200
    for hub in hubs:
        eventually(lambda hub=hub: (points(hub, here), points(hub, away)) == (4, 6))
    way.delay = 0.0
    eventually(lambda: all(hub.health()["lag"]["bytes"] == 0 for hub in hubs))
    assert [(points(hub, here), points(hub, away)) for hub in hubs] == [(4, 6)] * 3


def test_alerts_and_tokens_while_the_first_shard_is_away(
    cluster: ClusterProcesses, hubs: list[RunningHub], webhook: Server
) -> None:
    """An alert is raised and sent once; a token that is revoked works at other hubs until the shard is back.

    This test is the last: from now on the hubs need tokens.
    """
    run = run_on(1, "alerting")
    writer_of(hubs, 1)
    for replica in cluster.servers[0]:
        replica.kill()
    send(hubs[0], run, 0, 9.0)
    eventually(lambda: any(run.encode() in each.body for each in webhook.received))
    for replica in cluster.servers[0]:
        replica.start()
    for hub in hubs:
        eventually(lambda hub=hub: [each["state"] for each in alerts(hub, run)] == ["firing"])
    assert len([each for each in webhook.received if run.encode() in each.body]) == 1
    one, *others = hubs
    tokens = Tokens(tokens_path(one.home))
    _, kept = tokens.create(["admin"])
    revoked, text = tokens.create(["read"])
    eventually(lambda: [asked(hub, text) for hub in hubs] == [200] * 3)
    for replica in cluster.servers[0]:
        replica.kill()
    assert tokens.revoke(revoked.id)
    eventually(lambda: asked(one, text) == 401)
    assert [asked(hub, text) for hub in others] == [200] * 2
    for replica in cluster.servers[0]:
        replica.start()
    eventually(lambda: [asked(hub, text) for hub in hubs] == [401] * 3)
    assert [asked(hub, kept) for hub in hubs] == [200] * 3
