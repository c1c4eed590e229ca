"""A FastAPI app: its requests are spans and metrics of the run that is current, with OpenTelemetry or without."""

from pathlib import Path

import pytest

import stepscope
from stepscope.integrations.fastapi import instrument, uninstrument
from stepscope.model.records import Metric, Span
from stepscope.testing import read_run

fastapi = pytest.importorskip("fastapi", reason="needs fastapi")
testclient = pytest.importorskip("fastapi.testclient", reason="needs httpx")
pytest.importorskip("opentelemetry.instrumentation.fastapi", reason="needs opentelemetry-instrumentation-fastapi")


@pytest.mark.parametrize("otel", [True, False])
def test_requests(place: Path, otel: bool) -> None:
    """Each is a span, but for those that are excluded, and counts in the server's metrics."""
    app = fastapi.FastAPI()
    app.get("/sum")(lambda: 3)
    app.get("/health")(lambda: "fine")
    instrument(app, excluded_urls=["health"])
    with stepscope.init(shipper="none", otel=otel) as run:
        client = testclient.TestClient(app)
        assert [client.get("/sum").json(), client.get("/health").json()] == [3, "fine"]
    uninstrument(app)
    found = list(read_run(place, run.id))
    assert [each.name for each in found if isinstance(each, Span)] == ["GET /sum", "train.run"]
    names = {name for each in found if isinstance(each, Metric) for name in each.values}
    assert {name for name in names if name.startswith("http.server.")}
