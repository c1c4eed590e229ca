"""The unmodified tinker client at a hub: it starts, its telemetry lands, and a hub that is away costs it nothing."""

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from stepscope.hub.security.tokens import Tokens
from tests.dialects.tinker.receiver.test_service import events_of
from tests.hub.conftest import RunningHub
from tests.hub.test_connections import wait_for

MakeClient = Callable[..., Any]


@pytest.fixture
def make_client(monkeypatch: pytest.MonkeyPatch, unmetered: None) -> Iterator[MakeClient]:
    """Make clients that read the address from the environment and are closed after the test."""
    tinker: Any = pytest.importorskip("tinker")
    made: list[Any] = []

    def make(hub: RunningHub, key: str = "tml-any", **options: Any) -> Any:
        monkeypatch.setenv("TINKER_BASE_URL", hub.url)
        monkeypatch.setenv("TINKER_API_KEY", key)
        client = tinker.ServiceClient(**options)
        made.append(client.holder)  # which creates the session
        return client

    yield make
    for holder in made:
        holder.close()


def test_the_command_of_the_page_works(hub: RunningHub, tmp_path: Path) -> None:
    """The one variable that docs/bring-your-runs.md names brings a script's session here, in a process of its own."""
    page = (Path(__file__).parents[4] / "docs" / "bring-your-runs.md").read_text()
    (variable,) = re.findall(r"`(TINKER_BASE_URL)=http://localhost:4318 python train.py`", page)
    script = tmp_path / "train.py"
    script.write_text("import tinker\nclient = tinker.ServiceClient()\nprint(client.holder.get_session_id())\n")
    env = {**os.environ, variable: hub.url, "TINKER_API_KEY": "tml-any"}
    session = subprocess.run(
        [sys.executable, script], env=env, capture_output=True, text=True, timeout=100
    ).stdout.strip()
    wait_for(lambda: hub.request("GET", f"/api/runs/{session}").status == 200, 30)


def test_a_client_starts_and_ends(hub: RunningHub, make_client: MakeClient) -> None:
    """With one variable set, a session is a run with its name, metadata, events and end."""
    client = make_client(hub, user_metadata={"lr": "0.1"}, display_name="first")
    assert client.get_server_capabilities().supported_models == []
    session = client.holder.get_session_id()
    telemetry = client.holder.get_telemetry()
    assert telemetry.log("loop.start", {"step": 3, "api_key": "very-secret-key"})
    with pytest.raises(ZeroDivisionError), telemetry.capture_exceptions():
        _ = 1 / 0
    client.close("success").result(60)
    found = {event["name"]: event for event in events_of(hub, session, 5)}
    assert set(found) == {"train.run.started", "SESSION_START", "loop.start", "exception", "train.run.finished"}
    assert found["loop.start"]["step"] == 3
    assert "very-secret-key" not in str(found)
    assert "ZeroDivisionError" in found["exception"]["attrs"]["exception.stacktrace"]
    run = hub.request("GET", f"/api/runs/{session}").json()
    assert (run["name"], run["config"]["lr"], run["status"]) == ("first", "0.1", "finished")


def test_what_the_hub_does_not_do_is_an_error_the_client_reports(hub: RunningHub, make_client: MakeClient) -> None:
    """Training needs a service: the client fails at once with the reason, and that is in its telemetry."""
    client = make_client(hub)
    with pytest.raises(Exception, match="tinker-upstream"):
        client.create_lora_training_client("any/model")
    client.holder.close()
    names = [event["name"] for event in events_of(hub, client.holder.get_session_id(), 3)]
    assert "user_error" in names


def test_a_client_without_a_session(hub: RunningHub, make_client: MakeClient) -> None:
    """A client of the REST API alone has a run under the id that it made up."""
    tinker: Any = import_module("tinker")
    make_client(hub)
    rest = tinker.RestClient()
    telemetry = rest.holder.get_telemetry()
    mark = f"rest-{uuid.uuid4().hex}"
    telemetry.log(mark)
    telemetry._trigger_flush()
    found: list[Any] = []

    def is_there() -> bool:
        found[:] = hub.request("GET", f"/api/logs?name={mark}").json()["logs"]
        return bool(found)

    wait_for(is_there, 30)
    assert found[0]["run"].startswith("sessionless-")


def test_the_client_shows_a_token(start_hub: Callable[..., RunningHub], make_client: MakeClient) -> None:
    """A hub with tokens takes one as the API key behind the prefix that the client asks for."""
    hub = start_hub()
    tokens = Tokens(hub.home / "hub" / "tokens.json")
    token, reading = tokens.create(["ingest"])[1], tokens.create(["read"])[1]
    wait_for(lambda: hub.request("GET", "/api/runs").status == 401)
    with pytest.raises(Exception, match="TINKER_API_KEY=tml-TOKEN"):
        make_client(hub, "tml-wrong")
    session = make_client(hub, f"tml-{token}").holder.get_session_id()
    shown = {"authorization": f"Bearer {reading}"}
    wait_for(lambda: hub.request("GET", f"/api/runs/{session}", None, shown).status == 200, 30)
