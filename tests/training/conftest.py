"""A home for runs that training code starts by itself, and what those runs recorded."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.model import names
from stepscope.model.records import Metric, Record
from stepscope.testing import read_run
from stepscope.training.collector.datadog import get_metrics_client
from tests.dialects.datadog.sink.dogstatsd_listener import Line, Listener

Read = Callable[..., list[Any]]
Until = Callable[..., None]


class Mute(Exception):
    """An error, or any other object, that raises when it is asked for its text or its status."""

    def __str__(self) -> str:
        raise RuntimeError("mute")

    __repr__ = __str__

    @property
    def status_code(self) -> int:
        """Raise."""
        raise RuntimeError("mute")


def broken() -> Iterator[str]:
    """Give one text and raise."""
    yield "a:1"
    raise RuntimeError("broken")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home in which code that knows nothing of homes starts its runs; the run is over after the test."""
    for name in ("DATADOG_ENABLED", "DATADOG_API_KEY", "DD_API_KEY", "DD_AGENT_HOST", "STEPSCOPE_SINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPSCOPE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STEPSCOPE_PROBES", "0")
    monkeypatch.setenv("STEPSCOPE_SHIPPER", "thread")
    get_metrics_client.cache_clear()
    yield tmp_path / "home"
    stepscope.finish()


@pytest.fixture
def run(place: Path) -> stepscope.Run:
    """A current run with no sinks."""
    return stepscope.init(project="test", otel=False)


@pytest.fixture
def read(place: Path) -> Read:
    """What the current run has recorded so far, of the given types; Stepscope's own counters are left out."""

    def read_back(*kinds: type) -> list[Any]:
        run = stepscope.current_run()
        assert run is not None
        assert run.flush(300)
        return of_user(read_run(place, run.id), *kinds)

    return read_back


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """An Agent's socket, and the environment of the document: Datadog enabled."""
    pytest.importorskip("datadog", reason="Datadog's client, which opens the socket, is not installed")
    listener = Listener()
    monkeypatch.setenv("DATADOG_ENABLED", "true")
    monkeypatch.setenv("DD_DOGSTATSD_URL", f"udp://127.0.0.1:{listener.port}")
    yield listener
    stepscope.finish()
    listener.stop()


def of_user(records: list[Record], *kinds: type) -> list[Any]:
    """Records of some types without Stepscope's own: its counters, and the span of the whole run."""
    found = (record for record in records if not kinds or isinstance(record, kinds))
    named = (each for each in found if getattr(each, "name", None) != names.SPAN_RUN)
    return [each for each in named if getattr(each, "category", None) != "stepscope"]


def by_key(records: list[Metric]) -> dict[str, Metric]:
    """Records by each of their keys."""
    return {key: record for record in records for key, _ in record.points()}


def arrived(agent: Listener, until: Until, enough: Callable[[list[Line]], object]) -> dict[str, Line]:
    """What an Agent got, by name, once it is enough."""
    until(lambda: enough(agent.metrics()))
    return {line.name: line for line in agent.metrics()}
