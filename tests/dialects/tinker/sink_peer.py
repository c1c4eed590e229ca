"""A server that reads telemetry with the unmodified types of Tinker's own client."""

from importlib import import_module
from typing import Any

from tests.sinks.servers import Received, Reply, Server


class TinkerPeer(Server):
    """Accepts what the strict type of the client's own requests accepts, 422 for the rest."""

    def __init__(self) -> None:
        super().__init__()
        self._types: Any = import_module("tinker.types")
        self.instead: list[Reply] = []
        self.told: list[Any] = []
        self.most = 10**9
        self.decide = self._decide

    def busy(self, seconds: float) -> None:
        """Say that there are too many requests."""
        self.instead.append(Reply(429, {"Retry-After": str(int(seconds))}, b'{"detail": "slow down"}'))

    def refuse(self) -> None:
        """Say that the body is bad."""
        self.instead.append(Reply(422, {}, b'{"detail": "not a valid UUID"}'))

    def events(self) -> list[Any]:
        """All accepted events."""
        return [event for request in self.told for event in request.events]

    def steps(self) -> list[int]:
        """The steps of the metrics among them."""
        return [each.event_data["step"] for each in self.events() if getattr(each, "event_name", "") == "metric"]

    def _decide(self, got: Received) -> Reply:
        if self.instead:
            return self.instead.pop(0)
        if got.path != "/api/v1/telemetry" or got.headers["content-type"] != "application/json":
            return Reply(404)
        if len(got.body) > self.most:
            return Reply(413)
        try:
            request = self._types.TelemetrySendRequest.model_validate_json(got.body)
        except ValueError as error:
            return Reply(422, {}, str(error).encode())
        self.told.append(request)
        return Reply(body=self._types.TelemetryResponse(status="accepted").model_dump_json().encode())
