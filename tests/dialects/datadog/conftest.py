"""One hub for the tests of this folder, with DogStatsD on UDP and on two Unix sockets."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from datadog.dogstatsd.base import DogStatsd as Client

from tests.hub.conftest import JSON, RunningHub
from tests.hub.test_connections import wait_for


class DatadogHub(RunningHub):
    """A hub that Datadog's clients can send to."""

    @property
    def addresses(self) -> dict[str, str]:
        """Where DogStatsD listens, by transport."""
        return {
            found.partition("://")[0]: found for found in re.findall(r"(?:udp|unix|unixstream)://[^\s)]+", self.said)
        }

    @property
    def udp_port(self) -> int:
        """The port of DogStatsD."""
        return int(self.addresses["udp"].rpartition(":")[2])

    def rows(self, run: str, columns: str = "s.key, m.step, m.value", token: str = "") -> list[list[Any]]:
        """What is stored of the metrics of a run, in the order of keys, steps and times."""
        tables = "metrics AS m INNER JOIN series AS s ON s.series = m.series INNER JOIN runs AS r ON r.run = s.run"
        sql = f"SELECT {columns} FROM {tables} WHERE r.id = '{run}' ORDER BY s.key, m.step, m.time"
        return self.sql(sql, token)

    def sql(self, statement: str, token: str = "") -> list[list[Any]]:
        """Ask the store; a missing step is None."""
        headers = {"content-type": JSON, **({"authorization": f"Bearer {token}"} if token else {})}
        rows = self.request("POST", "/api/sql", json.dumps({"sql": statement}).encode(), headers).json()["rows"]
        return [[None if value == -(2**63) + 1 else value for value in row] for row in rows]

    def wait_rows(self, run: str, count: int, columns: str = "s.key, m.step, m.value") -> list[list[Any]]:
        """Wait until so many values of a run are stored."""
        found: list[list[Any]] = []

        def are_stored() -> bool:
            found[:] = self.rows(run, columns)
            return len(found) >= count

        wait_for(are_stored)
        return found

    def counted(self, outcome: str, receiver: str = "dogstatsd") -> dict[str, int]:
        """The counters of a receiver by reason."""
        found: dict[str, int] = self.health()["receivers"].get(receiver, {}).get(outcome, {})
        return found


def started(home: Path) -> DatadogHub:
    """Start a hub with all sockets, outside its home."""
    home.mkdir(parents=True)
    sockets = ("--dogstatsd-socket", f"{home}.dgram", "--dogstatsd-socket", f"unixstream://{home}.stream")
    made = DatadogHub(home, ("--dogstatsd", "127.0.0.1:0", *sockets))
    made.start()
    return made


@pytest.fixture(scope="package")
def datadog_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DatadogHub]:
    """A hub that needs no token."""
    pytest.importorskip("tests.chdb")
    hub = started(tmp_path_factory.mktemp("datadog") / "home")
    yield hub
    with contextlib.suppress(Exception):
        hub.kill()


def client_of(hub: DatadogHub, transport: str, **options: object) -> Client:
    """The official client, which waits for a socket that is full instead of dropping."""
    if transport == "udp":
        return Client("127.0.0.1", hub.udp_port, **options)
    return Client(socket_path=hub.addresses[transport], socket_timeout=10, **options)
