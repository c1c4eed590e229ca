"""The same calls to MLflow's own server and to a hub: their answers are compared field by field."""

import os
from typing import Any

import pytest

from tests.conftest import Compared
from tests.dialects.mlflow.receiver.both_servers import BothServers
from tests.dialects.mlflow.receiver.odd_searches import ODD_FILTERS, ODD_ORDERS, ODD_PAGES, of_experiments
from tests.dialects.mlflow.receiver.rest_calls import Answer
from tests.dialects.mlflow.receiver.same_calls import FILTERS, ODD, ORDERS, REFUSED, T, point

LETTERS = "abcdefghij"


def fill(both: BothServers) -> None:
    """Make ten runs at both: metrics that are NaN, infinite or missing, params, tags, a dataset, one run deleted."""
    for at, name in enumerate(LETTERS):
        both.make_run(name, start_time=T + at, user_id="me" if at % 2 else "you")
        both.ask("POST", "runs/log-batch", _logged(at, f"${name}"))
    both.ask("POST", "runs/update", {"run_id": "$b", "status": "FINISHED", "end_time": T + 50})
    both.ask("POST", "runs/update", {"run_id": "$c", "status": "FAILED", "end_time": T + 60})
    dataset = {"name": "train", "digest": "d1", "source_type": "local", "source": "{}"}
    inputs = [{"dataset": dataset, "tags": [{"key": "mlflow.data.context", "value": "training"}]}]
    both.ask("POST", "runs/log-inputs", {"run_id": "$d", "datasets": inputs})
    both.ask("POST", "runs/delete", {"run_id": "$j"})


@pytest.fixture(scope="module")
def both(both_servers: BothServers) -> BothServers:
    """Both servers, with the same runs."""
    fill(both_servers)
    return both_servers


def _logged(at: int, run: str) -> dict[str, Any]:
    values = [0.5, "NaN", "Infinity", -1.0, 0.25, 0.5, "-Infinity", 3.0]
    metrics = [point("loss", values[at], at)] if at < len(values) else []
    metrics += [point("a/b c", at, step, T + step) for step in range(3)]
    params = [{"key": "lr", "value": str(at / 10)}] + ([{"key": "opt", "value": "Adam"}] if at % 3 else [])
    tags = [{"key": "team", "value": "Red" if at < 5 else "blue"}] + ([{"key": "rare", "value": ""}] if at == 4 else [])
    return {"run_id": run, "metrics": metrics, "params": params, "tags": tags}


def same(both: BothServers, method: str, path: str, body: Any = None) -> Any:
    """Ask both, compare, and return the answer."""
    return both.same(method, path, body)


@pytest.mark.parametrize("text", FILTERS)
def test_filters(both: BothServers, text: str) -> None:
    """A filter finds the same runs in the same order, or is refused with the same code and message."""
    same(both, "POST", "runs/search", {"experiment_ids": ["$experiment"], "filter": text, "max_results": 100})


@pytest.mark.parametrize("text", ORDERS)
def test_orders(both: BothServers, text: str) -> None:
    """NaN comes behind numbers and missing values last, however the order is."""
    same(both, "POST", "runs/search", {"experiment_ids": ["$experiment"], "order_by": [text], "max_results": 100})


def differences(both: BothServers, path: str, bodies: list[dict[str, Any]]) -> list[Any]:
    """Ask all, and return what is answered otherwise; where MLflow's server fails, a hub must not."""
    found = []
    for body in bodies:
        theirs, ours = both.ask("POST", path, {"max_results": 100, **body})
        if ours.status >= 500 if theirs.status >= 500 else ours != theirs:
            found.append((body, theirs, ours))
    return found


