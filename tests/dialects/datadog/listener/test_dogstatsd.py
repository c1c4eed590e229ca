"""DogStatsD at a real hub, from the official client over three transports, and from senders who do not behave."""

import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from datadog.dogstatsd.base import DogStatsd as Client

from stepscope.dialects.datadog.listener import dogstatsd
from stepscope.dialects.datadog.listener.samples import Samples
from stepscope.dialects.datadog.listener.sockets import open_sockets, udp_address
from stepscope.dialects.datadog.wire import dogstatsd_lines as lines
from stepscope.hub.intake.counters import Counters, Label
from stepscope.hub.intake.intake_journal import SequenceNumbers
from stepscope.hub.intake.scrub import Scrubber
from stepscope.hub.limits import Limits
from stepscope.hub.receivers.ingest import Ingest, RunOwners
from stepscope.testing.receivers import ReceiverContract, Reply, Sender
from tests.dialects.datadog.conftest import DatadogHub, client_of
from tests.fuzz.hub_path import Tray
from tests.hub.receivers.test_contract import AtHub
from tests.hub.test_connections import wait_for

GARBAGE = (b"\0" * 100, b"\xff\xfe", b":::|||", b"a:1|g|#\xff", b"_e{99999,1}:x", b"x" * 60_000, b"", b"\n\n|\n")


