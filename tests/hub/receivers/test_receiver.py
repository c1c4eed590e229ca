"""A receiver of another package: its paths, keys, refusals and limits, with nothing of it known to the hub."""

import asyncio
import base64
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

import pytest
from starlette.requests import Request
from starlette.responses import Response

from benchmarks.fuzz_requests import DIALECTS
from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.receivers import receiver as receivers
from stepscope.hub.receivers.ingest import Upload
from stepscope.hub.receivers.receiver import ReceiverPorts, ReceiverRoute, open_receivers, ordered_routes
from stepscope.hub.refusals import Refusal, json_response
from stepscope.hub.security.guard import AccessRule, RequestHead, access_of, basic_password
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.serving.app import AccessRules, build_app
from stepscope.model.errors import ConfigError
from stepscope.model.ports import Writer
from stepscope.model.records import Metric
from tests.hub.in_process import request
from tests.installed import install_package

ROOT = Path(__file__).parents[3]
CLIENTS = {
    "datadog": "from datadog",
    "mlflow": "mlflow.start_run",
    "tinker": "tinker.ServiceClient",
    "wandb": "wandb.init",
}
"""The dialects, and what a test with the real client of each has in it."""
OPEN = {
    "/health",
    "/version",
    "/sdk/otel/v1/{signal}",
    "/stepscope/{project}",
    "/stepscope/{project}/runs/{run}",
    "/wandb/files/{ticket}/{name:path}",
}
PLACE = "tests.hub.receivers.test_receiver:Foreign"


class Foreign:
    """A dialect with a key in a header, a parameter or a password, and errors of its own."""

    name = "foreign"
    prefixes = ("/foreign/",)

    def __init__(self, ports: ReceiverPorts) -> None:
        self._ports = ports
        self._ingest = ports.ingest(self.name)

    def routes(self) -> list[ReceiverRoute]:
        """Values in, files in and out, a question, and one route without a key."""
        return [
            ReceiverRoute("/api/v1/foreign/{run}/values", self._take, ("POST", "PUT")),
            ReceiverRoute("/foreign/files/{path:path}", self._keep, ("PUT",), body=100),
            ReceiverRoute("/foreign/through/{path:path}", self._count, ("PUT",), body=100, stream=True),
            ReceiverRoute("/foreign/through/{name}", self._name, ("PUT",)),
            ReceiverRoute("/foreign/through/exact", self._exact, ("PUT",)),
            ReceiverRoute("/foreign/runs", self._list, ("GET",), scope="read"),
            ReceiverRoute("/foreign/alive", self._alive, ("GET",), scope=None),
        ]

    def credential(self, head: RequestHead) -> str:
        """The key, from whichever of three places has it."""
        given = parse_qs(head.query).get("api_key", [""])[0]
        return head.headers.get("foreign-api-key", "") or basic_password(head.headers.get("authorization", "")) or given

    def refuse(self, head: RequestHead, refusal: Refusal) -> Response:
        """Errors as this dialect has them."""
        return json_response({"errors": [refusal.message], "where": head.path}, refusal.status)

    async def _take(self, request: Request) -> Response:
        upload = Upload()
        writer = Writer(id="w", run=request.path_params["run"], project="p")
        value = float((await request.json())["value"])
        record = Metric(1_700_000_000_000_000_000, 1, None, "train", {"loss": value})
        self._ingest.add(upload, writer, [record], access_of(request.scope).project)
        await asyncio.wrap_future(self._ingest.submit(upload))
        return json_response({"accepted": upload.taken})

    async def _keep(self, request: Request) -> Response:
        place = self._ports.files / self.name
        place.mkdir(parents=True, exist_ok=True)
        (place / request.path_params["path"].replace("/", "_")).write_bytes(await request.body())
        return json_response({})

    async def _count(self, request: Request) -> Response:
        return json_response({"bytes": sum([len(part) async for part in request.stream()])})

    async def _name(self, request: Request) -> Response:
        return json_response(request.path_params)

    async def _exact(self, request: Request) -> Response:
        return json_response({"exact": True})

    async def _list(self, request: Request) -> Response:
        return json_response(self._ports.engine.query("SELECT count() AS n FROM runs").one("n"))

    async def _alive(self, request: Request) -> Response:
        raise RuntimeError("a bug")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub whose pump does not run."""
    pytest.importorskip("tests.chdb")
    home = HubHome(tmp_path / "home")
    made = Hub(HubOptions(home=home.home), home, open_home_store(home), Tokens(home.tokens))
    yield made
    made.close(0.1)


@pytest.fixture
def send(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Send a request to the hub's application, which has one receiver more."""
    monkeypatch.setitem(cast(dict[str, str], receivers.RECEIVERS.built_in), "foreign", PLACE)
    return partial(request, build_app(hub))