def test_odd_filters(both: BothServers, compared: Compared) -> None:
    """Hundreds of malformed filters are refused with MLflow's words, and what is odd but a filter finds the same."""
    bodies = [{"experiment_ids": ["$experiment"], "filter": text} for text in ODD_FILTERS]
    assert differences(both, "runs/search", bodies) == []
    of_others = list(dict.fromkeys(map(of_experiments, ODD_FILTERS)))
    assert differences(both, "experiments/search", [{"filter": text} for text in of_others]) == []
    compared(len(bodies) + len(of_others))


def test_odd_orders(both: BothServers, compared: Compared) -> None:
    """So it is with orders."""
    bodies = [{"experiment_ids": ["$experiment"], "order_by": [text]} for text in ODD_ORDERS]
    assert differences(both, "runs/search", bodies) == []
    others = [{"order_by": [of_experiments(text)]} for text in ODD_ORDERS]
    assert differences(both, "experiments/search", others) == []
    compared(len(bodies) + len(others))


def test_odd_pages(both: BothServers) -> None:
    """Garbage for a page token and sizes of pages out of range."""
    assert differences(both, "runs/search", [{"experiment_ids": ["$experiment"], **body} for body in ODD_PAGES]) == []
    assert differences(both, "experiments/search", ODD_PAGES) == []


@pytest.mark.parametrize("text", ["run_id = ('a')", "run_id LIKE ('a', 'b')", "dataset.name != ('a')"])
def test_a_list_without_in(both: BothServers, text: str) -> None:
    """It is refused with MLflow's code; MLflow shows the error of its database, and a hub says what is wrong."""
    theirs, ours = both.ask("POST", "runs/search", {"experiment_ids": ["$experiment"], "filter": text})
    assert (theirs.status, theirs.body["error_code"]) == (ours.status, ours.body["error_code"]) == (400, "BAD_REQUEST")
    assert "needs IN or NOT IN" in ours.body["message"]


def test_experiment_ids(both: BothServers) -> None:
    """Ids may be integers; what is no id is refused, also an empty one."""
    for ids in ([], ["0", "$experiment"], [7_777_777], ["x"], [""], ["-1"]):
        same(both, "POST", "runs/search", {"experiment_ids": ids})


def test_a_blank_filter(both: BothServers) -> None:
    """It is no filter, and refused."""
    same(both, "POST", "runs/search", {"experiment_ids": ["$experiment"], "filter": "  "})


def test_version_and_health(both: BothServers) -> None:
    """What is in front of a server asks whether it is well, and for its version."""
    same(both, "GET", "/health")
    same(both, "GET", "/version")


def test_what_is_not_here(both: BothServers) -> None:
    """A call of MLflow's that a hub does not have is a 404 in MLflow's form that says what is missing."""
    missing_at = {
        "webhooks": "webhooks",
        "/api/3.0/mlflow/datasets/search": "no store of evaluation datasets",
        "/api/3.0/mlflow/scorers/register": "scorers",
        "/api/3.0/mlflow/traces/metrics": "metrics, correlations or prompts of traces",
        "/api/3.0/mlflow/traces/calculate-filter-correlation": "metrics, correlations or prompts of traces",
        "/api/3.0/mlflow/gateway/secrets/create": "no AI gateway",
        "/api/3.0/mlflow/workspaces": "no workspaces",
        "/ajax-api/2.0/mlflow/runs/create-promptlab-run": "no MLflow web page, which alone makes this call",
        "no-such-call": "no such call",
    }
    for path, missing in missing_at.items():
        answer = both.servers[1].post(path, {"name": "x"})
        assert (answer.status, answer.body["error_code"]) == (404, "ENDPOINT_NOT_FOUND")
        assert missing in answer.body["message"]


def test_files_in_parts(both: BothServers) -> None:
    """An upload in parts and a download from elsewhere are refused in the words that make clients use one request."""
    parts = {"path": "big.bin", "num_parts": 2, "upload_id": "x", "parts": []}
    for call in ("create", "complete", "abort"):
        assert same(both, "POST", f"/api/2.0/mlflow-artifacts/mpu/{call}/$experiment/x", parts).status == 501
    assert same(both, "GET", "/api/2.0/mlflow-artifacts/presigned/$experiment/x/big.bin").status == 501


