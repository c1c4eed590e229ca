"""The run that training code starts: wrong arguments cost themselves only, and those of `init` are all welcome."""

from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.journal.layout import is_safe
from stepscope.training import DatadogMetrics, TrainingContext, create_metrics_collector, init_telemetry, setup_tracing
from stepscope.training.service import TelemetryConfig, shutdown_telemetry
from tests.dialects.datadog.sink.dogstatsd_listener import Listener
from tests.training.conftest import broken


@pytest.fixture(autouse=True)
def nobody_ships(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Nothing is sent; the service's run is over after the test."""
    monkeypatch.setenv("STEPSCOPE_SHIPPER", "none")
    yield
    shutdown_telemetry()


def current() -> stepscope.Run:
    """The run that was started."""
    run = stepscope.current_run()
    assert run is not None
    return run


def sinks() -> list[str]:
    """What the current run delivers to."""
    return [each.name for each in current().settings.sinks]


@pytest.mark.parametrize("run_id", ["team/run 1", "team run/1", "x" * 300, "..", "ü", "\ud800", 5])
def test_a_run_id_is_made_safe(agent: Listener, run_id: Any) -> None:
    """The sinks stay, the id is unique, the same one is returned again, and the name is what was given."""
    create_metrics_collector(run_id=run_id)
    first = current()
    assert sinks() == ["datadog"]
    assert is_safe(first.id)
    assert run_id == 5 or (first.name or "")[:2] == str(run_id).encode("utf-8", "replace").decode()[:2]
    stepscope.finish()
    create_metrics_collector(run_id=run_id)
    assert current().id == first.id


def test_two_odd_ids_are_two_runs() -> None:
    """Two invalid ids give two runs, even if their valid characters are the same."""
    found = set()
    for run_id in ("a/b", "a b", "a-b"):
        create_metrics_collector(run_id=run_id)
        found.add(current().id)
        stepscope.finish()
    assert len(found) == 3


def test_only_what_is_wrong_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Each wrong argument and sink is reported; the right ones are used."""
    given: Any = ["console", "nobody-knows-this", {"tinker": {"url": 5}}]
    assert setup_tracing("s", "http://h:4318", exit_timeout=-1, bogus=1, config=5, log_level="DEBUG", sinks=given)
    run = current()
    assert sinks() == ["console", "otlp"]
    assert (run.settings.log_level, run.settings.exit_timeout, run.project) == ("DEBUG", 5.0, "s")
    told = " ".join([*run.outcomes.take_notices(), caplog.text])  # the flusher may have told some already
    for word in ("exit_timeout", "bogus", "config", "nobody-knows-this", "tinker"):
        assert word in told


@pytest.mark.parametrize("odd", [5, {"console": {}, "otlp": {}}, "[no json", [None]])
def test_odd_sinks_cost_themselves(odd: Any) -> None:
    """The one that is wanted is there."""
    assert setup_tracing(sinks=odd)
    assert sinks() == ["otlp"]
    stepscope.finish()
    with pytest.raises(stepscope.ConfigError):
        TrainingContext.initialize({}, sinks=odd)


def test_sinks_that_cannot_be_read() -> None:
    """An iterator of sinks that raises is a ConfigError."""
    assert setup_tracing(sinks=broken())
    assert sinks() == ["otlp"]
    stepscope.finish()
    with pytest.raises(stepscope.ConfigError):
        TrainingContext.initialize({}, sinks=broken())


def test_sinks_are_an_argument_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument `sinks` replaces the setting; requested sinks are added."""
    monkeypatch.setenv("STEPSCOPE_SINKS", "tinker")
    TrainingContext.initialize({}, sinks=["console"])
    assert sinks() == ["console"]
    stepscope.finish()
    TrainingContext.initialize({"otlp_endpoint": "http://h:5000"}, sinks="console")
    assert sinks() == ["console", "mlflow", "mlflow"]
    stepscope.finish()
    assert setup_tracing(sinks=["console"])
    assert sinks() == ["console", "otlp"]
    stepscope.finish()
    assert init_telemetry({"enabled": True}, sinks=["console"])
    assert sinks() == ["console", "otlp"]
    stepscope.finish()
    assert setup_tracing()
    assert sinks() == ["tinker", "otlp"]


def test_a_sink_with_options_stands_above_one_that_is_wanted() -> None:
    """A name alone asks for the one that is wanted."""
    for given in (["otlp"], [{"otlp": {"endpoint": "http://mine:4318"}}]):
        assert setup_tracing(otlp_endpoint="http://wanted:4318", sinks=given)
        (sink,) = current().settings.sinks
        assert sink.config.targets["traces"].url.startswith("http://wanted" if given == ["otlp"] else "http://mine")
        stepscope.finish()


def test_unknown_arguments_of_those_that_raise() -> None:
    """Unknown arguments raise ConfigError, with or without a run."""
    for _ in range(2):
        for call in (TrainingContext.initialize, init_telemetry):
            with pytest.raises(stepscope.ConfigError, match="bogus"):
                call(None, bogus=None)
        stepscope.init(otel=False)


def test_a_joined_run_and_a_wrong_argument(run: stepscope.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an invalid argument, the current run is still joined and keeps its sinks."""
    notices: list[str] = []
    monkeypatch.setattr(run.outcomes, "notice", lambda topic, about, text: notices.append(text))
    assert setup_tracing(bogus=1)
    DatadogMetrics(enabled=True)
    assert current() is run
    told = " ".join(notices)
    assert "bogus" in told
    assert "'otlp'" in told
    assert "'datadog'" in told


@pytest.mark.parametrize(
    ("config", "arguments"),
    [
        ({"otlp_endpoint": "nonsense::"}, {}),
        ({"otlp_endpoint": 5}, {}),
        ({"service_name": 5}, {}),
        ({"service_name": " "}, {}),
        ({}, {"project": 5}),
        ({}, {"run_id": "a/b"}),
        (TelemetryConfig(enabled="yes", resource_attributes=None), {}),  # type: ignore[arg-type]
        (TelemetryConfig(enabled=True, resource_attributes=5), {}),  # type: ignore[arg-type]
    ],
)
def test_a_service_tells_what_is_wrong(config: Any, arguments: dict[str, Any]) -> None:
    """An invalid config raises only ConfigError, and starts nothing."""
    chosen = {"enabled": True, **config} if isinstance(config, dict) else config
    with pytest.raises(stepscope.ConfigError):
        init_telemetry(chosen, **arguments)
    assert stepscope.current_run() is None


def test_a_service_s_config_without_attributes(tmp_path: Path) -> None:
    """`None` means no attributes; a file that is not text is an error."""
    assert init_telemetry(TelemetryConfig(enabled=True, resource_attributes=None))  # type: ignore[arg-type]
    (tmp_path / "bad.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(stepscope.ConfigError):
        init_telemetry(tmp_path / "bad.yaml")
