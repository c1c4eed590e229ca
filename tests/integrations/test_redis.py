"""A real Redis server: commands, pipelines and failures of sync and asyncio clients are spans without keys."""

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import stepscope
from stepscope.integrations.redis import DURATION, instrument
from stepscope.model.records import Histogram, Metric, Span
from stepscope.testing import read_run
from stepscope.training.service.service_metrics import get_metrics
from tests.integrations.conftest import Read
from tests.training.service_peers import redis_url as redis_url

redis = pytest.importorskip("redis", reason="redis is not installed")


class Quick:
    """A client that answers at once."""

    def execute_command(self, *words: str) -> str:
        """Answer."""
        return "OK"

    def pipeline(self) -> "Quick":
        """Answer, too."""
        return self


@pytest.fixture
def current(place: Path) -> None:
    """A run that is the process's OpenTelemetry provider."""
    stepscope.init(project="redis", shipper="none")


@pytest.mark.usefixtures("current")
def test_a_client(redis_url: str, read: Read) -> None:
    """Each command is a span and a duration; a pipeline is one; a command that fails shows ERROR."""
    client = instrument(instrument(redis.Redis.from_url(redis_url)))
    client.set("secret-key", "secret-value")
    assert client.get("secret-key") == b"secret-value"
    assert len(list(client.scan_iter())) == 1
    with pytest.raises(redis.ResponseError):
        client.lpush("secret-key", 1)
    with client.pipeline() as pipeline:
        pipeline.delete("secret-key").execute()
    client.close()
    stepscope.finish()
    spans = {each.name: each for each in read(Span) if each.name.startswith("redis.")}
    assert set(spans) == {"redis.SET", "redis.GET", "redis.SCAN", "redis.LPUSH", "redis.PIPELINE"}
    assert spans["redis.SET"].attrs == {"db.system": "redis", "db.operation": "SET"}
    assert [name for name, each in spans.items() if each.status == 2] == ["redis.LPUSH"]
    assert "secret" not in str([each.attrs for each in spans.values()])
    points = [each for each in read(Metric) if DURATION in each.values]
    assert {each.attrs["operation"] for each in points} == {"SET", "GET", "SCAN", "LPUSH", "PIPELINE"}
    assert all(isinstance(each.values[DURATION], Histogram) for each in points)


@pytest.mark.usefixtures("current")
def test_an_asyncio_client(redis_url: str, read: Read) -> None:
    """The same, awaited."""

    async def visit() -> None:
        client = instrument(redis.asyncio.Redis.from_url(redis_url))
        await client.set("a", 1)
        async with client.pipeline() as pipeline:
            await pipeline.delete("a").execute()
        await client.aclose()

    asyncio.run(visit())
    names = [each.name for each in read(Span)]
    assert [name for name in names if name.startswith("redis.")] == ["redis.SET", "redis.PIPELINE"]


@pytest.mark.usefixtures("current")
def test_durations_are_one_series(read: Read) -> None:
    """The service's instrument of that name is the one that clients write to."""
    client = instrument(Quick())
    client.execute_command("GET", "k")
    get_metrics().redis_operation_duration.record(0.5, {"operation": "GET"})
    stepscope.finish()
    (point,) = [each for each in read(Metric) if DURATION in each.values]
    assert point.values[DURATION].count == 2


def test_each_run_has_its_own(place: Path) -> None:
    """A client that was instrumented writes to the run that is current, one without OpenTelemetry too."""
    client = instrument(Quick())
    runs = []
    for otel in (True, False, True):
        runs.append(stepscope.init(project="redis", shipper="none", otel=otel))
        client.execute_command("GET", "k")
        stepscope.finish()
    for run in runs:
        found = list(read_run(place, run.id))
        (point,) = [each for each in found if isinstance(each, Metric) and DURATION in each.values]
        assert point.values[DURATION].count == 1
        assert [each.name for each in found if isinstance(each, Span)] == ["redis.GET", "train.run"]


def test_beside_a_foreign_provider(place: Path) -> None:
    """Spans and durations are recorded even if another library set OpenTelemetry's providers."""
    text = """
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.trace import TracerProvider
        trace.set_tracer_provider(TracerProvider()), metrics.set_meter_provider(MeterProvider())
        import stepscope
        from stepscope.integrations.redis import DURATION, instrument
        from tests.integrations.test_redis import Quick
        with stepscope.init(run_id="mine", shipper="none"):
            instrument(Quick()).execute_command("GET", "k")
    """
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    subprocess.run([sys.executable, "-c", textwrap.dedent(text)], check=True, env=environment)
    found = list(read_run(place, "mine"))
    assert "redis.GET" in [each.name for each in found if isinstance(each, Span)]
    assert [each for each in found if isinstance(each, Metric) and DURATION in each.values]