def test_several_orders(both: BothServers) -> None:
    """Each breaks the ties of the one before; the same one twice is refused, here with 400."""
    for orders in (["tags.team", "metrics.loss DESC"], ["params.opt DESC", "start_time ASC"]):
        same(both, "POST", "runs/search", {"experiment_ids": ["$experiment"], "order_by": orders})
    body = {"experiment_ids": ["$experiment"], "order_by": ["metrics.loss", "metrics.loss"]}
    theirs, ours = both.ask("POST", "runs/search", body)
    assert (theirs.status, ours.status) == (500, 400)
    assert ours.body["message"] == theirs.body["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"experiment_ids": []},
        {},
        {"experiment_ids": ["x"]},
        {"experiment_ids": ["$experiment", "99"]},
        {"experiment_ids": "1"},
        {"experiment_ids": ["$experiment"], "run_view_type": "DELETED_ONLY"},
        {"experiment_ids": ["$experiment"], "run_view_type": "active_only"},
        {"experiment_ids": ["$experiment"], "run_view_type": 3, "max_results": 2},
        {"experiment_ids": ["$experiment"], "page_token": "eyJvZmZzZXQiOiA5OTk5fQ=="},
        {"experiment_ids": ["$experiment"], "run_view_type": "ALL", "order_by": ["metrics.`a/b c`"]},
        {"experiment_ids": ["$experiment"], "max_results": 0},
        {"experiment_ids": ["$experiment"], "max_results": 50001},
        {"experiment_ids": ["$experiment"], "max_results": "x"},
        {"experiment_ids": ["$experiment"], "page_token": "zz"},
        {"experiment_ids": ["$experiment"], "page_token": "e30="},
        {"experiment_ids": ["$experiment"], "page_token": "bm8="},
        {"experiment_ids": ["$experiment"], "filter": 5},
        {"experiment_ids": ["$experiment"], "order_by": "metrics.loss"},
    ],
    ids=str,
)
def test_searches(both: BothServers, body: dict[str, Any]) -> None:
    """Views, sizes and tokens of pages, and what is wrong with them."""
    same(both, "POST", "runs/search", body)


