"""OpenTelemetry's OTEL_EXPORTER_OTLP_* variables with the meaning the specification gives them, signal by signal."""

from collections.abc import Mapping
from typing import Literal
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from stepscope.extend.sink import Tls, check_address, sendable
from stepscope.model.errors import ConfigError
from stepscope.wire.otlp.names import SIGNALS, Signal

Protocol = Literal["http/protobuf", "http/json", "grpc"]
PROTOCOLS: tuple[Protocol, ...] = ("http/protobuf", "http/json", "grpc")
DEFAULT_SECONDS = 10.0
_PORTS = {"grpc": 4317}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The target of one signal and the options of the connection."""

    protocol: Protocol
    url: str
    headers: dict[str, str]
    timeout: float
    gzip: bool
    tls: Tls


class OtlpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the connection in `sinks:`; each overrides its variables."""

    endpoint: str | None = None
    protocol: str | None = None
    headers: dict[str, str] | None = None
    timeout: float | None = None
    compression: str | None = None
    certificate: str | None = None
    client_key: str | None = None
    client_certificate: str | None = None
    insecure: bool | None = None


def targets(options: OtlpOptions, env: Mapping[str, str]) -> dict[Signal, Target]:
    """Find the target of each signal: the option, the signal's variable, the general one, the default."""
    return {signal: _target(signal, options, env) for signal in SIGNALS}


def _target(signal: Signal, options: OtlpOptions, env: Mapping[str, str]) -> Target:
    def variable(name: str) -> str | None:
        return env.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}") or env.get(f"OTEL_EXPORTER_OTLP_{name}") or None

    protocol = options.protocol or variable("PROTOCOL") or "http/protobuf"
    if protocol not in PROTOCOLS:
        raise ConfigError(f"sinks: otlp: protocol {protocol!r} is not known; use {', '.join(PROTOCOLS)}")
    headers = options.headers if options.headers is not None else parse_headers(variable("HEADERS") or "")
    compression = options.compression or variable("COMPRESSION") or "none"
    if compression not in ("gzip", "none"):
        raise ConfigError(f"sinks: otlp: compression {compression!r} is not known; use gzip or none")
    insecure = options.insecure if options.insecure is not None else (variable("INSECURE") or "").lower() == "true"
    return Target(
        protocol=protocol,
        url=_url(signal, options, env, protocol, insecure),
        headers={key.lower(): sendable(f"sinks: otlp: header {key}", value) or "" for key, value in headers.items()},
        timeout=options.timeout if options.timeout is not None else _seconds(variable("TIMEOUT")),
        gzip=compression == "gzip",
        tls=Tls(
            certificate=options.certificate or variable("CERTIFICATE"),
            client_key=options.client_key or variable("CLIENT_KEY"),
            client_certificate=options.client_certificate or variable("CLIENT_CERTIFICATE"),
        ),
    )


def _url(signal: Signal, options: OtlpOptions, env: Mapping[str, str], protocol: str, insecure: bool) -> str:
    """Build a signal's URL: a general endpoint gets the signal's path, a signal's own is used as it is."""
    specific = env.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT") if options.endpoint is None else None
    general = options.endpoint or env.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    url = specific or general or f"http://localhost:{_PORTS.get(protocol, 4318)}"
    if protocol == "grpc" and "://" not in url:
        url = f"{'http' if insecure else 'https'}://{url}"
    check_address("sinks: otlp: endpoint", url)
    parts = urlsplit(url)
    if protocol == "grpc":
        return urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    path = parts.path or "/"
    if not specific:
        path = f"{path.rstrip('/')}/v1/{signal}"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def parse_headers(text: str) -> dict[str, str]:
    """Read `key=value,key=value` with %-escapes; parts that are not pairs are skipped, as the specification says."""
    pairs = [part.partition("=") for part in text.split(",")]
    return {
        unquote(key.strip()).lower(): unquote(value.strip()) for key, equals, value in pairs if equals and key.strip()
    }


def _seconds(text: str | None) -> float:
    """Read a timeout: milliseconds in the specification, whatever other clients make of it."""
    if text is None:
        return DEFAULT_SECONDS
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ConfigError(f"OTEL_EXPORTER_OTLP_TIMEOUT={text!r} is not a number of milliseconds above 0")
    return number / 1000
