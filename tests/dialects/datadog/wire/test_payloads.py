"""DogStatsD lines, compared with what Datadog's own client writes, and datagrams counted in bytes."""

from typing import Any

import pytest
from datadog.dogstatsd.base import DogStatsd

from stepscope.dialects.datadog.wire.items import Check, LogLine, Notice, Point
from stepscope.dialects.datadog.wire.payloads import LONGEST_LINE, pack, write_line, write_plain_line

T = 1_700_000_000
TAGS = ("env:test", "größe:ü")


def point(kind: Any, value: float | str, rate: float = 1.0, tags: tuple[str, ...] = TAGS, name: str = "a.b") -> Point:
    """A point of the present."""
    return Point(0, kind, name, value, tags, T * 10**9, "", rate)


def line(item: Any, now: float = T) -> str:
    """Its line."""
    written = write_line(item, now)
    assert written is not None
    return written.decode()


class Recorder(DogStatsd):
    """The official client, which keeps what it would send."""

    def __init__(self) -> None:
        super().__init__(disable_telemetry=True, origin_detection_enabled=False)
        self.lines: list[str] = []
        self._send = lambda packet, *_, **__: self.lines.append(packet)


@pytest.fixture
def client() -> Recorder:
    """The official client."""
    return Recorder()


def test_metrics_are_as_the_client_writes_them(client: Recorder) -> None:
    """Every type, floats and integers, unicode tags."""
    tags = list(TAGS)
    client.gauge("a.b", 0.5, tags)
    client.gauge("a.b", 1e-7, tags)
    client.increment("a.b", 3, tags)
    client.decrement("a.b", 1, tags)
    client.histogram("a.b", 1.5, tags)
    client.distribution("a.b", 1.5, tags)
    client.timing("a.b", 12, tags)
    client.set("a.b", "user 7", tags)
    client.gauge("a.b", 1)
    ours = [
        point("g", 0.5), point("g", 1e-7), point("c", 3), point("c", -1), point("h", 1.5), point("d", 1.5),
        point("ms", 12), point("s", "user 7"), point("g", 1, tags=()),
    ]  # fmt: skip
    assert [line(each) for each in ours] == client.lines


def test_sample_rates(client: Recorder) -> None:
    """What was sampled when it was recorded is sent with its rate, always; a gauge has none."""
    client._report("a.b", "h", 1.0, list(TAGS), 0.5, sampling=False)
    assert [line(point("h", 1.0, 0.5))] == client.lines
    assert "@" not in line(point("g", 1.0, 0.5))


def test_late_gauges_carry_their_time(client: Recorder) -> None:
    """Only late gauges carry their time: the Agent does not sum counts with a time."""
    client.gauge_with_timestamp("a.b", 0.5, T, list(TAGS))
    assert [line(point("g", 0.5), now=T + 60)] == client.lines
    assert "|T" not in line(point("c", 1), now=T + 60)


def test_events_are_as_the_client_writes_them(client: Recorder) -> None:
    """Lengths count bytes after escaping."""
    client.event(
        "Tïtle", "multi\nline | text", alert_type="success", aggregation_key="k", source_type_name="s",
        date_happened=T, priority="low", tags=list(TAGS), hostname="node1",
    )  # fmt: skip
    notice = Notice(0, "Tïtle", "multi\nline | text", "success", TAGS, T * 10**9, "node1", "k", "low", "s")
    assert [line(notice)] == client.lines


def test_checks_are_as_the_client_writes_them(client: Recorder) -> None:
    """The message comes last and is escaped."""
    client.service_check("rl.kl", 2, list(TAGS), T, None, "node1", "KL too high\nm:x")
    assert [line(Check(0, "rl.kl", 2, "KL too high\nm:x", TAGS, T * 10**9, "node1"))] == client.lines


def test_overlong_events_fit_the_agent() -> None:
    """The text is cut between characters, and its length is right."""
    written = write_line(Notice(0, "t" * 100, "ü" * 5000, "info", TAGS, T * 10**9), T)
    assert written is not None
    assert len(written) <= LONGEST_LINE
    head, _, rest = written.partition(b":")
    title, text = (int(number) for number in head[3:-1].split(b","))
    assert rest[title : title + 1] == b"|"
    assert rest[title + 1 : title + 1 + text].decode().endswith("…")
    assert rest[title + 1 + text :].startswith(b"|d:")


def test_what_has_no_line() -> None:
    """Logs have none."""
    assert write_line(LogLine(0, "m", "info", {}, (), 0), T) is None


def test_plain_statsd() -> None:
    """No tags and times; samples are timings; a negative gauge is set, not changed."""
    assert write_plain_line(point("c", 2, 0.5)) == b"a.b:2|c|@0.5"
    assert write_plain_line(point("d", 1.5)) == b"a.b:1.5|ms"
    assert write_plain_line(point("g", -1.5)) == b"a.b:0|g\na.b:-1.5|g"
    assert write_plain_line(Check(0, "x", 0, "", (), 0)) is None


def test_datagrams_are_counted_in_bytes() -> None:
    """As full as they may be, never fuller, but for a line that is longer alone; nothing is lost or cut."""
    lines = [b"x" * 100] * 30 + ["ü".encode() * 100] * 5 + [b"y" * 2000, b"z"]
    packed = list(pack(lines, 1432))
    assert b"\n".join(datagram for datagram, _ in packed).split(b"\n") == lines
    assert sum(count for _, count in packed) == len(lines)
    assert all(len(datagram) <= 1432 or count == 1 for datagram, count in packed)
    assert packed[0][1] == 14
    assert list(pack([], 10)) == []