def test_pages(both: BothServers) -> None:
    """Pages follow one another, each run once, with the same tokens."""
    seen, token = [], ""
    while True:
        body = {
            "experiment_ids": ["$experiment"],
            "max_results": 4,
            "order_by": ["metrics.`a/b c`"],
            "page_token": token,
        }
        answer = same(both, "POST", "runs/search", body)
        seen += [run["info"]["run_name"] for run in answer.body["runs"]]
        token = answer.body.get("next_page_token", "")
        if not token:
            break
    assert seen == list(LETTERS[:9])


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("metrics/get-history?run_id=$a&metric_key=a%2Fb+c", 3),
        ("metrics/get-history?run_id=$a&metric_key=a%2Fb+c&max_results=2", 2),
        ("metrics/get-history?run_id=$a&metric_key=a%2Fb+c&max_results=2&page_token=eyJvZmZzZXQiOiAyfQ==", 1),
        ("metrics/get-history?run_uuid=$a&metric_key=loss", 1),
        ("metrics/get-history?run_id=$b&metric_key=loss", 1),
        ("metrics/get-history?run_id=$a&metric_key=loss&max_results=-1", None),
        ("metrics/get-history?metric_key=loss", None),
        ("metrics/get-history-bulk-interval?run_ids=$a&run_ids=$b&metric_key=a%2Fb+c", 6),
        ("metrics/get-history-bulk-interval?run_ids=$a&metric_key=a%2Fb+c&max_results=2", 2),
        ("metrics/get-history-bulk-interval?run_ids=$a&metric_key=a%2Fb+c&max_results=1", 1),
        ("metrics/get-history-bulk-interval?run_ids=$a&metric_key=a%2Fb+c&start_step=1&end_step=2", 2),
        ("metrics/get-history-bulk-interval?run_ids=$a&metric_key=a%2Fb+c&start_step=2&end_step=1", None),
        ("metrics/get-history-bulk-interval?run_ids=$a&metric_key=a%2Fb+c&start_step=2", None),
        ("metrics/get-history-bulk-interval?run_ids=$a&metric_key=loss&max_results=0", None),
        ("metrics/get-history-bulk-interval?run_ids=$a&metric_key=loss&max_results=2501", None),
        ("metrics/get-history-bulk-interval?run_ids=$a", None),
        ("metrics/get-history-bulk-interval?metric_key=loss", None),
        ("metrics/get-history-bulk-interval?metric_key=loss" + "&run_ids=x" * 101, None),
        ("/ajax-api/2.0/mlflow/metrics/get-history-bulk?run_id=$a&metric_key=a%2Fb+c", 3),
        ("/ajax-api/2.0/mlflow/metrics/get-history-bulk?run_id=$a&metric_key=a%2Fb+c&max_results=2", 2),
        ("/ajax-api/2.0/mlflow/metrics/get-history-bulk?run_id=$a", None),
        ("/ajax-api/2.0/mlflow/metrics/get-history-bulk?metric_key=loss", None),
        ("/ajax-api/2.0/mlflow/metrics/get-history-bulk?metric_key=loss" + "&run_id=x" * 101, None),
    ],
)
def test_histories(both: BothServers, path: str, count: int | None) -> None:
    """Whole, by pages, of several runs, of an interval; and what is wrong with a question."""
    answer = same(both, "GET", path)
    assert (len(answer.body["metrics"]) if answer.status == 200 else None) == count


EXPERIMENT_SEARCHES = (
    *({"max_results": 10}, {"max_results": 1}, {"max_results": 0}, {"max_results": 10, "view_type": "ALL"}),
    *({"max_results": 10, "order_by": ["name ASC"]}, {"max_results": 10, "order_by": ["experiment_id DESC"]}),
    *({"max_results": 10, "filter": text} for text in ("name = 'both'", "name LIKE 'bo%'", "tags.owner = 'us'")),
    *(
        {"max_results": 10, "filter": text}
        for text in ("tags.owner IS NULL", "experiment_id = '0'", "creation_time > 0")
    ),
    *({"max_results": 10, "filter": text} for text in ("params.x = '1'", "foo = 'x'", "experiment_id = 'x'")),
    *({"max_results": 10, "order_by": [text]} for text in ("tags.owner", "foo", "name UP")),
    *({"max_results": 10, "filter": text} for text in ("name", "name = both", "name ILIKE 'BO%'", "name IN ('both')")),
    {"max_results": 10, "view_type": "unknown"},
)


@pytest.mark.parametrize("body", EXPERIMENT_SEARCHES, ids=str)
def test_experiment_searches(both: BothServers, body: dict[str, Any]) -> None:
    """Experiments by name, tag, id and time, in any order."""
    same(both, "POST", "experiments/search", body)


@pytest.mark.parametrize(("method", "path", "body"), REFUSED, ids=lambda given: str(given)[:60])
def test_refusals(both: BothServers, method: str, path: str, body: Any) -> None:
    """What MLflow refuses is refused with the same status, code and message."""
    assert same(both, method, path, body).status in (400, 404)


def test_odd_values(both: BothServers, compared: Compared) -> None:
    """Values of other types, odd names and limits are taken and refused alike, and what is kept reads alike."""
    both.make_run("odd", start_time=T + 200)
    for method, path, body in ODD:
        same(both, method, path, body)
    compared(len(ODD))


