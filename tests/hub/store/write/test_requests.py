"""Requests of clients that number no batches are stored once for a day, and are in memory for minutes."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from stepscope.hub.store.store import Store, open_store
from stepscope.hub.store.write.ledger import CACHED_NS, KEPT_NS
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric

BEGIN = 1_790_000_000_000_000_000
CLIENT = Writer(id="client", run="repeated", project="p")
pytest.importorskip("tests.chdb")


class Clock:
    """A time that a test sets."""

    now = BEGIN

    def __call__(self) -> int:
        """Return it."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of the store."""
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    """An empty store."""
    made = open_store(tmp_path / "store", clock=clock)
    yield made
    made.close()


def test_a_request_is_known_for_a_day_by_its_records_of_then(store: Store, clock: Clock) -> None:
    """It comes again with another number after an outage, and once more when that has been forgotten."""
    numbers = count()

    def repeat(after: int) -> int:
        clock.now = BEGIN + after
        store.write(Batch(CLIENT, next(numbers), [Metric(BEGIN, 1, None, None, {"loss": 1.0})], request=77))
        return int(store.engine.query("SELECT count() AS found FROM metrics").one("found"))

    assert [repeat(times * CACHED_NS) for times in (0, 0, 2, 23)] == [1, 1, 1, 1]
    assert repeat(KEPT_NS + 2 * CACHED_NS) == 1, "it was not yet deleted when its records came again"
    assert repeat(KEPT_NS + 4 * CACHED_NS) == 2


def test_memory_has_the_last_requests(store: Store, clock: Clock) -> None:
    """A client that numbers nothing leaves one range in the ledger, and old requests go."""
    requests = store._committers[0]._requests

    for number in range(40):
        clock.now = BEGIN + number * CACHED_NS // 10
        value = Metric(clock.now, number, None, None, {"loss": 1.0})
        store.write(Batch(CLIENT, number, [value], request=1000 + number))
    assert sum(map(len, requests._known.values())) <= 20
    assert store.engine.query("SELECT count() AS found FROM requests").one("found") == 40
