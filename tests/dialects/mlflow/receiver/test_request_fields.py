"""Every field of every request of MLflow's API with a value of another type: refused for good, never to be repeated."""

import copy
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.conftest import Compared
from tests.dialects.mlflow.receiver.rest_calls import Answer, RestCalls
from tests.hub.conftest import RunningHub

T = 1_700_000_000_000
ODD: list[Any] = [
    *(None, [], {}, True, False, 0, -1, 1.5, 1e300, 2**63, -(2**63) - 1),
    *("", "x", "\ud800", "\0", "9" * 5000, "x" * 100_000),
]
FILLED: list[Any] = [[[]], ["x"], [None], [{}], {"a": []}]
"""In the place of a text or number they are refused as empty ones are; what reads a list or object looks into them."""
PAIRS = [{"key": "k", "value": "v"}]
POINT = {
    "key": "m",
    "value": 1.0,
    "timestamp": T,
    "step": 1,
    "model_id": "m-1",
    "dataset_name": "d",
    "dataset_digest": "e",
}
DATASET = {"name": "n", "digest": "d", "source_type": "t", "source": "s", "schema": "{}", "profile": "{}"}
INPUTS = [{"dataset": DATASET, "tags": PAIRS}]
ORDER = [{"field_name": "metrics.m", "ascending": True, "dataset_name": "d", "dataset_digest": "e"}]
PLACES = [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}]
INFO = {
    "trace_id": f"tr-{'ab' * 16}",
    "trace_location": PLACES[0],
    "request_time": "2026-01-02T03:04:05Z",
    "state": "OK",
    "trace_metadata": {"mlflow.sourceRun": "RUN"},
    "tags": {"a": "b"},
    "execution_duration": "0.1s",
    "assessments": [],
}
STAGED = {"name": "REGISTERED", "version": "1"}
VERSION = {
    "name": "REGISTERED",
    "source": "s3://bucket/model",
    "run_id": "RUN",
    "run_link": "http://link",
    "description": "d",
    "tags": PAIRS,
}
CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "experiments/create", {"name": "fresh", "artifact_location": "s3://b/p", "tags": PAIRS}),
    (
        "POST",
        "experiments/search",
        {"filter": "name = 'a'", "order_by": ["name"], "max_results": 2, "view_type": "ALL"},
    ),
    ("POST", "experiments/search-datasets", {"experiment_ids": ["0"]}),
    ("POST", "experiments/update", {"experiment_id": "0", "new_name": "Default"}),
    ("POST", "experiments/set-experiment-tag", {"experiment_id": "0", "key": "k", "value": "v"}),
    ("POST", "experiments/delete-experiment-tag", {"experiment_id": "0", "key": "k"}),
    ("POST", "runs/create", {"experiment_id": "0", "user_id": "u", "run_name": "n", "start_time": T, "tags": PAIRS}),
    ("POST", "runs/update", {"run_id": "RUN", "status": "RUNNING", "end_time": T, "run_name": "n"}),
    ("POST", "runs/search", {"experiment_ids": ["0"], "filter": "", "order_by": ["start_time"], "max_results": 2}),
    ("POST", "runs/search", {"experiment_ids": ["0"], "run_view_type": "ALL", "page_token": ""}),
    ("POST", "runs/log-metric", {"run_id": "RUN", **POINT}),
    ("POST", "runs/log-batch", {"run_id": "RUN", "metrics": [POINT], "params": PAIRS, "tags": PAIRS}),
    ("POST", "runs/log-parameter", {"run_id": "RUN", "key": "p", "value": "v"}),
    ("POST", "runs/set-tag", {"run_id": "RUN", "key": "t", "value": "v"}),
    ("POST", "runs/delete-tag", {"run_id": "RUN", "key": "t"}),
    ("POST", "runs/log-inputs", {"run_id": "RUN", "datasets": INPUTS, "models": [{"model_id": "m-1"}]}),
    ("POST", "runs/outputs", {"run_id": "RUN", "models": [{"model_id": "m-1", "step": 1}]}),
    ("POST", "runs/log-model", {"run_id": "RUN", "model_json": "{}"}),
    ("POST", "logged-models", {"experiment_id": "0", "name": "n", "model_type": "t", "source_run_id": "RUN"}),
    ("POST", "logged-models", {"experiment_id": "0", "params": PAIRS, "tags": PAIRS}),
    ("POST", "logged-models/MODEL/params", {"params": PAIRS}),
    ("PATCH", "logged-models/MODEL/tags", {"tags": PAIRS}),
    ("PATCH", "logged-models/MODEL", {"status": "LOGGED_MODEL_READY"}),
    (
        "POST",
        "logged-models/search",
        {
            "experiment_ids": ["0"],
            "filter": "metrics.m > 0",
            "order_by": ORDER,
            "datasets": [{"dataset_name": "d", "dataset_digest": "e"}],
            "max_results": 3,
            "page_token": "",
        },
    ),
    ("POST", "/api/3.0/mlflow/traces", {"trace": {"trace_info": INFO}}),
    ("POST", "/api/3.0/mlflow/traces/search", {"locations": PLACES, "filter": "name = 'a'", "order_by": ["name"]}),
    ("POST", "/api/3.0/mlflow/traces/search", {"locations": PLACES, "max_results": 2, "page_token": ""}),
    ("POST", "/api/3.0/mlflow/traces/batchGetInfos", {"trace_ids": [INFO["trace_id"]], "experiment_ids": ["0"]}),
    ("PATCH", f"/api/3.0/mlflow/traces/{INFO['trace_id']}/tags", {"key": "k", "value": "v"}),
    ("DELETE", f"/api/3.0/mlflow/traces/{INFO['trace_id']}/tags", {"key": "k"}),
    ("POST", "/api/2.0/mlflow/traces/link-to-run", {"trace_ids": [INFO["trace_id"]], "run_id": "RUN"}),
    ("POST", "/api/3.0/mlflow/traces/delete-traces", {"experiment_id": "0", "request_ids": ["x"]}),
    (
        "POST",
        "/api/3.0/mlflow/traces/delete-traces",
        {"experiment_id": "0", "max_timestamp_millis": 1, "max_traces": 1},
    ),
    ("POST", "registered-models/create", {"name": "new", "description": "d", "tags": PAIRS}),
    ("POST", "registered-models/rename", {"name": "REGISTERED", "new_name": "REGISTERED"}),
    ("PATCH", "registered-models/update", {"name": "REGISTERED", "description": "d"}),
    ("POST", "registered-models/set-tag", {"name": "REGISTERED", "key": "k", "value": "v"}),
    ("DELETE", "registered-models/delete-tag", {"name": "REGISTERED", "key": "k"}),
    ("POST", "registered-models/alias", {"name": "REGISTERED", "alias": "a", "version": "1"}),
    ("DELETE", "registered-models/alias", {"name": "REGISTERED", "alias": "a"}),
    ("POST", "registered-models/get-latest-versions", {"name": "REGISTERED", "stages": ["None"]}),
    ("POST", "model-versions/create", VERSION),
    ("POST", "model-versions/create", {"name": "REGISTERED", "source": "models:/REGISTERED/1"}),
    ("POST", "model-versions/create", {"name": "REGISTERED", "source": "models:/MODEL", "model_id": "MODEL"}),
    ("PATCH", "model-versions/update", {"name": "REGISTERED", "version": "1", "description": "d"}),
    ("POST", "model-versions/transition-stage", {**STAGED, "stage": "Staging", "archive_existing_versions": True}),
    ("POST", "model-versions/set-tag", {"name": "REGISTERED", "version": "1", "key": "k", "value": "v"}),
    ("DELETE", "model-versions/delete-tag", {"name": "REGISTERED", "version": "1", "key": "k"}),
]
QUERIES = [
    "experiments/get?experiment_id=0",
    "experiments/get-by-name?experiment_name=Default",
    "experiments/search?max_results=1&filter=&order_by=name&view_type=ALL&page_token=",
    "runs/get?run_id=RUN",
    "metrics/get-history?run_id=RUN&metric_key=m&max_results=1&page_token=",
    "metrics/get-history-bulk?run_id=RUN&metric_key=m&max_results=1",
    "metrics/get-history-bulk-interval?run_ids=RUN&metric_key=m&start_step=0&end_step=1&max_results=1",
    "artifacts/list?run_id=RUN&path=a",
    "logged-models/MODEL/artifacts/directories?artifact_directory_path=a",
    "logged-models/MODEL/artifacts/files?artifact_file_path=a",
    "/get-artifact?run_id=RUN&path=a",
    "/api/3.0/mlflow/traces/get?trace_id=none&allow_partial=true",
    f"/api/3.0/mlflow/traces/batchGet?trace_ids={INFO['trace_id']}&experiment_ids=0",
    "registered-models/get?name=REGISTERED",
    "registered-models/search?filter=name+%3D+'a'&order_by=name&max_results=1&page_token=",
    "registered-models/alias?name=REGISTERED&alias=latest",
    "registered-models/get-latest-versions?name=REGISTERED&stages=None",
    "model-versions/get?name=REGISTERED&version=1",
    "model-versions/get-download-uri?name=REGISTERED&version=1",
    "model-versions/search?filter=version_number+%3D+1&order_by=name&max_results=1&page_token=",
]