def test_a_run_with_everything(both: BothServers) -> None:
    """Inputs, outputs, models with their metrics, long values and renamed runs read alike."""
    both.make_run("whole", start_time=T + 100, tags=[{"key": "t", "value": "v"}])
    model = {"experiment_id": "$experiment", "name": "m", "model_type": "agent", "source_run_id": "$whole"}
    both.make("$model", "logged-models", {**model, "params": [{"key": "a", "value": "1"}]}, "model", "info", "model_id")
    measured = {**point("acc", 0.5, 1), "model_id": "$model", "dataset_name": "d", "dataset_digest": "x"}
    used = [{"dataset": {"name": "n", "digest": "d", "source_type": "s", "source": "{}", "schema": "sc"}}]
    for method, path, body in (
        ("POST", "runs/log-batch", {"run_id": "$whole", "metrics": [measured, point("loss", 2.0, 3)]}),
        ("POST", "runs/log-parameter", {"run_id": "$whole", "key": "long", "value": "x" * 7000}),
        ("POST", "runs/set-tag", {"run_id": "$whole", "key": "long", "value": "x" * 9000}),
        ("POST", "runs/set-tag", {"run_id": "$whole", "key": "mlflow.runName", "value": "third"}),
        ("POST", "runs/log-inputs", {"run_id": "$whole", "datasets": used, "models": [{"model_id": "$model"}]}),
        ("POST", "runs/outputs", {"run_id": "$whole", "models": [{"model_id": "$model", "step": 3}]}),
        ("PATCH", "logged-models/$model", {"model_id": "$model", "status": "LOGGED_MODEL_READY"}),
        ("PATCH", "logged-models/$model/tags", {"tags": [{"key": "t", "value": "v"}, {"key": "u", "value": "w"}]}),
        ("DELETE", "logged-models/$model/tags/t", None),
        ("POST", "logged-models/search", {"experiment_ids": ["$experiment"], "filter": "metrics.acc > 0.1"}),
        ("GET", "logged-models/$model", None),
        ("GET", "runs/get?run_id=$whole", None),
        ("POST", "runs/search", {"experiment_ids": ["$experiment"], "filter": "run_name = 'third'"}),
        ("POST", "runs/update", {"run_id": "$whole", "status": 5, "end_time": T + 9, "run_name": "fourth"}),
        ("POST", "runs/update", {"run_id": "$whole", "status": "BOGUS"}),
        ("DELETE", "logged-models/$model", None),
        ("GET", "logged-models/$model", None),
    ):
        same(both, method, path, body)


def test_datasets_of_experiments(both: BothServers) -> None:
    """Each dataset of the runs of the experiments is found once for each context; what is no question is refused."""
    both.make("$used", "experiments/create", {"name": "datasets"}, "experiment_id")
    for run in ("$first", "$second"):
        both.make(run, "runs/create", {"experiment_id": "$used"}, "run", "info", "run_id")
    source = {"source_type": "s", "source": "{}"}
    context = [{"key": "mlflow.data.context", "value": "training"}, {"key": "other", "value": "x"}]
    for run, name, tags in (("$first", "a", context), ("$first", "b", []), ("$second", "a", context)):
        used = [{"dataset": {"name": name, "digest": "d", **source}, "tags": tags}]
        same(both, "POST", "runs/log-inputs", {"run_id": run, "datasets": used})
    path = "/ajax-api/2.0/mlflow/experiments/search-datasets"
    found = same(both, "POST", path, {"experiment_ids": ["$used", "999999"]}).body["dataset_summaries"]
    assert [(each["name"], each.get("context")) for each in found] == [("a", "training"), ("b", None)]
    for asked in ({}, {"experiment_ids": []}, {"experiment_ids": ["1"] * 21}, {"experiment_ids": ["x"]}):
        assert same(both, "POST", path, asked).status == 400
    same(both, "POST", path, {"experiment_ids": ["999999"]})


