"""Configs of a trainer: of any make, nested, with parts that cannot be copied or read."""

import argparse
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import stepscope
from stepscope.model.records import Event, Metric
from stepscope.training import TrainingContext
from tests.training.conftest import Read

SECTION = {"otlp_endpoint": "http://127.0.0.1:9", "run_name": "nested"}


@dataclass
class Logging:
    """A section."""

    otlp_endpoint: str = SECTION["otlp_endpoint"]
    run_name: str = "nested"


@dataclass(slots=True)
class WithLock:
    """A config with a part that cannot be copied."""

    lock: Any = field(default_factory=threading.Lock)
    logging: Logging = field(default_factory=Logging)


class Struct(msgspec.Struct):
    """A config of msgspec."""

    lr: float
    logging: Any


class Plain:
    """A section of no make at all."""

    def __init__(self) -> None:
        self.otlp_endpoint, self.run_name = SECTION.values()


def pydantic_model() -> Any:
    """A config of pydantic; skips where it is not installed."""
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")
    inner = pydantic.create_model("Inner", otlp_endpoint=(str, SECTION["otlp_endpoint"]), run_name=(str, "nested"))
    return pydantic.create_model("Outer", lr=(float, 1.0), logging=(inner, inner()))()


@pytest.fixture(autouse=True)
def nobody_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent."""
    monkeypatch.setenv("STEPSCOPE_SHIPPER", "none")


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"logging": SECTION},
        lambda: argparse.Namespace(lr=1, logging=argparse.Namespace(**SECTION)),
        lambda: SimpleNamespace(telemetry=SECTION),
        WithLock,
        lambda: Struct(1.0, Logging()),
        lambda: {"logging": Plain()},
        pydantic_model,
    ],
)
def test_settings_in_a_section_of_any_make(make: Any) -> None:
    """Settings in a section of any type are found, and the run has the whole config."""
    with TrainingContext.initialize(make()) as context:
        assert context.run.name == "nested"
        assert {each.name for each in context.run.settings.sinks} == {"mlflow"}


def test_nested_parts_are_in_the_run_s_config(read: Read) -> None:
    """Nested configs of any type become mappings; a recursive one is cut at a depth."""
    config: dict[str, Any] = {"optimizer": argparse.Namespace(lr=0.1, schedule=Struct(2.0, None))}
    config["again"] = config
    with TrainingContext.initialize(config):
        (started,) = [each for each in read(Event) if "config" in each.attrs]
    assert started.attrs["config"]["optimizer"] == {"lr": 0.1, "schedule": {"lr": 2.0, "logging": None}}


def test_a_config_that_cannot_be_read() -> None:
    """An unreadable config raises ConfigError; an unreadable part becomes a string."""

    class Broken(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("broken")

    with pytest.raises(stepscope.ConfigError, match="broken"):
        TrainingContext.initialize(Broken(a=1))
    with TrainingContext.initialize({"logging": Broken(a=1), "run_name": "top"}) as context:
        assert context.run.name == "top"
        assert context.run.config["logging"] == "{'a': 1}"


def test_labels_as_text() -> None:
    """Labels in a string are parsed like the variable; any other type is an error."""
    with TrainingContext.initialize({"metric_labels": "a=B,c=D"}) as context:
        assert [context.registry.label(key) for key in "ac"] == ["B", "D"]
    with TrainingContext.initialize({"logging": argparse.Namespace(metric_labels={"a": "B"})}) as context:
        assert context.registry.label("a") == "B"
    with pytest.raises(stepscope.ConfigError, match="metric_labels"):
        TrainingContext.initialize({"metric_labels": 5})


def test_the_message_may_be_a_field(read: Read) -> None:
    """The message may be a field, like the category, in the mapping or as an argument."""
    with TrainingContext.initialize() as context:
        context.emit("TRAINER", {"message": "startup", "step": 1, "lr": 3})
        context.emit("TRAINER", message="startup", step=1, lr=3)
        context.emit("TRAINER", {"message": 4.0, "step": 1})
        assert [each.values for each in read(Metric)] == [{"message": 4.0}]
        assert [each.name for each in read(Event)].count("startup") == 2
