"""DogStatsD over the life of a hub: a flood of series, a stop, a kill, and sockets left behind."""

import socket
import struct
from pathlib import Path

import pytest

from stepscope.dialects.datadog.listener.processes import MAX_SERIES, TOO_MANY_SERIES
from tests.dialects.datadog.conftest import DatadogHub, client_of, started
from tests.hub.test_connections import wait_for

MEGA = 1_000_000


def resident(hub: DatadogHub) -> int:
    """Bytes of the hub's memory that are its own."""
    assert hub.process is not None
    said = Path(f"/proc/{hub.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in said if line.startswith("RssAnon"))


def flood(hub: DatadogHub, lines: int) -> None:
    """Send lines with tags that never repeat."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.connect(hub.addresses["unixstream"].partition("://")[2])
        for start in range(0, lines, 100):
            sent = "\n".join(f"m:1|g|#run_id:flood,request:{number}" for number in range(start, start + 100)).encode()
            made.sendall(struct.pack("<I", len(sent)) + sent)


def test_a_flood_and_two_restarts(tmp_path: Path) -> None:
    """Series beyond the limit are refused in bounded memory; a stop loses nothing, and sockets are taken over."""
    pytest.importorskip("tests.chdb")
    hub = started(tmp_path / "home")
    try:
        before = resident(hub)
        flood(hub, MAX_SERIES + 5_000)
        wait_for(lambda: hub.counted("rejected").get(TOO_MANY_SERIES, 0) >= 5_000)
        assert resident(hub) - before < 300 * MEGA
        client_of(hub, "unixstream", constant_tags=["run_id:again"]).gauge("before", 1)
        client_of(hub, "unix", constant_tags=["run_id:again"]).increment("before.count", 3)
        hub.wait_rows("again", 2)
        assert hub.stop() == 0
        assert not Path(f"{hub.home}.stream").exists()
        hub.start()
        client_of(hub, "udp", constant_tags=["run_id:again"]).gauge("between", 2)
        hub.wait_rows("again", 3)
        hub.kill()
        assert Path(f"{hub.home}.stream").exists()
        hub.start()
        client_of(hub, "unixstream", constant_tags=["run_id:again"]).gauge("after", 3)
        assert [row[0] for row in hub.wait_rows("again", 4)] == ["after", "before", "before.count", "between"]
    finally:
        hub.kill()
