"""The `sinks` setting: its syntax and its errors."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.model.errors import ConfigError
from stepscope.sinks import registry
from tests.installed import install_package

ROOT = Path(__file__).parents[2]
OWN = {"console": "docs/console-sink.md", "hub": "docs/hub-sink.md"}


def test_names_and_options() -> None:
    """Names, and names with options; `local` asks for nothing more."""
    found = registry.parse(["local", "console", {"otlp": {"endpoint": "http://c:1"}}, {"hub": None}], {})
    assert [each.name for each in found] == ["console", "otlp", "hub"]
    assert found[1].config.targets["traces"].url == "http://c:1/v1/traces"
    assert [each.config.remote for each in found] == [False, True, True]


def test_a_text_is_parted_by_commas() -> None:
    """A string of sinks is split at commas, as in an environment variable."""
    assert [each.name for each in registry.parse("local, console,hub", {})] == ["console", "hub"]


@pytest.mark.parametrize("text", ['[{"hub": {"token": "x"}}]', ' {"hub": {"token": "x"}}'])
def test_a_text_may_be_json(text: str) -> None:
    """A list, or one sink with its options."""
    (found,) = registry.parse(text, {})
    assert (found.name, found.config.token) == ("hub", "x")


def test_no_error_tells_an_option() -> None:
    """Errors do not show options, which may be secrets."""
    with pytest.raises(ConfigError, match="neither a name") as raised:
        registry.parse([{"hub": {"token": "SECRET"}, "otlp": {}}], {})
    assert "SECRET" not in str(raised.value)


def test_the_same_place_keeps_its_id() -> None:
    """Cursors survive a new token; another address has its own."""
    ids = [
        registry.parse([{"hub": options}], {})[0].id
        for options in ({"url": "http://a:1"}, {"url": "http://a:1", "token": "x"}, {"url": "http://b:1"})
    ]
    assert ids[0] == ids[1] != ids[2]
    assert re.fullmatch(r"hub-[0-9a-f]{8}", ids[0])
    assert len(registry.parse(["hub", "hub"], {})) == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("otpl", "unknown sink 'otpl'; did you mean 'otlp'.*console"),
        ([{"hub": {"tokn": "x"}}], "hub: unknown option 'tokn'; did you mean 'token'.*timeout"),
        ([{"hub": {"timeout": "soon"}}], "hub: Expected `float`"),
        ([{"hub": {"url": "nowhere"}}], "http://HOST:PORT"),
        ([{"a": {}, "b": {}}], "neither a name"),
        ([3], "neither a name"),
        (3, "expected a list"),
        ({"otlp": {}}, "expected a list"),
        ('{"hub": {"token": "SEC', "begins with {"),
        ([{"console": {"severity": "LOUD"}}], "severity 'LOUD' is not known; use TRACE"),
        ([{"console": {"labels": 3}}], "labels"),
    ],
)
def test_wrong_ones_name_the_fix(given: Any, words: str) -> None:
    """Each error names what is wrong, what is known and what would be right."""
    with pytest.raises(ConfigError, match=words):
        registry.parse(given, {})


ACME = """
import msgspec
from stepscope.sinks.registry import convert

class Acme(msgspec.Struct, frozen=True):
    room: str = "lobby"
    place, remote = "acme", True

    @classmethod
    def read(cls, options, env):
        return convert("acme", options, cls)
"""


def test_others_register_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another installed package adds a sink by an entry point; one that cannot be loaded is reported."""
    points = {"acme": "acme_sink:Acme", "broken": "no_such_module:X"}
    install_package(tmp_path, monkeypatch, "stepscope.sinks", points, acme_sink=ACME)
    (chosen,) = registry.parse([{"acme": {"room": "attic"}}], {})
    assert (chosen.name, chosen.config.room) == ("acme", "attic")
    assert "acme" in registry.names()
    with pytest.raises(ConfigError, match="no_such_module:X and cannot be loaded"):
        registry.parse("broken", {})


@pytest.mark.parametrize("name", sorted(registry.SINKS.built_in))
def test_every_sink_has_a_page_and_can_be_stored(name: str) -> None:
    """Each sink is documented with its options, and its options survive a file."""
    for chosen in registry.parse([name], {}):
        packed = msgspec.json.encode(chosen.config)
        assert msgspec.json.decode(packed, type=type(chosen.config)) == chosen.config
    page = (ROOT / OWN.get(name, f"src/stepscope/dialects/{name}/README.md")).read_text()
    assert page.startswith("# ")


ADDRESSED = {
    "datadog": ("url", {"transport": "http", "api_key": "k"}),
    "hub": ("url", {}),
    "mlflow": ("uri", {}),
    "otlp": ("endpoint", {}),
    "tinker": ("url", {}),
}


@pytest.mark.parametrize("bad", ["http://h:99999", "http://h:port", "http://h:0", "ftp://h", "http://", "h"])
@pytest.mark.parametrize("name", ADDRESSED)
def test_an_address_that_cannot_be_is_refused_before_training_starts(name: str, bad: str) -> None:
    """An invalid address raises from `init`, not later in the shipper's log."""
    option, others = ADDRESSED[name]
    with pytest.raises(ConfigError, match=rf"sinks: {name}: .*use http"):
        registry.parse([{name: {option: bad, **others}}], {})


@pytest.mark.parametrize("name", ["datadog", "hub", "mlflow", "tinker"])
def test_a_timeout_is_above_nothing(name: str) -> None:
    """A sink that may take no time could never deliver."""
    option, others = ADDRESSED[name]
    with pytest.raises(ConfigError, match=f"sinks: {name}: timeout must be a number of seconds above 0"):
        registry.parse([{name: {option: "http://h:1", "timeout": 0, **others}}], {})
