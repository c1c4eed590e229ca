"""OpenTelemetry's variables mean what the specification says."""

import pytest

from stepscope.dialects.otlp.sink import Otlp
from stepscope.dialects.otlp.sink.variables import OtlpOptions, parse_headers, targets
from stepscope.model.errors import ConfigError

P = "OTEL_EXPORTER_OTLP_"


def urls(env: dict[str, str], **wish: str) -> dict[str, str]:
    """The URL of each signal."""
    return {signal: target.url for signal, target in targets(OtlpOptions(**wish), env).items()}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("env", "traces", "logs"),
    [
        ({}, "http://localhost:4318/v1/traces", "http://localhost:4318/v1/logs"),
        ({P + "ENDPOINT": "http://c:1"}, "http://c:1/v1/traces", "http://c:1/v1/logs"),
        ({P + "ENDPOINT": "http://c:1/"}, "http://c:1/v1/traces", "http://c:1/v1/logs"),
        (
            {P + "ENDPOINT": "https://c/mycollector/"},
            "https://c/mycollector/v1/traces",
            "https://c/mycollector/v1/logs",
        ),
        ({P + "TRACES_ENDPOINT": "http://t:1"}, "http://t:1/", "http://localhost:4318/v1/logs"),
        ({P + "ENDPOINT": "http://c:1", P + "TRACES_ENDPOINT": "http://t:1/x/"}, "http://t:1/x/", "http://c:1/v1/logs"),
        ({P + "PROTOCOL": "grpc"}, "http://localhost:4317", "http://localhost:4317"),
        ({P + "PROTOCOL": "grpc", P + "ENDPOINT": "c:1"}, "https://c:1", "https://c:1"),
        ({P + "PROTOCOL": "grpc", P + "ENDPOINT": "c:1", P + "INSECURE": "true"}, "http://c:1", "http://c:1"),
        ({P + "PROTOCOL": "grpc", P + "ENDPOINT": "https://c:1", P + "INSECURE": "true"}, "https://c:1", "https://c:1"),
    ],
)
def test_endpoints(env: dict[str, str], traces: str, logs: str) -> None:
    """A general endpoint gets the signal's path; a signal's own is used as it is."""
    found = urls(env)
    assert (found["traces"], found["logs"]) == (traces, logs)


def test_options_stand_above_variables() -> None:
    """What is in `sinks:` wins."""
    env = {P + "ENDPOINT": "http://env:1", P + "TRACES_ENDPOINT": "http://t:1", P + "HEADERS": "a=b"}
    assert urls(env, endpoint="http://option:1")["traces"] == "http://option:1/v1/traces"


def test_signal_variables_stand_above_general_ones() -> None:
    """A signal's variable overrides the general one, for every variable."""
    env = {
        P + "HEADERS": "a=general",
        P + "TRACES_HEADERS": "A=own",
        P + "TIMEOUT": "1000",
        P + "TRACES_TIMEOUT": "2500",
        P + "COMPRESSION": "gzip",
        P + "TRACES_COMPRESSION": "none",
        P + "CERTIFICATE": "/ca",
        P + "TRACES_CERTIFICATE": "/traces-ca",
        P + "CLIENT_KEY": "/key",
        P + "CLIENT_CERTIFICATE": "/cert",
        P + "TRACES_PROTOCOL": "http/json",
    }
    found = targets(OtlpOptions(), env)
    traces, logs = found["traces"], found["logs"]
    assert (traces.headers, logs.headers) == ({"a": "own"}, {"a": "general"})
    assert (traces.timeout, logs.timeout) == (2.5, 1.0)
    assert (traces.gzip, logs.gzip) == (False, True)
    assert (traces.tls.certificate, logs.tls.certificate) == ("/traces-ca", "/ca")
    assert (logs.tls.client_key, logs.tls.client_certificate) == ("/key", "/cert")
    assert (traces.protocol, logs.protocol) == ("http/json", "http/protobuf")


def test_headers_are_baggage() -> None:
    """Keys are lower-cased, values unquoted, invalid pairs skipped."""
    found = parse_headers("Authorization=Basic%20a%3Db, x-two = 2 ,broken,,=3")
    assert found == {"authorization": "Basic a=b", "x-two": "2"}


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({P + "PROTOCOL": "carrier-pigeon"}, "http/protobuf"),
        ({P + "TIMEOUT": "soon"}, "milliseconds"),
        ({P + "TIMEOUT": "-1"}, "milliseconds"),
        ({P + "COMPRESSION": "lz4"}, "gzip or none"),
        ({P + "ENDPOINT": "collector:4318"}, "http://HOST:PORT"),
        ({P + "METRICS_TEMPORALITY_PREFERENCE": "sometimes"}, "cumulative, delta or lowmemory"),
    ],
)
def test_wrong_values_name_the_fix(env: dict[str, str], words: str) -> None:
    """An invalid variable is an error with the valid values."""
    with pytest.raises(ConfigError, match=words):
        Otlp.read({}, env)


def test_temporality() -> None:
    """Delta where it is preferred."""
    assert Otlp.read({}, {}).temporality == "cumulative"
    assert Otlp.read({}, {P + "METRICS_TEMPORALITY_PREFERENCE": "DELTA"}).temporality == "delta"
