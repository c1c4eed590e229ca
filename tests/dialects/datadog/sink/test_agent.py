"""The Datadog sink's options and variables: transport, destination, and errors."""

from typing import Any

import pytest

from stepscope.cli.probe import probe
from stepscope.dialects.datadog.sink import Datadog
from stepscope.dialects.datadog.sink.parts import DogStatsdSink, IntakeSink
from stepscope.model.errors import ConfigError
from tests.dialects.datadog.sink.dogstatsd_listener import Listener
from tests.dialects.datadog.sink.intake_peer import KEY, IntakePeer
from tests.sinks.faults import refused


@pytest.mark.parametrize(
    ("options", "env", "place"),
    [
        ({}, {}, "udp://localhost:8125"),
        ({}, {"DD_AGENT_HOST": "agent", "DD_DOGSTATSD_PORT": "9125"}, "udp://agent:9125"),
        ({}, {"DD_DOGSTATSD_URL": "udp://a:1", "DD_AGENT_HOST": "b"}, "udp://a:1"),
        ({}, {"DD_DOGSTATSD_URL": "unixstream:///x.sock"}, "unixstream:///x.sock"),
        ({}, {"DD_DOGSTATSD_SOCKET": "/var/run/dsd.sock"}, "unix:///var/run/dsd.sock"),
        ({"host": "c"}, {"DD_DOGSTATSD_URL": "udp://a:1"}, "udp://c:8125"),
        ({}, {"DD_API_KEY": "k"}, "https://api.datadoghq.com"),
        ({}, {"DATADOG_API_KEY": "k", "DD_SITE": "datadoghq.eu"}, "https://api.datadoghq.eu"),
        ({}, {"DD_API_KEY": "k", "DD_AGENT_HOST": "agent"}, "udp://agent:8125"),
        ({"transport": "http"}, {"DD_API_KEY": "k", "DD_AGENT_HOST": "agent"}, "https://api.datadoghq.com"),
        ({"url": "http://proxy:1"}, {"DD_API_KEY": "k"}, "http://proxy:1"),
    ],
)
def test_the_way(options: dict[str, Any], env: dict[str, str], place: str) -> None:
    """An Agent that is named, else the intake when there is a key, else an Agent on this machine."""
    made = Datadog.read(options, env)
    assert made.place == place
    assert isinstance(made.open(), IntakeSink if place.startswith("http") else DogStatsdSink)


def test_tags_of_the_environment() -> None:
    """Unified service tags, then DD_TAGS in either form, then the option's."""
    env = {"DD_ENV": "prod", "DD_SERVICE": "gpt", "DD_VERSION": "2", "DD_TAGS": "team:ml cost:a"}
    assert Datadog.read({"tags": "x:1, x:2"}, env).tags == (
        "env:prod", "service:gpt", "version:2", "team:ml", "cost:a", "x:1", "x:2",
    )  # fmt: skip
    assert Datadog.read({}, {"DD_TAGS": "a:1,b:2 3"}).tags == ("a:1", "b:2_3")


def test_logs_go_to_their_own_host() -> None:
    """Logs have a separate default host, unless an address is set for everything."""
    assert Datadog.read({}, {"DD_API_KEY": "k"}).logs_intake == "https://http-intake.logs.datadoghq.com"
    assert Datadog.read({"url": "http://hub:4318"}, {"DD_API_KEY": "k"}).logs_intake == "http://hub:4318"


@pytest.mark.parametrize(
    ("options", "env", "words"),
    [
        ({"transport": "http"}, {}, "DD_API_KEY"),
        ({"transport": "pigeon"}, {}, "transport"),
        ({"url": "nowhere"}, {"DD_API_KEY": "k"}, "https://HOST"),
        ({}, {"DD_DOGSTATSD_URL": "tcp://a:1"}, "udp://HOST:PORT"),
        ({}, {"DD_DOGSTATSD_URL": "udp://a:port"}, "udp://HOST:PORT"),
        ({}, {"DD_DOGSTATSD_PORT": "many"}, "DD_DOGSTATSD_PORT"),
        ({"port": 70000}, {}, "port"),
        ({"max_bytes": 3}, {}, "max_bytes"),
        ({"timeout": 0}, {}, "timeout"),
        ({"namespce": "x"}, {}, "did you mean 'namespace'"),
    ],
)
def test_wrong_ones_name_the_fix(options: dict[str, Any], env: dict[str, str], words: str) -> None:
    """Each error says what would be right."""
    with pytest.raises(ConfigError, match=words):
        Datadog.read(options, env)


def test_the_client_is_needed_for_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the client the error says what to install; the intake does not need it."""
    monkeypatch.setattr("stepscope.dialects.datadog.sink.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"stepscope\[datadog\]"):
        Datadog.read({}, {})
    assert Datadog.read({}, {"DD_API_KEY": "k"}).transport == "http"


def test_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe arrives at an Agent or the intake; a missing Agent and a wrong key are reported in one line."""
    listener, intake = Listener(), IntakePeer()
    try:
        (ok,) = probe(f'[{{"datadog": {{"host": "127.0.0.1", "port": {listener.port}}}}}]')
        assert ok.ok
        assert listener.read()[0].startswith("_e{15,")
        with refused() as port:
            (gone,) = probe(f'[{{"datadog": {{"host": "127.0.0.1", "port": {port}}}}}]')
        assert (gone.ok, "no Agent listens" in gone.text) == (False, True)
        for key, words in ((KEY, "accepted a record"), ("bad", "DD_API_KEY")):
            (told,) = probe(f'[{{"datadog": {{"url": "{intake.url}", "api_key": "{key}"}}}}]')
            assert words in told.text
    finally:
        listener.stop()
        intake.stop()