def test_a_small_file_of_a_run(both: BothServers) -> None:
    """A file that MLflow's page sends to a run is among its artifacts; what is none is refused in the same words."""
    both.make_run("filed", start_time=T + 300)
    path = "/ajax-api/2.0/mlflow/upload-artifact"
    for query in (
        "",
        "?run_uuid=$filed",
        "?run_uuid=$filed&path=",
        "?run_uuid=$filed&path=../x",
        "?run_uuid=$filed&path=x",
    ):
        assert same(both, "POST", f"{path}{query}").status == 400
    for server, ids in zip(both.servers, both.ids, strict=True):
        sent = [server.send("POST", f"{path}?run_uuid={run}&path=a/b.txt", b"text") for run in (ids["$filed"], "none")]
        assert [each.status for each in sent] == [200, 404]
        large = server.send("POST", f"{path}?run_uuid={ids['$filed']}&path=large", bytes(10 * 1024 * 1024 + 1))
        assert (large.status, large.body["message"]) == (400, "Artifact size is too large. Max size is 10MB.")
    assert same(both, "GET", "/get-artifact?run_id=$filed&path=a/b.txt").body == b"text"
    same(both, "GET", "artifacts/list?run_id=$filed")


@pytest.fixture(scope="module")
def models(both: BothServers) -> None:
    """Two models whose metrics are of datasets, at both."""
    for name in ("one", "two"):
        both.make(
            f"${name}", "logged-models", {"experiment_id": "$experiment", "name": name}, "model", "info", "model_id"
        )
    logged = [("$one", "train", "d1", 0.5, 1), ("$one", "test", "d2", 0.1, 2), ("$two", "other", "d3", 0.7, 1)]
    logged += [("$two", "train", "d1", 0.2, 3)]
    metrics = [
        {**point("acc", value, step, T + step), "model_id": model, "dataset_name": dataset, "dataset_digest": digest}
        for model, dataset, digest, value, step in logged
    ]
    same(both, "POST", "runs/log-batch", {"run_id": "$e", "metrics": metrics})
    half = {**point("acc", 1.0), "model_id": "$one", "dataset_name": "train"}
    same(both, "POST", "runs/log-batch", {"run_id": "$e", "metrics": [half]})
    same(both, "POST", "runs/log-metric", {"run_id": "$e", **half})


DATASETS: list[list[dict[str, Any]]] = [
    [{"dataset_name": "train", "dataset_digest": "d1"}],
    [{"dataset_name": "test", "dataset_digest": "d2"}],
    [{"dataset_name": "train"}],
    [{"dataset_name": "train", "dataset_digest": ""}],
    [{"dataset_name": "test"}],
    [{"dataset_name": "none", "dataset_digest": "d1"}],
    [{"dataset_name": "none"}, {"dataset_name": "test", "dataset_digest": "d2"}],
    [],
]


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("text", ["", "metrics.acc > 0.3", "metrics.acc < 0.3 AND name != 'x'", "name = 'two'"])
def test_models_by_dataset(both: BothServers, text: str) -> None:
    """A search for models with datasets finds those with a metric on one of them, which a filter of metrics meets."""
    for datasets in DATASETS:
        body = {"experiment_ids": ["$experiment"], "filter": text, "datasets": datasets}
        theirs, ours = both.ask("POST", "logged-models/search", body)
        assert (ours.status, _names(ours)) == (theirs.status, _names(theirs)), body


def _names(answer: Answer) -> list[str]:
    return [model["info"]["name"] for model in answer.body.get("models", [])]


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("most", [0, 1, None])
def test_pages_of_models(both: BothServers, most: int | None) -> None:
    """A page has as many models as asked for; 0 asks for the default."""
    body = {"experiment_ids": ["$experiment"], "order_by": [{"field_name": "name"}]}
    theirs, ours = both.ask("POST", "logged-models/search", body if most is None else {**body, "max_results": most})
    assert (ours.status, _names(ours)) == (theirs.status, _names(theirs))
    assert ("next_page_token" in ours.body) == ("next_page_token" in theirs.body)


