"""A change that the hub that writes stored without its answer reaching the other hub."""

import json
from collections.abc import Callable, Iterator

import pytest

from stepscope.model.ports import Batch
from stepscope.sinks.hub import Hub
from stepscope.testing.clickhouse import free_port
from tests.hub.cluster.conftest import AddressOf, drop
from tests.hub.conftest import JSON, Answer, RunningHub
from tests.hub.store.contract import losses, writer
from tests.sinks.faults import Relay

Until = Callable[..., None]
RUN = "edited"


@pytest.fixture(scope="module")
def way() -> Iterator[Relay]:
    """What the second hub goes through to reach the first; with a `delay` no answer comes back in time."""
    relay = Relay(free_port())
    yield relay
    relay.stop()


@pytest.fixture(scope="module")
def hubs(server: AddressOf, way: Relay, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningHub]]:
    """Two hubs on one server; the first one writes."""
    url = server("unknown_outcome")
    env = {"STEPSCOPE_STORE": f"{url}?lease=600"}
    homes = [tmp_path_factory.mktemp(name) / "home" for name in ("one", "two")]
    advertised = ("--advertise", f"http://127.0.0.1:{way.port}")
    one = RunningHub(homes[0], advertised, env, port=way.target).start()
    started = [one, RunningHub(homes[1], (), env).start()]
    yield started
    for hub in started:
        hub.kill()
    drop(url)


def tag(hub: RunningHub, name: str) -> Answer:
    """Give the run a tag."""
    return hub.request("PATCH", f"/api/runs/{RUN}", json.dumps({"tags": {name: True}}).encode(), {"content-type": JSON})


def tags(hub: RunningHub) -> list[str]:
    """The tags of the run."""
    return sorted(hub.request("GET", f"/api/runs/{RUN}").json()["tags"])


def test_an_unknown_outcome_is_told_as_such_and_a_repeat_is_safe(
    hubs: list[RunningHub], way: Relay, until: Until
) -> None:
    """It is no refusal, since the change is stored; sent again it is acknowledged, and there once."""
    one, two = hubs
    Hub(url=one.url, timeout=300.0).open().write([Batch(writer(RUN), 0, losses([(0, 1.0)]))])
    until(lambda: two.request("GET", f"/api/runs/{RUN}").status == 200)
    until(lambda: tag(two, "first").status == 200)
    way.delay = 10_000.0
    unknown = tag(two, "second")
    assert (unknown.status, unknown.json()["error"]["code"]) == (504, "gateway_timeout")
    assert "not known whether the change was stored" in unknown.json()["error"]["message"]
    until(lambda: tags(one) == ["first", "second"])
    until(lambda: tags(two) == ["first", "second"])
    way.delay = 0.0  # connections that wait stay silent; new ones do not
    until(lambda: tag(two, "second").status == 200)
    assert [tags(hub) for hub in hubs] == [["first", "second"]] * 2


def test_a_hub_that_takes_no_connection_has_stored_nothing(hubs: list[RunningHub], way: Relay) -> None:
    """Then the change is refused, in words, and is not there."""
    _, two = hubs
    way.stop()
    refused = tag(two, "third")
    assert (refused.status, refused.json()["error"]["message"][:27]) == (503, "nothing can be changed now:")
    assert tags(two) == ["first", "second"]
