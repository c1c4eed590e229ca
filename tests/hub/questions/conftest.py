"""A real hub with generated runs, and a client that speaks to its application."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")
pytest.importorskip("httpx", reason="the API is asked through httpx")

from stepscope.hub.home import HubHome
from stepscope.hub.questions.routes import mount
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.serving.app import build_app
from stepscope.hub.store.store import open_store
from stepscope.model.ports import Batch
from tests.hub.in_process import request
from tests.hub.questions.world import fill

Get = Callable[..., Any]


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a hub that has stored and diagnosed the world of `world.py`; made once, and copied by each file."""
    place = tmp_path_factory.mktemp("filled") / "home"
    hub = _open(place)
    batches: list[Batch] = []
    fill(batches.append)
    for each in (batches[::2], batches[1::2]):  # ranks and attempts in parts of their own; more would be files to copy
        assert hub.store.write_many(each) == [None] * len(each)
    _diagnose(hub)
    hub.close(0.1)
    return place


@pytest.fixture(scope="module")
def hub(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub whose store holds the world of `world.py`; its pump does not run."""
    made = _open(Path(shutil.copytree(filled, tmp_path_factory.mktemp("home") / "home", symlinks=True)))
    made.diagnosing.catch_up("big")  # looks once for what is not diagnosed: nothing
    yield made
    made.close(0.1)


def _diagnose(hub: Hub) -> None:
    for run in ("big", "again", "small-2"):
        hub.diagnosing.catch_up(run)


def _open(place: Path) -> Hub:
    home = HubHome(place)
    return Hub(HubOptions(home=place), home, open_store(home.store), Tokens(home.tokens))


@pytest.fixture(scope="module")
def app(hub: Hub) -> Any:
    """The application of the hub."""
    return build_app(hub, mount(hub, "test"))


@pytest.fixture(scope="module")
def ask(app: Any) -> Callable[..., Any]:
    """Send a request and return the response."""
    return partial(request, app)


@pytest.fixture(scope="module")
def get(ask: Callable[..., Any]) -> Get:
    """Ask for JSON; the status must be the expected one."""

    def read(path: str, expect: int = 200, **params: Any) -> Any:
        response = ask("GET", path, params=params)
        assert response.status_code == expect, response.text[:500]
        return response.json()

    return read
