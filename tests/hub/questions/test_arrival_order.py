"""Answers do not depend on the order in which batches arrived, nor on that in which an engine returns rows."""

from pathlib import Path
from typing import Any

import pytest

from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.questions.routes import mount
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.serving.app import build_app
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric
from tests.hub.in_process import request
from tests.hub.questions.world import START, fill

QUESTIONS = (
    *("/api/runs/big", "/api/runs/again", "/api/runs/small-3"),
    *("/api/runs/big/goodput", "/api/runs/again/goodput", "/api/runs/small-3/goodput"),
    *("/api/runs/big/series?key=trainer/loss&points=7", "/api/runs/again/series?key=trainer/loss&points=7"),
    "/api/runs/again/series?key=trainer/loss&attempts=all&points=3",
    *("/api/runs/big/steps/70", "/api/runs/big/keys", "/api/runs/large/steps/8"),
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The answers of two hubs; the second got the batches of the first in the opposite order."""
    batches: list[Batch] = []
    fill(batches.append)
    return [_answers(tmp_path_factory.mktemp("hub"), each) for each in (batches, batches[::-1])]


def _answers(place: Path, batches: list[Batch]) -> dict[str, Any]:
    home = HubHome(place)
    hub = Hub(HubOptions(home=place), home, open_home_store(home, ""), Tokens(home.tokens))
    for batch in batches:
        hub.store.write(batch)
    hub.store.write(large_values())
    app = build_app(hub, mount(hub, "test"))
    found = {asked: request(app, "GET", asked).json() for asked in QUESTIONS}
    hub.close(0.1)
    return found


def large_values() -> Batch:
    """A run whose values are large, and differ by one."""
    points = [Metric(START + step, step, None, "trainer", {"ids": 1e15 + step % 2}) for step in range(9)]
    return Batch(Writer(id="w", run="large", project="gpt", wall_ns=START), 0, points)


@pytest.mark.parametrize("asked", QUESTIONS)
def test_the_answer_is_the_same(answers: list[dict[str, Any]], asked: str) -> None:
    """Of equal steps, ranks and times the same one is chosen, and lists have an order of their own."""
    here, there = (_without(each[asked]) for each in answers)
    assert there == here


def test_the_spread_of_large_values_is_exact(answers: list[dict[str, Any]]) -> None:
    """Half of them are one more than the others, so they spread by one half."""
    for each in answers:
        (metric,) = each["/api/runs/large/steps/8"]["metrics"]
        assert [(value["before"], value["std"]) for value in metric["values"]] == [(8, 0.5)]


_OF_THE_STORE = ("created", "received", "next", "place")


def _without(value: Any) -> Any:
    """A value without the time at which the store was made and the order of its runs, and floats to nine digits."""
    if isinstance(value, dict):
        return {
            key: _without(each) for key, each in value.items() if key not in ("created", "received", "next", "place")
        }
    if isinstance(value, list):
        return [_without(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
