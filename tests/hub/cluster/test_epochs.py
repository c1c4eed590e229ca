"""Hubs that take a shard in the same epoch: one of them writes, and what it acknowledged is never taken back."""

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from stepscope.hub.store import schema
from stepscope.hub.store.cluster.address import parse
from stepscope.hub.store.cluster.lease import Fenced, Lease
from stepscope.hub.store.cluster.ownership import Ownership, this_process
from stepscope.hub.store.cluster.server import Server
from stepscope.hub.store.store import Store
from stepscope.hub.store.write.recovery import Abort, aborts_that_count
from stepscope.model.errors import Retry
from stepscope.model.ports import Batch
from tests.hub.cluster.conftest import AddressOf, drop
from tests.hub.store.contract import losses, writer

RUN = "raced"
FIRST, SECOND, THIRD = "a" * 16, "b" * 16, "c" * 16
"""Hubs, by id."""


class Hubs:
    """Hubs on one store; each is made in the steps that a hub takes when it starts."""

    def __init__(self, url: str, undo: ExitStack) -> None:
        self._url, self._undo = f"{url}?lease=600", undo
        undo.callback(drop, url)

    def join(self, name: str, *, late: bool = False) -> Ownership:
        """Take the shard if it is free; a late hub has read that it is free, and writes the epoch of another one."""
        engine = Server(parse(self._url))
        self._undo.callback(engine.close)
        schema.prepare(engine)
        ownership = Ownership(engine, this_process(name), 600)
        self._undo.callback(ownership.leave)
        ownership.shared = True
        if late:
            ownership.leases[0].take(None)
        else:
            ownership.beat()
        return ownership

    def open(self, ownership: Ownership) -> Store:
        """Open the store as a hub that has joined, which recovers it."""
        engine = Server(parse(self._url))
        self._undo.callback(engine.close)
        return Store(engine, ownership=ownership)

    def start(self, name: str) -> Store:
        """Do both."""
        return self.open(self.join(name))


@pytest.fixture
def hubs(server: AddressOf, request: pytest.FixtureRequest) -> Iterator[Hubs]:
    """Hubs on a store of this test alone."""
    with ExitStack() as undo:
        yield Hubs(server(re.sub(r"\W", "_", request.node.name)), undo)


def lease(store: Store) -> Lease:
    """The lease of a hub on the one shard."""
    assert store.ownership is not None
    return store.ownership.leases[0]


def points(store: Store) -> int:
    """How many points are stored."""
    return int(store.engine.query("SELECT count() AS held FROM metrics").one("held"))


def batch(seq: int) -> Batch:
    """One point."""
    return Batch(writer(RUN), seq, losses([(seq, 1.0)]))


@pytest.mark.parametrize("names", [(SECOND, FIRST), (FIRST, SECOND)])
def test_a_hub_that_lost_a_tie_takes_nothing_back(hubs: Hubs, names: tuple[str, str]) -> None:
    """Two hubs take one epoch; both recover, the loser last, and all that was acknowledged afterwards stays."""
    early = hubs.join(names[0])
    late = hubs.join(names[1], late=True)
    stores = [hubs.open(late), hubs.open(early)]
    stored = 0
    for store in (*stores, *stores):
        try:
            store.write(batch(stored))
            stored += 1
        except Retry:
            store.beat()
    assert stored
    early.leave()
    late.leave()
    again = hubs.start(THIRD)
    assert (again.held(), points(again)) == ([0], stored)
    again.write(batch(stored - 1))
    assert points(again) == stored


def test_at_most_one_hub_acts_in_an_epoch(hubs: Hubs) -> None:
    """A hub that had an epoch for a moment loses it when another one wrote the same; that one never has it."""
    early = hubs.join(FIRST)
    late = hubs.join(SECOND, late=True)
    assert (early.leases[0].epoch, late.leases[0].epoch) == (1, 0)
    with pytest.raises(Fenced):
        early.leases[0].check()
    late.beat()
    early.beat()
    assert (early.leases[0].epoch, late.leases[0].epoch) == (0, 2)


def test_a_commit_does_not_count_when_the_shard_was_lost_and_taken_again_meanwhile(
    hubs: Hubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another hub had it in between and may have used its number: the batch is offered again and stored once."""
    store, other = hubs.start(FIRST), hubs.start(SECOND)
    insert, tables = store.engine.insert, []

    def with_a_loss(table: str, block: object) -> None:
        tables.append(table)
        insert(table, block)  # type: ignore[arg-type]
        if table == "ledger":
            monkeypatch.undo()
            lease(store).release()
            other.beat()
            other.recover(0)
            lease(other).release()
            store.beat()

    monkeypatch.setattr(store.engine, "insert", with_a_loss)
    with pytest.raises(Retry, match="another hub wrote"):
        store.write(batch(0))
    assert tables[-1] == "ledger"
    store.write(batch(0))
    assert points(store) == 1


def test_an_abort_of_a_hub_that_lost_the_shard_is_ignored_and_counted(hubs: Hubs) -> None:
    """Should one arrive late, what it names stays, and health can say so."""
    early, late = hubs.start(SECOND), hubs.start(FIRST)
    early.write(batch(0))
    lease(early).release()
    late.beat()
    late.write(batch(1))
    last = late.engine.query("SELECT max(commit) AS last FROM ledger").one("last")
    late.engine.execute(f"INSERT INTO aborted (shard, commit, time, epoch, hub) SELECT 0, {last}, 1, 1, '{SECOND}'")
    lease(late).release()
    again = hubs.start(THIRD)
    assert (again.ignored_aborts(), points(again)) == (1, 2)
    again.write(batch(1))
    assert points(again) == 2


def test_a_store_of_an_older_version_learns_who_aborts(hubs: Hubs) -> None:
    """Its aborts have no epoch, and count as before."""
    older = hubs.start(FIRST)
    older.write(batch(0))
    older.engine.execute("ALTER TABLE aborted DROP COLUMN epoch, DROP COLUMN hub")
    older.engine.execute("INSERT INTO metrics (series, commit) SELECT series, 7 FROM metrics")
    older.engine.execute("INSERT INTO aborted (shard, commit, time) SELECT 0, 7, 1")
    assert points(older) == 2
    lease(older).release()
    newer = hubs.start(SECOND)
    assert (points(newer), newer.ignored_aborts()) == (1, 0)


def test_which_aborts_count() -> None:
    """Those of a later epoch, and those of earlier ones up to its first."""
    noted = [Abort(0, 2), Abort(1, 3), Abort(1, 9), Abort(2, 5), Abort(2, 8), Abort(3, 8)]
    assert aborts_that_count(noted) == [8, 5, 3, 2]
    assert aborts_that_count([]) == []
