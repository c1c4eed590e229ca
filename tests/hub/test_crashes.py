"""SIGKILL of the hub during ingest: what was acknowledged is stored, and nothing twice."""

import http.client
import random
import threading
import time
from collections import Counter

import pytest

from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import PROTOBUF, RunningHub, StartHub, stored_columns
from tests.repeats import repeats
from tests.waiting import wait_until

KILLS = repeats(6, 20)
BATCH = 20
_PAUSE = 0.01
"""Seconds between two requests of a client: four clients without any keep a core busy, and a kill meets no more."""


class Client(threading.Thread):
    """Sends numbered batches over and over until each is acknowledged; a lost answer makes it send again."""

    def __init__(self, hub: RunningHub, name: str) -> None:
        super().__init__(daemon=True)
        self.hub, self.run_id = hub, name
        self.acknowledged: list[int] = []
        self.sent = 0
        self.repeated = 0
        """How many batches were sent again because they had no answer."""
        self.done = threading.Event()

    def run(self) -> None:
        """Send until stopped."""
        while not self.done.is_set():
            body = bodies.points(BATCH, run=self.run_id, first=self.sent)
            while not self._send(body):
                if self.done.wait(0.05):
                    return
            self.acknowledged += range(self.sent, self.sent + BATCH)
            self.sent += BATCH
            self.done.wait(_PAUSE)

    def _send(self, body: bytes) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.hub.port, timeout=300)
        try:
            connection.connect()
            try:
                connection.request("POST", "/v1/metrics", body, {"content-type": PROTOBUF})
                status = connection.getresponse().status
            except (OSError, http.client.HTTPException):
                self.repeated += 1
                return False
            assert status in (200, 503)
            return status == 200
        except OSError:
            return False
        finally:
            connection.close()


@pytest.mark.timeout(60 + 20 * KILLS)
def test_kill_during_ingest(start_hub: StartHub) -> None:
    """After every SIGKILL the hub has all it acknowledged, and each request is stored once."""
    hub = start_hub()
    clients = [Client(hub, f"run-{index}") for index in range(4)]
    for client in clients:
        client.start()
    dice = random.Random(7)
    for _ in range(KILLS):
        time.sleep(0.3 + dice.random())
        hub.kill()
        hub.start()
    before = [client.sent for client in clients]
    wait_until(lambda: all(client.sent > sent for client, sent in zip(clients, before, strict=True)))
    for client in clients:
        client.done.set()
        client.join()
    assert hub.stop() == 0
    assert sum(client.repeated for client in clients) > 0
    for client in clients:
        _check(hub, client)


def _check(hub: RunningHub, client: Client) -> None:
    number = f"(SELECT max(run) FROM runs WHERE id = '{client.run_id}')"
    sql = f"SELECT step FROM metrics WHERE series IN (SELECT series FROM series WHERE run = {number})"
    stored = Counter(int(step) for step in stored_columns(hub.home, sql)["step"])
    assert len(client.acknowledged) > 0
    lost = [step for step in client.acknowledged if step not in stored]
    assert not lost, f"{len(lost)} acknowledged points lost"
    twice = [step for step, count in stored.items() if count > 1]
    assert not twice, f"{len(twice)} points stored twice"
