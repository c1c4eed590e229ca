"""Requests to fuzz receivers with: valid ones of each dialect and damage to them, the same for the same number."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

NOW = 1_750_000_000
RUNS = 20
FRESH = "FRESH"
"""Stands for a text that no other request has."""
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, -(2**70), 1e308, 1e-320, "", "\x00", "\ud800", "é" * 50, "x" * 5000, "NaN", "-inf"),
    *(
        {},
        [],
        [[]],
        {"": {}},
        [None] * 20,
        "../../etc/passwd",
        "'; DROP TABLE runs",
        "${jndi}",
        "\r\nX: y",
        "2026-13-99",
    ),
)
"""Values that no client means."""
LINES = (
    "train.step:{n}|g|#run_id:r{r}",
    "loss:0.5|g|#run_id:r{r},a:b|c:ci-1|e:x|card:low",
    "lat:1:2:3|d|@0.5|#run_id:r{r}\ntok:5|c|T1700000000\nu:m|s",
    "_e{{2,3}}:ab|cde|d:1700000000|t:error|#run_id:r{r}",
    "_sc|check|2|d:1700000000|#run_id:r{r}|m:message|c:id",
)
"""Datagrams of DogStatsD."""


Seed = tuple[str, str, Any]
"""A method, a path and a JSON body."""


class Sent(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@lru_cache(maxsize=200)
def seeds(dialect: str, run: str) -> list[Seed]:
    """Valid requests of a dialect."""
    return {"datadog": _datadog, "mlflow": _mlflow, "tinker": _tinker, "wandb": _wandb, "otlp": _otlp}[dialect](run)


def _datadog(run: str) -> list[Seed]:
    tags = [f"run_id:{run}"]
    first = {"metric": "m", "points": [[NOW, 1.5]], "tags": tags, "type": "count"}
    second = {"metric": "m", "points": [{"timestamp": NOW, "value": 1}], "tags": tags, "type": 3}
    check = {"check": "c", "status": 1, "host_name": "h", "tags": tags, "timestamp": NOW}
    log = {"message": "m", "ddtags": tags[0], "timestamp": NOW * 1000, "n": {"a": [1]}}
    return [
        ("POST", "/api/v1/series", {"series": [first]}),
        ("POST", "/api/v2/series", {"series": [second]}),
        ("POST", "/api/v1/distribution_points", {"series": [{**first, "points": [[NOW, [1, 2]]]}]}),
        ("POST", "/api/v1/events", {"title": "t", "text": "x", "tags": tags, "date_happened": NOW}),
        ("POST", "/api/v1/check_run", [check]),
        ("POST", "/api/v2/logs", [log]),
        ("POST", "/v1/input", log),
        ("GET", "/api/v1/validate", None),
    ]


def _mlflow(run: str) -> list[Seed]:
    metric = {"key": "loss", "value": 0.5, "timestamp": NOW * 1000, "step": 1}
    search = {"experiment_ids": ["0"], "filter": "metrics.loss < 1", "order_by": ["metrics.loss DESC"]}
    place = "/api/2.0/mlflow"
    return [
        ("POST", f"{place}/experiments/create", {"name": run}),
        ("POST", f"{place}/runs/create", {"experiment_id": "0", "start_time": NOW * 1000, "tags": []}),
        ("POST", f"{place}/runs/log-metric", {"run_id": run, **metric}),
        ("POST", f"{place}/runs/log-batch", {"run_id": run, "metrics": [metric], "params": [], "tags": []}),
        ("POST", f"{place}/runs/set-tag", {"run_id": run, "key": "k", "value": "v"}),
        ("POST", f"{place}/runs/search", {**search, "max_results": 5}),
        *_mlflow_others(run, place),
    ] * 5 + _mlflow_histories(run, place)  # reading waits for the store, so it is rare


def _mlflow_histories(run: str, place: str) -> list[Seed]:
    bulk = f"run_ids={run}&metric_keys=loss&run_id={run}&metric_key=loss&max_results=9&start_step=0&end_step=9"
    return [
        ("GET", f"{place}/metrics/get-history?run_id={run}&metric_key=loss", None),
        ("GET", f"{place}/metrics/get-history-bulk-interval?{bulk}", None),
    ]


def _mlflow_others(run: str, place: str) -> list[Seed]:
    """Calls that fewer clients make; `MODEL` is the id of a model that nobody made."""
    data = {"dataset": {"name": "d", "digest": "1", "source_type": "t", "source": "s"}, "tags": [{"key": "k"}]}
    model = f"{place}/logged-models/MODEL"
    files = "/api/2.0/mlflow-artifacts/artifacts"
    trace = {"trace_id": f"tr-{FRESH}", "state": "OK", "request_time": "2026-01-02T03:04:05Z", "tags": {"a": "b"}}
    trace |= {"trace_metadata": {"mlflow.sourceRun": run}, "request_preview": "x", "execution_duration": "1.5s"}
    return [
        ("GET", f"{place}/runs/get?run_id={run}", None),
        ("POST", f"{place}/runs/update", {"run_id": run, "status": "FINISHED", "end_time": NOW * 1000}),
        ("POST", f"{place}/runs/delete", {"run_id": run}),
        ("POST", f"{place}/runs/restore", {"run_id": run}),
        ("POST", f"{place}/runs/log-parameter", {"run_id": run, "key": "k", "value": "v"}),
        ("POST", f"{place}/runs/delete-tag", {"run_id": run, "key": "k"}),
        ("POST", f"{place}/runs/log-inputs", {"run_id": run, "datasets": [data], "models": [{"model_id": "m"}]}),
        ("POST", f"{place}/runs/outputs", {"run_id": run, "models": [{"model_id": "m", "step": 1}]}),
        ("POST", f"{place}/experiments/search", {"filter": "name LIKE 'f%'", "order_by": ["name"], "max_results": 5}),
        ("POST", f"{place}/experiments/set-experiment-tag", {"experiment_id": "0", "key": "k", "value": "v"}),
        ("GET", f"{place}/experiments/get-by-name?experiment_name={run}", None),
        ("POST", f"{place}/logged-models", {"experiment_id": "0", "name": run, "params": [{"key": "k", "value": "v"}]}),
        ("POST", f"{place}/logged-models/search", {"experiment_ids": ["0"], "max_results": 5}),
        ("PATCH", f"{model}/tags", {"tags": [{"key": "k", "value": "v"}]}),
        ("POST", "/api/3.0/mlflow/traces", {"trace": {"trace_info": trace}}),
        ("GET", f"{place}/artifacts/list?run_id={run}&path=a", None),
        ("PUT", f"{files}/0/{run}/artifacts/a.txt", "text"),
        ("GET", f"{files}/0/{run}/artifacts/%2e%2e/a.txt", None),
    ]


def _tinker(run: str) -> list[Seed]:
    event = {"event": "GENERIC_EVENT", "event_id": FRESH, "event_session_index": 1, "event_name": "e"}
    event |= {"severity": "INFO", "timestamp": "2026-01-02T03:04:05Z", "event_data": {"a": 1}}
    return [
        ("POST", "/api/v1/telemetry", {"session_id": run, "platform": "p", "sdk_version": "1", "events": [event]}),
        ("POST", "/api/v1/create_session", {"tags": [], "user_metadata": {"a": "b"}, "sdk_version": "0.36"}),
        ("POST", "/api/v1/session_heartbeat", {"session_id": run}),
        ("POST", "/api/v1/client/config", {"sdk_version": "0.36"}),
    ]


def _wandb(run: str) -> list[Seed]:
    line = '{"loss": 1.5, "n": {"a": NaN}, "i": {"_type": "image-file", "path": "a"}, "_step": 0, "_timestamp": 1e9}'
    machine = '{"system.cpu": 5, "_timestamp": 1e9, "_runtime": 3}'
    files = {
        "wandb-history.jsonl": {"offset": 0, "content": [line, line.replace("0,", "1,")]},
        "wandb-events.jsonl": {"offset": 0, "content": [machine]},
        "output.log": {"offset": 0, "content": ["2026-01-02T03:04:05.6 hello", "ERROR 2026-01-02T03:04:05.6 no"]},
        "wandb-summary.json": {"offset": 0, "content": ['{"best": 1}']},
    }
    mutations = {
        "upsertBucket": {"name": run, "modelName": "p", "config": '{"a": {"value": 1}}', "tags": ["t"], "notes": "n"},
        "createRunFiles": {"runName": run, "projectName": "p", "entityName": "e", "files": ["a.png"]},
        "notifyScriptableRunAlert": {"runName": run, "projectName": "p", "title": "t", "text": "x", "severity": "WARN"},
        "createArtifact": {"projectName": "p", "runName": run, "artifactTypeName": "m", "digest": "d", "clientID": run,
                           "artifactCollectionName": run, "aliases": [{"alias": "best"}], "metadata": "{}"},
        "useArtifact": {"artifactID": "QTox", "projectName": "p", "runName": run, "usedAs": "x"},
        "commitArtifact": {"artifactID": "QTox"},
    }  # fmt: skip
    reading = 'query Q($f: JSON, $n: String) { project(name: "p") { runs(filters: $f, order: $n, first: 5) '
    reading += "{ edges { node { id name state config summaryMetrics } cursor } } run(name: $n) { historyKeys "
    reading += "sampledHistory(specs: [$n]) history(samples: 5) files(first: 2) { edges { node { name url } } } } } }"
    filters = '{"$and": [{"config.a.value": {"$gt": 0}}, {"state": {"$in": ["running"]}}]}'
    streams: list[Seed] = [("POST", f"/files/e/p/{run}/file_stream", {"files": {name: each}, "dropped": 0})
                           for name, each in files.items()]  # fmt: skip
    written = [
        *streams,
        ("POST", f"/files/e/p/{run}/file_stream", {"files": files, "complete": True, "exitcode": 1}),
        *(
            (
                "POST",
                "/graphql",
                {"query": f"mutation M($i: JSON) {{ {name}(input: $i) {{ __typename }} }}", "variables": {"i": given}},
            )
            for name, given in mutations.items()
        ),
        ("POST", "/graphql", {"query": "{ viewer { id entity username } serverInfo { features { name } } }"}),
        ("PUT", f"/files/e/p/{run}/media/a.png", {"content": "x"}),
        ("GET", f"/files/e/p/{run}/media/a.png", None),
        ("PUT", "/wandb/objects/p/d41d8cd98f00b204e9800998ecf8427e", {}),
        ("GET", "/wandb/files/abc/a.png", None),
        ("POST", "/sdk/otel/v1/metrics", {}),
    ]  # reading waits for the store, so it is rare
    return written * 10 + [("POST", "/graphql", {"query": reading, "variables": {"f": filters, "n": run}})]  # fmt: skip


def _otlp(run: str) -> list[Seed]:
    resource = {"attributes": [{"key": "train.run.id", "value": {"stringValue": run}}]}
    step = {"key": "train.step", "value": {"intValue": "1"}}
    point = {"timeUnixNano": str(NOW * 10**9), "asDouble": 1.5, "attributes": [step]}
    metrics = [{"metrics": [{"name": "m", "gauge": {"dataPoints": [point]}}]}]
    logs = [{"logRecords": [{"timeUnixNano": str(NOW * 10**9), "body": {"stringValue": "m"}, "attributes": [step]}]}]
    return [
        ("POST", "/v1/metrics", {"resourceMetrics": [{"resource": resource, "scopeMetrics": metrics}]}),
        ("POST", "/v1/logs", {"resourceLogs": [{"resource": resource, "scopeLogs": logs}]}),
        ("POST", "/v1/traces", {"resourceSpans": [{"resource": resource, "scopeSpans": []}]}),
    ]


DIALECTS = ("datadog", "mlflow", "tinker", "wandb", "otlp")


def request(dialect: str, number: int, runs: Sequence[str]) -> Sent:
    """The request of a number: a valid one, with damage to its values, its bytes, its path or its compression."""
    chance = random.Random(f"{dialect}-{number}")
    method, path, body = chance.choice(seeds(dialect, chance.choice(runs)))
    for _ in range(chance.randrange(4)):
        body = _with_odd_value(chance, body)
    data = b"" if body is None else json.dumps(body).replace(FRESH, f"{number:x}").encode()
    headers = {"content-type": "application/json"}
    if chance.random() < 0.3:
        data = damaged(chance, data)
    if chance.random() < 0.1:
        encoding = chance.choice(("gzip", "deflate", "zstd", "br", "gzip, gzip"))
        headers["content-encoding"] = encoding
        data = {"gzip": gzip.compress, "deflate": zlib.compress}.get(encoding, bytes)(data)
        data = damaged(chance, data) if chance.random() < 0.5 else data
    if chance.random() < 0.05:
        headers["content-type"] = chance.choice(("", "text/plain", "application/x-protobuf", "multipart/form-data"))
    if chance.random() < 0.05:
        path = path + quote(str(chance.choice(ODD)), safe="/?=&", errors="replace")[:200]
    return Sent(method if chance.random() < 0.97 else chance.choice(("GET", "PUT", "DELETE")), path, headers, data)


def datagram(number: int) -> bytes:
    """The datagram of a number."""
    chance = random.Random(f"dogstatsd-{number}")
    text = chance.choice(LINES).format(n=chance.randrange(100), r=chance.randrange(20)).encode()
    return damaged(chance, text) if chance.random() < 0.8 else text


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Change, remove, insert or repeat a few bytes."""
    found = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        start = chance.randrange(len(found) + 1)
        end = min(len(found), start + chance.randrange(9))
        found[start:end] = found[start:end] * 3 if chance.random() < 0.3 else chance.randbytes(chance.randrange(9))
    return bytes(found)


def _with_odd_value(chance: random.Random, value: Any) -> Any:
    """Put an odd value somewhere inside."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {name: inner for name, inner in value.items() if name != key}
        return {**value, key: _with_odd_value(chance, value[key])}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        return [*value[:at], _with_odd_value(chance, value[at]), *value[at + 1 :]]
    return chance.choice(ODD)
