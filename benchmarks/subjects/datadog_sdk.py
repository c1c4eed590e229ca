"""DogStatsD to a UDP socket on loopback that is bound but never read: no reader competes."""

from __future__ import annotations

import socket
from pathlib import Path

from datadog.dogstatsd import DogStatsd

from benchmarks.subjects import Subject


def open_plain(folder: Path) -> Subject:
    """Send one datagram per metric, the client's default."""
    return _open(buffered=False)


def open_buffered(folder: Path) -> Subject:
    """Collect metrics into datagrams, sent when full or every 0.3 s."""
    return _open(buffered=True)


def _open(buffered: bool) -> Subject:
    ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ear.bind(("127.0.0.1", 0))
    port = ear.getsockname()[1]
    client = DogStatsd("127.0.0.1", port, disable_telemetry=True, disable_buffering=not buffered)
    gauge = client.gauge

    def log(metrics: dict[str, float], step: int) -> None:
        for key, value in metrics.items():
            gauge(key, value)

    def close() -> None:
        client.flush()
        ear.close()

    return Subject(log=log, span=None, close=close)