class DogStatsdSender(AtHub):
    """Hand-written datagrams, which get no answer."""

    hub: DatadogHub

    def request(self, run: str, steps: Sequence[int]) -> bytes:
        """A step and a value for each."""
        tag = f"|#run_id:{self.name(run)}"
        return "\n".join(f"train.step:{step}|g{tag}\nloss:{step}.5|d{tag}" for step in steps).encode()

    def send(self, request: bytes, token: str = "") -> Reply:
        """Send one datagram."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.sendto(request, ("127.0.0.1", self.hub.udp_port))
        return Reply("ok")

    def stored(self, run: str, count: int) -> list[int]:
        """The steps of the values, without the gauges that say them."""
        found = self.hub.wait_rows(self.name(run), 2 * count)
        return [step for key, step, _ in found if key == "loss"]

    def garbage(self) -> Iterable[bytes]:
        """Bytes that are no lines."""
        return GARBAGE


class TestContract(ReceiverContract):
    """The contract, less what datagrams do not have: answers, tokens and repetitions."""

    can_repeat = can_refuse = has_tokens = can_be_busy = False

    @pytest.fixture
    def sender(self, datadog_hub: DatadogHub) -> Sender:
        """A sender of datagrams."""
        made: Sender = DogStatsdSender(datadog_hub)
        return made

    @pytest.fixture
    def guarded(self, datadog_hub: DatadogHub) -> Sender:
        """There are no tokens."""
        made: Sender = DogStatsdSender(datadog_hub)
        return made


@pytest.mark.parametrize("transport", ["udp", "unix", "unixstream"])
def test_the_official_client(datadog_hub: DatadogHub, transport: str) -> None:
    """Its metrics, events and checks are an ordinary run, with steps, whichever way they come."""
    run = f"official-{transport}"
    client = client_of(datadog_hub, transport, constant_tags=[f"run_id:{run}", "project:dd"], cardinality="low")
    for step in range(4):
        client.gauge("train.step", step)
        client.gauge("loss", 1 / (step + 1), tags=["split:train"])
        client.increment("tokens", 512)
        client.distribution("latency", 2.5 * step)
    client.event("milestone", "two\nlines", alert_type="success")
    client.service_check("kl", Client.CRITICAL, message="too|high")
    client.gauge_with_timestamp("late", 7, 1_600_000_000)
    client.flush()
    rows = datadog_hub.wait_rows(run, 17)
    assert [row for row in rows if row[0] == "loss"] == [["loss", step, 1 / (step + 1)] for step in range(4)]
    assert [row for row in rows if row[0] == "tokens"] == [["tokens", step, 512] for step in range(4)]
    assert [row for row in rows if row[0] == "latency"] == [["latency", step, 2.5 * step] for step in range(4)]
    assert [row for row in rows if row[0] == "late"] == [["late", 3, 7]]
    wait_for(lambda: len(events(datadog_hub, run)) == 2)
    assert events(datadog_hub, run) == [["kl", 3, 17], ["milestone", 3, 9]]


def events(hub: DatadogHub, run: str) -> list[list[object]]:
    """Name, step and severity of the events of a run."""
    tables = "logs AS l INNER JOIN runs AS r ON r.run = l.run"
    return hub.sql(f"SELECT l.name, l.step, l.severity FROM {tables} WHERE r.id = '{run}' ORDER BY l.name")


def test_a_run_like_any_other(datadog_hub: DatadogHub) -> None:
    """The API lists it under its project, with its keys, and the step inspector knows the step."""
    client = client_of(datadog_hub, "unixstream", constant_tags=["run_id:ordinary", "project:dd", "rank:1"])
    for step in range(3):
        client.gauge("train.step", step)
        client.gauge("loss", step)
    datadog_hub.wait_rows("ordinary", 6)
    run = datadog_hub.request("GET", "/api/runs/ordinary").json()
    assert run["project"] == "dd"
    step = datadog_hub.request("GET", "/api/runs/ordinary/steps/2").json()
    assert "loss" in str(step)


def test_malformed_lines_are_counted_by_reason(datadog_hub: DatadogHub) -> None:
    """Health says how many lines were refused, and why."""
    sender = DogStatsdSender(datadog_hub)
    before = datadog_hub.counted("rejected")
    sender.send(b"a:1|zz\nb:x|g\n\xff\xff:1|g\nok:1|g|#run_id:neighbour\nc|g")
    datadog_hub.wait_rows("neighbour", 1)
    wait_for(lambda: datadog_hub.counted("rejected").get(lines.NO_VALUE, 0) > before.get(lines.NO_VALUE, 0))
    after = datadog_hub.counted("rejected")
    for reason in (lines.BAD_TYPE, lines.BAD_NUMBER, lines.BAD_TEXT):
        assert after[reason] == before.get(reason, 0) + 1


def test_streams_that_break(datadog_hub: DatadogHub) -> None:
    """A frame that is too large, cut off or split costs its connection at most, and is counted."""
    path = datadog_hub.addresses["unixstream"].partition("://")[2]
    frame = b"m:1|g|#run_id:broken"
    for number, data in enumerate((struct.pack("<I", 2**31), struct.pack("<I", 100) + b"m:1|g")):
        reason = (dogstatsd.BAD_FRAME, dogstatsd.CUT_FRAME)[number]
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            made.connect(path)
            made.sendall(data)
        wait_for(lambda: datadog_hub.counted("rejected").get(reason, 0) > 0)  # noqa: B023
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.connect(path)
        for at in struct.pack("<I", len(frame)) + frame:
            made.send(bytes([at]))
        datadog_hub.wait_rows("broken", 1)


class Endless:
    """Samples of a sender who never stops: each datagram read brings another."""

    def __init__(self, inner: Samples, port: int) -> None:
        self._inner, self._port = inner, port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def take(self, text: str, now: int, host: str = "") -> None:
        """Send what was taken again."""
        self._inner.take(text, now, host)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.sendto(text.encode(), ("127.0.0.1", self._port))


def test_a_flood_does_not_keep_a_hub_from_stopping() -> None:
    """When the hub stops, pending data is read for a limited time; a continuing sender does not delay it."""
    tray = Tray()
    ingest = Ingest("dogstatsd", tray, Scrubber(Limits()), Counters(), SequenceNumbers(), RunOwners())  # type: ignore[arg-type]
    (opened,) = open_sockets([udp_address("127.0.0.1:0")])
    server = dogstatsd.DogStatsd(ingest, [opened])
    server._samples = Endless(server._samples, opened.address.port)  # type: ignore[assignment]
    Client("127.0.0.1", opened.address.port, disable_telemetry=True).gauge("m", 1)
    server.start()
    server.stop()
    assert not server._thread.is_alive()
    assert b"m" in b"".join(tray.batches)


def test_lost_datagrams_are_shown() -> None:
    """The client's own count of what it sent tells what UDP lost: in health, and as a metric of the run."""
    counters, tray = Counters(), Tray()
    ingest = Ingest("dogstatsd", tray, Scrubber(Limits()), counters, SequenceNumbers(), RunOwners())  # type: ignore[arg-type]
    (opened,) = open_sockets([udp_address("127.0.0.1:0")])
    server = dogstatsd.DogStatsd(ingest, [opened])
    client = Client("127.0.0.1", opened.address.port, constant_tags=["run_id:lossy"], telemetry_min_flush_interval=3600)
    for number in range(5):
        client.gauge("m", number)
    client.packets_sent += 7  # as if seven had been lost on their way
    client._telemetry_flush_interval = -1
    client.gauge("m", 5)  # tells of the first window, which may have begun before this hub
    client.packets_sent += 7
    client.gauge("m", 6)
    server.start()
    server.stop()
    assert counters.snapshot()[Label("dropped", "dogstatsd", dogstatsd.LOST)] == 7
    assert b"dropped/datagrams" in b"".join(tray.batches)
