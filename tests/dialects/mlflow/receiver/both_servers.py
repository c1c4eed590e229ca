"""MLflow's own server and a hub, asked the same, and their answers made comparable."""

import json
import math
import re
from typing import Any

from tests.dialects.mlflow.receiver.rest_calls import Answer, RestCalls
from tests.waiting import wait_until

LARGEST = 1.7976931348623157e308
_TIMES = (
    *("creation_time", "last_update_time", "creation_timestamp_ms", "last_updated_timestamp_ms"),
    *("creation_timestamp", "last_updated_timestamp"),
)
_EXPERIMENT = re.compile(r"mlflow-artifacts:/\d+")
_SETS = re.compile(r"(Valid keys are|Only the|not one of|Error:|\(sqlite3\.).*", re.DOTALL)
"""What follows is a set of Python in an order that changes, or the words of a database."""


class BothServers:
    """Two servers with the same experiments and runs under names of ours: `$run` is the id that a server gave it."""

    def __init__(self, theirs: RestCalls, ours: RestCalls) -> None:
        self.servers = (theirs, ours)
        self.ids: tuple[dict[str, str], dict[str, str]] = ({}, {})

    def reconnect(self) -> "BothServers":
        """Open new connections: a server closes one that was idle for some seconds."""
        theirs, ours = self.servers
        self.servers = (RestCalls(theirs.port), RestCalls(ours.port))
        return self

    def ask(self, method: str, path: str, body: Any = None) -> list[Answer]:
        """Send one request to both, with the ids of each, and return both answers in the same words."""
        found = []
        for server, ids in zip(self.servers, self.ids, strict=True):
            data = None if body is None else _filled(json.dumps(body), ids).encode()
            answer = _answered(server, method, _filled(path, ids), data)
            found.append(Answer(answer.status, comparable(answer.body, {id: name for name, id in ids.items()})))
        return found

    def make(self, name: str, path: str, body: Any, *inside: str | int) -> None:
        """Create something at both, and call what is inside their answers by a name."""
        for server, ids in zip(self.servers, self.ids, strict=True):
            answer = server.post(path, json.loads(_filled(json.dumps(body), ids)))
            assert answer.status == 200, answer
            made = answer.body
            for key in inside:
                made = made[key]
            ids[name] = str(made)

    def same(self, method: str, path: str, body: Any = None) -> Answer:
        """Ask both, compare, and return the answer."""
        theirs, ours = self.ask(method, path, body)
        assert ours == theirs, (method, path, body, theirs, ours)
        return ours

    def make_run(self, name: str, **fields: Any) -> None:
        """Create a run at both."""
        body = {"experiment_id": "$experiment", "run_name": name, **fields}
        self.make(f"${name}", "runs/create", body, "run", "info", "run_id")


def _answered(server: RestCalls, method: str, path: str, data: bytes | None) -> Answer:
    """Ask until the answer is not that a store is behind, as clients do: on a busy machine a commit takes long."""
    found: list[Answer] = []

    def is_final() -> bool:
        found[:] = [server.send(method, path, data)]
        body = found[0].body
        return not (isinstance(body, dict) and str(body.get("message", "")).startswith("the store is behind"))

    wait_until(is_final, 300)
    return found[0]


def _filled(text: str, ids: dict[str, str]) -> str:
    for name in sorted(ids, key=len, reverse=True):
        text = text.replace(name, ids[name])
    return text


def comparable(value: Any, names: dict[str, str]) -> Any:
    """Copy an answer without what differs between two servers by right: ids, times, the order of pairs, infinity."""
    if isinstance(value, dict):
        return {
            key: "TIME" if key in _TIMES else comparable(inner, names)
            for key, inner in value.items()
            if key not in ("effective_trace_archival_retention",)
        }
    if isinstance(value, list):
        found = [comparable(inner, names) for inner in value]
        pairs = all(isinstance(each, dict) and "key" in each and "timestamp" not in each for each in found)
        latest = all(isinstance(each, dict) and "key" in each for each in found)
        keys = [each["key"] for each in found] if latest else []
        return sorted(found, key=lambda each: str(each["key"])) if pairs or len(set(keys)) == len(keys) > 1 else found
    if isinstance(value, str):
        for id in sorted(names, key=len, reverse=True):
            value = value.replace(id, names[id]) if len(id) > 8 or value == id else value
        return _SETS.sub(r"\1", _EXPERIMENT.sub("mlflow-artifacts:/", value))
    if isinstance(value, float) and (math.isnan(value) or abs(value) == LARGEST):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
