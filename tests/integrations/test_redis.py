"""A real Redis server: commands, pipelines and failures of sync and asyncio clients are spans without keys."""

import asyncio
from pathlib import Path

import pytest

import stepscope
from stepscope.integrations.redis import instrument
from stepscope.model.records import Histogram, Metric, Span
from tests.integrations.conftest import Read
from tests.training.service_peers import redis_url as redis_url

redis = pytest.importorskip("redis", reason="redis is not installed")


@pytest.fixture(autouse=True)
def current(place: Path) -> None:
    """A run that is the process's OpenTelemetry provider."""
    stepscope.init(project="redis", shipper="none")


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
    points = [each for each in read(Metric) if "tuft.redis.operation.duration" in each.values]
    assert {each.attrs["operation"] for each in points} == {"SET", "GET", "SCAN", "LPUSH", "PIPELINE"}
    assert all(isinstance(each.values["tuft.redis.operation.duration"], Histogram) for each in points)


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