def changed(value: Any) -> Iterator[Any]:
    """Copies of a body with one of its values replaced or missing."""
    yield from ODD
    if isinstance(value, dict | list):
        yield from FILLED
    if isinstance(value, dict):
        for key in value:
            yield {other: copy.deepcopy(each) for other, each in value.items() if other != key}
            for inner in changed(value[key]):
                yield {**copy.deepcopy(value), key: inner}
    elif isinstance(value, list):
        for at, each in enumerate(value):
            for inner in changed(each):
                yield [*copy.deepcopy(value[:at]), inner, *copy.deepcopy(value[at + 1 :])]


@pytest.fixture(scope="module")
def server(hub: RunningHub) -> RestCalls:
    """The hub, by its MLflow API."""
    return RestCalls(hub.port)


@pytest.fixture(scope="module")
def ids(server: RestCalls) -> dict[str, str]:
    """A run and a model."""
    run = server.create_run()
    made = server.post("logged-models", {"experiment_id": "0", "source_run_id": run})
    server.post("registered-models/create", {"name": "registered"})
    server.post("model-versions/create", {"name": "registered", "source": "s3://bucket/model"})
    return {"RUN": run, "MODEL": str(made.body["model"]["info"]["model_id"]), "REGISTERED": "registered"}


def filled(text: str, ids: dict[str, str]) -> str:
    """The text with the ids of the run and the model."""
    for name, id in ids.items():
        text = text.replace(name, id)
    return text