def test_keys_scopes_and_refusals(hub: Hub, send: Callable[..., Any]) -> None:
    """The receiver says where the key is, which scope a route needs, and how a refusal reads."""
    ingest, read = (hub.guard.tokens.create([scope])[1] for scope in ("ingest", "read"))
    path, body = "/api/v1/foreign/r1/values", {"value": 0.5}
    basic = "Basic " + base64.b64encode(f"api:{ingest}".encode()).decode()
    for options in (
        {"headers": {"foreign-api-key": ingest}},
        {"headers": {"authorization": basic}},
        {"params": {"api_key": ingest}},
    ):
        assert send("POST", path, json=body, **options).json() == {"accepted": 1}
    refused = send("PUT", path, json=body, headers={"authorization": f"Bearer {ingest}"})
    assert (refused.status_code, refused.json()["where"]) == (401, path)
    assert send("POST", path, json=body, headers={"foreign-api-key": read}).status_code == 403
    assert send("GET", "/foreign/runs", headers={"foreign-api-key": read}).json() == 0
    assert send("GET", "/foreign/runs", headers={"foreign-api-key": ingest}).status_code == 403
    assert hub.counters.total("written", "foreign") == 3


def test_what_it_does_not_know_is_refused_in_its_words(send: Callable[..., Any]) -> None:
    """Unknown paths below its prefixes, wrong methods, large bodies and bugs are refused as it refuses."""
    for method, path, status in (
        ("POST", "/foreign/nothing", 404),
        ("DELETE", "/foreign/runs", 405),
        ("GET", "/foreign/alive", 503),
    ):
        found = send(method, path)
        assert (found.status_code, list(found.json())) == (status, ["errors", "where"])
    assert send("PUT", "/foreign/files/a/b.txt", content=b"x" * 100).json() == {}
    large = send("PUT", "/foreign/files/a/b.txt", content=b"x" * 101)
    assert (large.status_code, "larger than 100 bytes" in large.json()["errors"][0]) == (413, True)
    assert list(send("GET", "/api/nothing").json()) == ["error"]


def test_bodies_that_stream_have_any_size(send: Callable[..., Any]) -> None:
    """A route that reads its body in parts is not bound by the limits on bodies that are held."""
    sent = send("PUT", "/foreign/through/a/b", content=b"x" * 30_000_000)
    assert sent.json() == {"bytes": 30_000_000}


def test_the_most_specific_path_wins(send: Callable[..., Any]) -> None:
    """An exact path wins over a pattern, and a pattern over one that takes all paths, wherever they stand."""
    assert send("PUT", "/foreign/through/exact").json() == {"exact": True}
    assert send("PUT", "/foreign/through/one").json() == {"name": "one"}
    assert send("PUT", "/foreign/through/one/two").json() == {"bytes": 0}


def test_receivers_are_found_by_entry_point(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line in a package's metadata adds a receiver; one that cannot be imported is named."""
    (working := tmp_path / "working").mkdir()
    install_package(working, monkeypatch, "stepscope.receivers", {"foreign": PLACE})
    assert {each.name for each in open_receivers(hub)} == {*CLIENTS, "native", "otlp_http", "foreign"}
    (broken := tmp_path / "broken").mkdir()
    install_package(broken, monkeypatch, "stepscope.receivers", {"gone": "nowhere:Gone"})
    with pytest.raises(ConfigError, match="'gone' is registered as nowhere:Gone and cannot be loaded"):
        open_receivers(hub)


def test_every_route_needs_a_token_with_a_scope(hub: Hub) -> None:
    """But for health checks, redirects to the page, links that are signed, and telemetry that is dropped."""
    routes = [route for _, route in ordered_routes(open_receivers(hub))]
    assert {route.path for route in routes if route.scope is None} == OPEN
    assert {route.scope for route in routes} == {None, "ingest", "read", "admin", ("ingest", "read")}


@pytest.mark.parametrize(("name", "client"), CLIENTS.items())
def test_a_dialect_is_complete(name: str, client: str) -> None:
    """Each has a folder, a page, the contract, fuzzed requests and a test with the real client."""
    assert (ROOT / "src" / "stepscope" / "dialects" / name / "receiver").is_dir()
    assert f"/dialects/{name}/README.md" in (ROOT / "docs" / "coming-from.md").read_text()
    assert name in DIALECTS
    contract = (ROOT / "tests" / "hub" / "receivers" / "test_contract.py").read_text()
    found = "".join(path.read_text() for path in (ROOT / "tests" / "dialects" / name).rglob("*.py"))
    assert client in found
    assert "(ReceiverContract)" in found or f"class Test{name.title()}(_Pairs)" in contract


def test_every_folder_is_a_dialect() -> None:
    """One that is added is checked here too."""
    folder = ROOT / "src" / "stepscope" / "dialects"
    assert {path.parents[1].name for path in folder.glob("*/receiver/__init__.py")} == CLIENTS.keys()


def test_two_receivers_cannot_claim_one_path(hub: Hub) -> None:
    """The hub does not start with a request that two would answer."""

    def default(head: RequestHead) -> AccessRule:
        raise AssertionError

    with pytest.raises(ConfigError, match="two receivers have the route "):
        AccessRules([*open_receivers(hub), *open_receivers(hub)], hub.limits, default)
