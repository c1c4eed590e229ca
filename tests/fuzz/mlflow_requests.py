"""Requests of MLflow's API made of noise: none is answered with a 5xx, and a good one after them is taken."""

import json
import random
from typing import Any

from tests.dialects.mlflow.receiver.rest_calls import RestCalls

CALLS = (
    *("experiments/create", "experiments/search", "experiments/update", "experiments/set-experiment-tag"),
    *("experiments/search-datasets", "upload-artifact"),
    *("runs/create", "runs/update", "runs/search", "runs/log-metric", "runs/log-batch", "runs/log-parameter"),
    *("runs/set-tag", "runs/delete-tag", "runs/log-inputs", "runs/outputs", "runs/log-model", "runs/delete"),
    *("logged-models", "logged-models/search", "logged-models/x/params"),
)
QUERIES = (
    *("experiments/get", "experiments/get-by-name", "runs/get", "metrics/get-history", "artifacts/list"),
    *("metrics/get-history-bulk", "metrics/get-history-bulk-interval", "/api/2.0/mlflow-artifacts/artifacts"),
)
NAMES = (
    *("run_id", "run_uuid", "experiment_id", "experiment_ids", "name", "new_name", "key", "value", "timestamp", "step"),
    *("metrics", "params", "tags", "datasets", "models", "filter", "order_by", "max_results", "page_token", "status"),
    *("end_time", "run_name", "metric_key", "run_ids", "start_step", "end_step", "path", "model_json", "run_view_type"),
)
TEXTS = (
    *("", "a", "a/b", "../x", "0", "-1", "NaN", "Infinity", "x" * 9000, "\ud800", "\0", "é" * 200, "RUNNING", "ALL"),
    *(
        "metrics.a > 1",
        "params.`a` LIKE '%",
        "tags.a IN ('x')",
        "((((",
        "'",
        "a' OR '1'='1",
        "metrics.a DESC",
        "eyJhIjoxfQ==",
    ),
)
NUMBERS = (0, 1, -1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, 0.5, 1e308, float("nan"), float("inf"), True, None)


class Noise:
    """Makes requests from a seed."""

    def __init__(self, seed: int, runs: list[str]) -> None:
        self._random = random.Random(seed)
        self._runs = runs

    def value(self, depth: int = 0) -> Any:
        """A value of any kind, the ids of real runs among them."""
        kind = self._random.randrange(8 if depth < 3 else 5)
        if kind < 2:
            return self._random.choice(TEXTS)
        if kind < 4:
            return self._random.choice(NUMBERS)
        if kind == 4:
            return self._random.choice(self._runs)
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self._random.randrange(4))]
        return self.fields(depth + 1)

    def fields(self, depth: int = 0) -> dict[str, Any]:
        """An object with fields of the API."""
        return {self._random.choice(NAMES): self.value(depth) for _ in range(self._random.randrange(6))}

    def send(self, server: RestCalls) -> int:
        """Send one request and return the status."""
        if self._random.random() < 0.3:
            query = {name: str(value)[:300].encode("utf-8", "replace") for name, value in self.fields().items()}
            return server.get(self._random.choice(QUERIES), **query).status
        body = {"run_id": self._random.choice(self._runs), **self.fields()}
        data = json.dumps(body).encode()
        if self._random.random() < 0.2:
            at = self._random.randrange(len(data))
            data = data[:at] + self._random.randbytes(2) + data[at + 1 :]
        return server.send("POST", self._random.choice(CALLS), data).status
