"""MLflow's model registry: the same calls to MLflow's own server and to a hub, answered field by field alike."""

from typing import Any
from urllib.parse import urlencode

import pytest

from tests.dialects.mlflow.receiver.both_servers import BothServers
from tests.dialects.mlflow.receiver.registry_calls import (
    ASKED,
    LIFE,
    MODEL_FILTERS,
    MODEL_ORDERS,
    VERSION_FILTERS,
    VERSION_ORDERS,
)


@pytest.fixture(scope="module")
def both(both_servers: BothServers) -> BothServers:
    """Both servers, with a run and a logged model, and the registry after LIFE."""
    found = both_servers
    found.make("$registry", "experiments/create", {"name": "registry"}, "experiment_id")
    found.make("$registered", "runs/create", {"experiment_id": "$registry"}, "run", "info", "run_id")
    model = {"experiment_id": "$registry", "name": "m", "source_run_id": "$registered"}
    found.make("$logged", "logged-models", model, "model", "info", "model_id")
    found.make("$place", "logged-models/search", {"experiment_ids": ["$registry"]}, "models", 0, "info", "artifact_uri")
    wrong = []
    for method, path, body in LIFE:
        theirs, ours = found.ask(method, path, body)
        if theirs != ours:
            wrong.append((method, path, body, theirs, ours))
    assert wrong == []
    return found


def differences(both: BothServers, path: str, asked: list[dict[str, Any]]) -> list[Any]:
    """Ask all, and return what is answered otherwise; where MLflow's server fails, a hub must not."""
    found = []
    for fields in asked:
        theirs, ours = both.ask("GET", f"{path}?{urlencode(fields, doseq=True, safe='$')}")
        if ours.status >= 500 if theirs.status >= 500 else _unordered(ours.body) != _unordered(theirs.body):
            found.append((fields, theirs, ours))
    return found


def _unordered(body: Any) -> Any:
    """An answer with the latest versions of a model by number: their order is that of a database."""
    for model in body.get("registered_models", ()):
        model.get("latest_versions", []).sort(key=lambda each: each["version"])
    return body


def test_what_is_made_and_changed(both: BothServers) -> None:
    """Each call of a model's life is answered alike, and what it leaves behind reads alike."""
    assert differences(both, "registered-models/get", [{"name": name} for name in ("cats", "hounds", "a b")]) == []
    assert differences(both, "model-versions/search", [{}, {"max_results": 2}]) == []


def test_refusals(both: BothServers) -> None:
    """What MLflow refuses is refused with the same status, code and message."""
    wrong = []
    for method, path, body in ASKED:
        theirs, ours = both.ask(method, path, body)
        if ours.status >= 500 if theirs.status >= 500 else ours != theirs:
            wrong.append((method, path, body, theirs, ours))
    assert wrong == []


def test_a_file_of_a_version(both: BothServers) -> None:
    """A file of a version is sent from the artifacts of its run, also where the source is `runs:/`."""
    for server, ids in zip(both.servers, both.ids, strict=True):
        place = f"/api/2.0/mlflow-artifacts/artifacts/{ids['$registry']}/{ids['$registered']}/artifacts/model/a.txt"
        assert server.send("PUT", place, b"some text").status == 200
    path = "/model-versions/get-artifact"
    assert both.same("GET", f"{path}?name=cats&version=1&path=a.txt").body == b"some text"
    theirs, ours = both.ask("GET", f"{path}?name=hounds&version=1&path=a.txt")
    assert (theirs.status, ours.body) == (500, b"some text"), "MLflow's server fails with a source `runs:/`"
    for query in ("name=cats&version=1&path=../a.txt", "name=cats&version=99&path=a.txt", "name=no&version=1&path=a"):
        assert both.same("GET", f"{path}?{query}").status in (400, 404)
    for query in ("name=cats&version=1&path=none", "name=cats&version=1", "name=cats&version=3&path=x"):
        theirs, ours = both.ask("GET", f"{path}?{query}")
        assert 400 <= ours.status < 500 <= theirs.status or ours.status == theirs.status
    of_another = both.servers[1].send("GET", f"{path}?name=hounds&version=3&path=x")
    assert (of_another.status, of_another.body["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST"), "no such run"


def test_filters(both: BothServers) -> None:
    """A filter finds the same models and versions in the same order, or is refused with the same message."""
    assert differences(both, "registered-models/search", [{"filter": text} for text in MODEL_FILTERS]) == []
    assert differences(both, "model-versions/search", [{"filter": text} for text in VERSION_FILTERS]) == []


def test_orders_and_pages(both: BothServers) -> None:
    """Orders, sizes of pages and their tokens."""
    pages = [{"max_results": size} for size in (0, 1, 2, 1000, 1001, "x")]
    pages += [{"page_token": token} for token in ("zz", "e30=", "eyJvZmZzZXQiOiAxfQ==")]
    asked = [{"order_by": [text]} for text in MODEL_ORDERS] + [{"order_by": ["timestamp", "name DESC"]}, *pages]
    assert differences(both, "registered-models/search", asked) == []
    asked = [{"order_by": [text]} for text in VERSION_ORDERS] + [{"order_by": ["name DESC", "version_number"]}]
    assert (
        differences(both, "model-versions/search", [*asked, *pages, {"max_results": 200_001}, {"max_results": -1}])
        == []
    )
