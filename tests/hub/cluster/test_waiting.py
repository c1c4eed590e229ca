"""Waiting for deleted rows of a replicated table: for a limited time, and again for what a server lost."""

from collections.abc import Callable

import numpy as np
import pytest

from stepscope.hub.store.cluster.waiting import mutate
from stepscope.hub.store.columns import Answer
from stepscope.hub.store.engine import EngineError

OLD = ("0000000001", 0, 0)


class Replica:
    """A replica that lists its mutations as told, each answer once, the last one from then on."""

    def __init__(self, *listed: tuple[str, int, int]) -> None:
        self._listed = list(listed)
        self.asked = self.issued = 0

    def query(self, sql: str) -> Answer:
        """The newest mutation, those that are left, those of them that are recent."""
        self.asked += 1
        newest, left, recent = self._listed.pop(0) if len(self._listed) > 1 else self._listed[0]
        return Answer({"newest": [newest], "left": np.array([left]), "recent": np.array([recent])})

    def change(self) -> None:
        """Take a statement."""
        self.issued += 1


@pytest.fixture
def delete() -> Callable[[Replica], None]:
    """Delete rows; the time that is waited passes at once."""
    return lambda replica: mutate(replica.query, replica.change, "metrics", lambda seconds: None, seconds=0.2)


def test_a_change_is_done_when_the_replica_has_listed_and_finished_it(delete: Callable[[Replica], None]) -> None:
    """A replica that does not list it yet has not done it, though nothing is left to do."""
    replica = Replica(OLD, OLD, OLD, OLD, ("0000000002", 1, 1), ("0000000002", 0, 0))
    delete(replica)
    assert (replica.issued, replica.asked) == (1, 6)


def test_a_change_that_is_never_listed_is_an_error_that_passes(delete: Callable[[Replica], None]) -> None:
    """As when ZooKeeper was lost in the moment of the statement: who asked for it asks again."""
    replica = Replica(OLD)
    with pytest.raises(EngineError, match="rows of metrics are still being deleted") as raised:
        delete(replica)
    assert (raised.value.passing, replica.issued) == (True, 1)


def test_a_change_under_way_is_waited_for_and_not_repeated(delete: Callable[[Replica], None]) -> None:
    """While a recent one is left to do, another one would only take longer."""
    replica = Replica(("0000000002", 1, 1))
    with pytest.raises(EngineError, match="still being deleted"):
        delete(replica)
    assert replica.issued == 0


def test_a_change_that_was_left_undone_is_asked_for_anew(delete: Callable[[Replica], None]) -> None:
    """One that is no longer recent does not hold another one up."""
    stuck = ("0000000002", 1, 0)
    replica = Replica(stuck, stuck, ("0000000003", 2, 1), ("0000000003", 0, 0))
    delete(replica)
    assert replica.issued == 1