@pytest.mark.parametrize(("method", "path", "body"), CALLS, ids=[f"{call[1]}-{at}" for at, call in enumerate(CALLS)])
def test_no_value_of_a_body_fails(
    server: RestCalls, ids: dict[str, str], method: str, path: str, body: dict[str, Any], compared: Compared
) -> None:
    """A list, an object, null, a number or a huge text in the place of any value is taken or refused with 4xx."""
    failed: list[tuple[str, Answer]] = []
    bodies = list(changed(body))
    compared(len(bodies))
    for each in bodies:
        data = filled(json.dumps(each), ids)
        answer = server.send(method, filled(path, ids), data.encode())
        if not 200 <= answer.status < 500:
            failed.append((data[:300], answer))
    assert failed == []


@pytest.mark.parametrize("path", QUERIES)
def test_no_value_of_a_query_fails(server: RestCalls, ids: dict[str, str], path: str) -> None:
    """So it is with the fields of a query: missing, empty, repeated, too long, or of another type."""
    place, _, query = filled(path, ids).partition("?")
    fields = [field.partition("=")[::2] for field in query.split("&")]
    failed = []
    for at, (name, _) in enumerate(fields):
        for odd in ("", "x", "-1", "1.5", "9" * 400, "[]", "\0", "ü", "%", "x" * 5000, "a&" + name + "=b"):
            others = "&".join(f"{key}={quote(value)}" for key, value in fields[:at] + fields[at + 1 :])
            value = odd if "&" in odd else quote(odd)
            answer = server.send("GET", f"{place}?{others}&{name}={value}")
            if not 200 <= answer.status < 500:
                failed.append((name, odd, answer))
    assert failed == []
