"""Calls of MLflow's REST API, by hand, at a hub or at MLflow's own server."""

import http.client
import json
import select
from typing import Any, NamedTuple
from urllib.parse import urlencode

API = "/api/2.0/mlflow/"


class Answer(NamedTuple):
    """A status and a body, read as JSON where it is some."""

    status: int
    body: Any


class RestCalls:
    """One server, spoken to on one connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send a request; a path without a leading slash is below the API."""
        place = path if path.startswith("/") else API + path
        named = {"content-type": "application/json"} | {key.replace("_", "-"): text for key, text in headers.items()}
        self._leave_what_was_closed()
        try:
            self._connection.request(method, place, body, named)
            answer = self._connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()  # else all that is sent later fails too
            raise
        try:
            return Answer(answer.status, json.loads(data))
        except ValueError:
            return Answer(answer.status, data)

    def _leave_what_was_closed(self) -> None:
        """Connect anew after a server has closed the connection because nothing was asked for some seconds."""
        if self._connection.sock:
            closed = select.poll()  # `select` takes no descriptor beyond 1,023
            closed.register(self._connection.sock, select.POLLIN)
            if closed.poll(0):
                self._connection.close()

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        """Send JSON."""
        return self.send("POST", path, json.dumps(body).encode(), **headers)

    def get(self, path: str, /, **query: Any) -> Answer:
        """Ask with a query; a list is a field that comes several times."""
        return self.send("GET", f"{path}?{urlencode(query, doseq=True)}" if query else path)

    def create_run(self, experiment: str = "0", **fields: Any) -> str:
        """Create a run and return its id."""
        made = self.post("runs/create", {"experiment_id": experiment, "start_time": 1_700_000_000_000, **fields})
        return str(made.body["run"]["info"]["run_id"])
