"""DogStatsD's grammar, versions 1.0 to 1.6, in the order the official client writes it and in others."""

import math
from collections.abc import Iterator

import pytest
from datadog.dogstatsd.base import DogStatsd

from stepscope.dialects.datadog.wire import dogstatsd_lines as lines
from stepscope.dialects.datadog.wire.dogstatsd_lines import Fields, Malformed
from tests.dialects.datadog.sink.dogstatsd_listener import Listener

NOW = 1_700_000_000_000_000_000


@pytest.fixture
def peer() -> Iterator[Listener]:
    """A socket to which the official client sends."""
    made = Listener()
    yield made
    made.stop()


CONTAINER = "abc123"


def client_of(peer: Listener) -> DogStatsd:
    """The official client as it is in a container."""
    return DogStatsd("127.0.0.1", peer.port, disable_telemetry=True, container_id=CONTAINER, socket_timeout=5)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("g", Fields("g")),
        ("c|@0.5", Fields("c", 0.5)),
        ("ms|#a:b,c", Fields("ms", 1.0, ("a:b", "c"))),
        ("d|@0.1|#a:b|c:ci-1|e:it-false,cn-x|card:low", Fields("d", 0.1, ("a:b",), "ci-1", "it-false,cn-x")),
        ("h|c:in-42|#a:b|@1", Fields("h", 1.0, ("a:b",), "in-42")),
        ("s|#,a:b, ,", Fields("s", 1.0, ("a:b",))),
        ("g|future:field|#a:b", Fields("g", 1.0, ("a:b",))),
    ],
)
def test_fields(text: str, fields: Fields) -> None:
    """Every field of every version is read, in any order; one of a later version is passed over."""
    assert lines.read_fields(text) == fields


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", lines.NO_TYPE),
        ("q", lines.BAD_TYPE),
        ("m", lines.BAD_TYPE),
        ("g|@", lines.BAD_RATE),
        ("g|@0", lines.BAD_RATE),
        ("g|@1.5", lines.BAD_RATE),
        ("g|@nan", lines.BAD_RATE),
    ],
)
def test_malformed_fields(text: str, reason: str) -> None:
    """Each mistake has one of a few reasons."""
    with pytest.raises(Malformed, match=reason):
        lines.read_fields(text)


@pytest.mark.parametrize("text", ["x", "1_0", "1e", "0x10", "1,5", "--1", "nanx"])
def test_what_is_no_number(text: str) -> None:
    """Python would read some of these; the protocol does not have them."""
    with pytest.raises(Malformed, match=lines.BAD_NUMBER):
        lines.read_number(text)


def test_numbers() -> None:
    """Not finite is a value, a sign is no change, a large integer stays exact, and a count must be finite."""
    assert math.isnan(lines.read_number("nan"))
    assert lines.read_number("-inf") == -math.inf
    assert lines.read_number("+4") == 4.0
    assert lines.read_number("9007199254740993") == 9007199254740993
    with pytest.raises(Malformed, match=lines.BAD_COUNT):
        lines.read_count("inf")
    with pytest.raises(Malformed, match=lines.NO_VALUE):
        lines.read_number("")


def test_times() -> None:
    """A timestamp is taken out wherever it stands; one that is no time is malformed."""
    assert lines.split_time("g|#a:b|T1700000000") == ("g|#a:b", NOW)
    assert lines.split_time("g|T1700000000|#a:b") == ("g|#a:b", NOW)
    assert lines.split_time("g|#a:Tx") == ("g|#a:Tx", None)
    for text in ("", "x", "-5", "0", "99999999999999", "1.5"):
        with pytest.raises(Malformed, match=lines.BAD_TIME):
            lines.split_time(f"g|T{text}")


def test_the_official_clients_events(peer: Listener) -> None:
    """Every field of an event comes back, lines and letters of other languages included."""
    client = client_of(peer)
    client.event(
        "Über\nZeile", "a|b\nç", "error", "key", "src", 1_600_000_000, "low", ["a:b"], "box", cardinality="low"
    )
    client.event("plain", "t")
    first, second = (lines.read_event(line, NOW) for line in peer.read())
    assert first[1:] == (
        *("Über\nZeile", "a|b\nç", "error", ("a:b",), 1_600_000_000 * 10**9),
        *("box", "key", "low", "src", CONTAINER, ""),
    )
    assert (second.title, second.text, second.alert_type, second.time) == ("plain", "t", "info", NOW)


def test_an_event_that_counts_characters_is_understood() -> None:
    """Some clients write the length in characters where the protocol has bytes."""
    assert lines.read_event("_e{4,2}:Über|çç|t:warning", NOW)[1:4] == ("Über", "çç", "warning")


@pytest.mark.parametrize("line", ["_e{", "_e{5,1}:a|b", "_e{1,1}:ab", "_e{1,1}:a|bc", "_e{1}:a|b", "_e{x,1}:a|b"])
def test_malformed_events(line: str) -> None:
    """Lengths that do not fit are malformed."""
    with pytest.raises(Malformed, match=lines.BAD_EVENT):
        lines.read_event(line, NOW)


def test_the_official_clients_checks(peer: Listener) -> None:
    """The message may hold bars and is read to its end, though the client puts two fields behind it."""
    client = client_of(peer)
    client.service_check("a.check", 2, ["a:b"], 1_600_000_000, "low", "box", "is|down\nm: x|y")
    client.service_check("b.check", 0)
    first, second = (lines.read_check(line, NOW) for line in peer.read())
    assert first[1:] == ("a.check", 2, "is|down\nm: x|y", ("a:b",), 1_600_000_000 * 10**9, "box", CONTAINER, "")
    assert (second.name, second.status, second.message, second.time) == ("b.check", 0, "", NOW)


@pytest.mark.parametrize("line", ["_sc|", "_sc|a", "_sc|a|4", "_sc|a|x", "_sc||1", "_sc|a|-1"])
def test_malformed_checks(line: str) -> None:
    """A check needs a name and one of four statuses."""
    with pytest.raises(Malformed, match=lines.BAD_CHECK):
        lines.read_check(line, NOW)
