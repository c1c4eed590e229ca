"""Start and stop the telemetry of a training service, configured by one `telemetry:` section."""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from opentelemetry import trace

import stepscope
from stepscope.extend import collect_meters, text_of
from stepscope.model.errors import ConfigError
from stepscope.training import run_start, tracing
from stepscope.training.service.service_metrics import get_metrics, machine

ENDPOINT = "TUFT_OTLP_ENDPOINT"
DEBUG = "TUFT_OTEL_DEBUG"
_lock = threading.Lock()
_started_here: list[stepscope.Run] = []
"""The run that `init_telemetry` started, until `shutdown_telemetry`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """The `telemetry:` section of a service's settings."""

    enabled: bool = False
    service_name: str = "tuft"
    otlp_endpoint: str | None = None
    """The OTLP/gRPC endpoint; default: TUFT_OTLP_ENDPOINT, else OTLP's own default."""
    resource_attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes added to every record."""


def read_config(source: Any) -> TelemetryConfig:
    """Read and check a config: a YAML file, a mapping with or without the key `telemetry`, or a `TelemetryConfig`.

    ConfigError names the fix.
    """
    where, section = _section(source)
    known = [each.name for each in fields(TelemetryConfig)]
    unknown = [text_of(key) for key in section if key not in known]
    if unknown:
        raise ConfigError(f"{where}: unknown {', '.join(unknown)} under `telemetry:`; known are {', '.join(known)}")
    given = {key: value for key, value in section.items() if value is not None}
    attributes = given.get("resource_attributes", {})
    if not isinstance(given.get("enabled", False), bool) or not isinstance(attributes, Mapping):
        raise ConfigError(f"{where}: `enabled` must be true or false, and `resource_attributes` a mapping")
    name, endpoint = given.get("service_name", "tuft"), given.get("otlp_endpoint", "")
    if not isinstance(name, str) or not name.strip() or not isinstance(endpoint, str):
        raise ConfigError(f"{where}: `service_name` must be a non-empty string, and `otlp_endpoint` a string")
    given["resource_attributes"] = {text_of(key): text_of(value) for key, value in attributes.items()}
    return TelemetryConfig(**given)


def init_telemetry(config: Any = None, **settings: Any) -> stepscope.Run | None:
    """Start recording by a config: a `TelemetryConfig`, a mapping, or the path of a YAML file; None if disabled.

    Joins the current run or starts one; a second call returns the same run, and a call after `shutdown_telemetry`
    starts a new one. Needs no reachable server. Further arguments are those of `stepscope.init`.
    Raises only ConfigError, for an invalid config.
    """
    chosen = TelemetryConfig(enabled=True) if config is None else read_config(config)
    if not chosen.enabled:
        return None
    with _lock:
        before = stepscope.current_run()
        usual = {
            "project": chosen.service_name,
            "service_name": chosen.service_name,
            "resource_attributes": dict(chosen.resource_attributes) or None,
        }
        run = run_start.join_or_start(_sinks_of(chosen), {**usual, **settings})
        if run.status == "disabled":
            return None
        if run is not before:
            _started_here[:] = [run]
        machine().watched = True
        get_metrics()
        collect_meters()
        return run


def shutdown_telemetry(timeout: float | None = None) -> bool:
    """End the run that `init_telemetry` started; a joined run is flushed and continues without the service's gauges.

    A second call does nothing.
    """
    with _lock:
        run = _started_here.pop() if _started_here else None
        done = stepscope.flush(timeout) if run is None else run.finish(timeout=timeout)
        if machine.cache_info().currsize:
            machine().watched = False
        return bool(done)


def get_tracer(name: str = "tuft") -> trace.Tracer:
    """The OpenTelemetry tracer of a module; it writes to the current run, and records nothing without one."""
    return tracing.get_tracer(name)


def _sinks_of(config: TelemetryConfig) -> run_start.Sinks:
    """The sinks of a config: OTLP; none when debugging, since the settings then enable the console."""
    if os.environ.get(DEBUG) == "1":
        return {}
    endpoint = config.otlp_endpoint or os.environ.get(ENDPOINT)
    return run_start.otlp(endpoint, "grpc") if endpoint else {"otlp": {"protocol": "grpc"}}


def _is_file(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def _section(source: Any) -> tuple[str, Mapping[str, Any]]:
    """The name of a config for error messages, and its section `telemetry`."""
    if isinstance(source, TelemetryConfig):
        return "TelemetryConfig", {each.name: getattr(source, each.name) for each in fields(source)}
    where, content = _content(source)
    section = content.get("telemetry", content if "telemetry" not in content and not _is_file(source) else {})
    if section is None:
        section = {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"{where}: expected a mapping under the key `telemetry:`")
    return where, section


def _content(source: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(source, Mapping):
        return "telemetry", source
    if not _is_file(source):
        raise ConfigError(f"telemetry: {type(source).__name__} is not a config: pass a mapping or the path of a file")
    try:
        import yaml

        from stepscope.wire import yaml_text
    except ImportError:
        raise ConfigError(f"{source} needs PyYAML to be read: pip install 'stepscope[yaml]'") from None
    try:
        content = yaml_text.load(Path(source).read_text(encoding="utf-8")) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: not UTF-8
        raise ConfigError(f"{source} cannot be read: {error}") from None
    if not isinstance(content, Mapping):
        raise ConfigError(f"{source}: expected a mapping with the key `telemetry:`")
    return str(source), content