@pytest.mark.usefixtures("models")
def test_orders_of_models(both: BothServers) -> None:
    """Models are ordered by the newest value of a metric, of all datasets or of one; other orders are refused alike."""
    for order in (
        {"field_name": "metrics.acc", "ascending": True},
        {"field_name": "metrics.acc", "ascending": False},
        {"field_name": "metrics.acc", "ascending": False, "dataset_name": "train"},
        {"field_name": "metrics.acc", "dataset_name": "train", "dataset_digest": "d1"},
        {"field_name": "metrics.acc", "dataset_name": "test", "ascending": False},
        {"field_name": "name"},
        {"field_name": "name", "ascending": False},
    ):
        theirs, ours = both.ask(
            "POST", "logged-models/search", {"experiment_ids": ["$experiment"], "order_by": [order]}
        )
        assert (ours.status, _names(ours)) == (theirs.status, _names(theirs)), order
    for name in ("params.a", "bogus", ""):
        body = {"experiment_ids": ["$experiment"], "order_by": [{"field_name": name}]}
        theirs, ours = both.ask("POST", "logged-models/search", body)
        assert ours.status == 400 <= theirs.status
    body = {"experiment_ids": ["$experiment"], "datasets": [{"dataset_digest": "d1"}]}
    same(both, "POST", "logged-models/search", body)


def test_inputs_keep_their_order(both: BothServers) -> None:
    """Datasets of one name are returned in the order in which they were logged; one that is known is not moved."""
    both.make_run("ordered", start_time=T)
    for digests in ("cab", "bdc"):
        found = [{"dataset": {"name": "n", "digest": each, "source_type": "s", "source": "{}"}} for each in digests]
        same(both, "POST", "runs/log-inputs", {"run_id": "$ordered", "datasets": found})
    theirs, ours = both.ask("GET", "runs/get?run_id=$ordered")
    inputs = [
        [each["dataset"]["digest"] for each in answer.body["run"]["inputs"]["dataset_inputs"]]
        for answer in (theirs, ours)
    ]
    assert inputs[1] == list("cabd")
    assert sorted(inputs[0]) == sorted(inputs[1])


@pytest.mark.parametrize("place", ["some/folder", "./x", "file:some/folder", "/absolute", "s3://bucket/x", "file:///a"])
def test_relative_locations(both: BothServers, place: str) -> None:
    """A relative location of artifacts is resolved in the folder in which the server was started."""
    found = []
    for server in both.servers:
        made = server.post("experiments/create", {"name": f"at {place}", "artifact_location": place})
        info = server.get("experiments/get", experiment_id=made.body["experiment_id"])
        found.append(info.body["experiment"]["artifact_location"])
    theirs, ours = found
    relative = place.partition(":")[2] or place
    if "://" in place or place.startswith("/"):
        assert ours == theirs == place
    else:
        ending = relative.removeprefix("./")
        assert theirs.endswith(f"/{ending}")
        assert ours == theirs.replace(theirs.removeprefix("file://").removesuffix(f"/{ending}"), os.getcwd())


def test_a_file_of_a_model(both: BothServers) -> None:
    """A file among the artifacts of a model is sent by the path that MLflow's page uses."""
    both.make("$filed", "logged-models", {"experiment_id": "$experiment", "name": "f"}, "model", "info", "model_id")
    for server, ids in zip(both.servers, both.ids, strict=True):
        place = f"/api/2.0/mlflow-artifacts/artifacts/{ids['$experiment']}/models/{ids['$filed']}/artifacts/a/b.txt"
        assert server.send("PUT", place, b"some text").status == 200
    path = "/ajax-api/2.0/mlflow/logged-models/$filed/artifacts/files"
    assert same(both, "GET", f"{path}?artifact_file_path=a/b.txt").body == b"some text"
    same(both, "GET", path)
    same(both, "GET", f"{path}?artifact_file_path=../x")
    theirs, ours = both.ask("GET", f"{path}?artifact_file_path=none")
    assert ours.status == 404 <= theirs.status
