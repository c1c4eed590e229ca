"""Which connections are closed when there are too many, and what choosing them takes."""

from collections import Counter

import pytest

from stepscope.hub.serving.connections import Connections, Stage, Trust

PER_ADDRESS, MOST = 100, 200


class Client:
    """A connection that counts how often it is looked at."""

    looks: "Counter[str]"

    def __init__(self, looks: "Counter[str]", peer: str, since: float, trust: Trust = Trust.NOTHING) -> None:
        self.looks, self.peer, self.since, self.dropped, self.size = looks, peer, since, False, 0
        self.shown, self.state = trust, Stage.SENDING

    @property
    def stage(self) -> Stage:
        """Its state."""
        self.looks["stage"] += 1
        return self.state

    @property
    def trust(self) -> Trust:
        """What it has shown."""
        return self.shown

    def drop(self) -> None:
        """Note that it was closed."""
        self.dropped = True


@pytest.mark.parametrize("addresses", [1, 3])
def test_a_flood_is_not_looked_at_anew_for_each_connection(addresses: int) -> None:
    """Of 2,000 unfinished requests the oldest are closed; each newcomer costs a few looks, not one at each other."""
    looks: Counter[str] = Counter()
    now = 100.0
    connections = Connections(MOST, PER_ADDRESS, lambda: now)
    trusted = [Client(looks, "b", now, Trust.TOKEN) for _ in range(20)]
    flood = [Client(looks, f"a{number % addresses}", now) for number in range(2000)]
    for each in (*trusted, *flood):
        now += 0.002
        each.since = now
        connections.enter(each)
    left = [each for each in flood if not each.dropped]
    assert not [each for each in trusted if each.dropped]
    assert len(left) == (PER_ADDRESS if addresses == 1 else MOST - len(trusted))
    assert set(left) <= set(flood[-2 * len(left) :])
    assert looks["stage"] < 20 * len(flood)


def test_a_client_that_showed_its_token_meanwhile_is_kept() -> None:
    """What was ranked is looked at again before it is closed: one that shows a token, leaves or is answered stays."""
    looks: Counter[str] = Counter()
    now = 100.0
    connections = Connections(MOST, PER_ADDRESS, lambda: now)
    clients = [Client(looks, "a", now + number / 1000) for number in range(PER_ADDRESS + 1)]
    for each in clients:
        connections.enter(each)
    assert [each for each in clients if each.dropped] == clients[:1]
    clients[1].shown, clients[2].state = Trust.TOKEN, Stage.ANSWERED
    connections.leave(clients[3])
    for _ in range(4):
        connections.enter(Client(looks, "a", now + 1))
    dropped = [each for each in clients if each.dropped]
    assert dropped[:2] == [clients[0], clients[4]]
    assert len(dropped) <= 4


def test_newcomers_close_no_more_than_the_limit_asks_for() -> None:
    """Once some have shown a token or left, newcomers that fit beside the others close none of those ranked before."""
    looks: Counter[str] = Counter()
    now = 100.0
    connections = Connections(10 * MOST, PER_ADDRESS, lambda: now)
    clients = [Client(looks, "a", now + number / 1000) for number in range(PER_ADDRESS + 1)]
    for each in clients:
        connections.enter(each)
    assert [each for each in clients if each.dropped] == clients[:1]
    for each in clients[-10:]:
        each.shown = Trust.TOKEN
    newcomers = [Client(looks, "a", now + 1) for _ in range(11)]
    for each in newcomers[:10]:
        connections.enter(each)
    assert [each for each in (*clients, *newcomers) if each.dropped] == clients[:1]
    connections.enter(newcomers[10])
    assert [each for each in (*clients, *newcomers) if each.dropped] == clients[:2]


def test_nothing_is_closed_where_all_are_being_answered() -> None:
    """And a closed one that was ranked is not closed again."""
    looks: Counter[str] = Counter()
    connections = Connections(1, clock=lambda: 100.0)
    first = Client(looks, "a", 99.0)
    first.state = Stage.ANSWERED
    connections.enter(first)
    assert not connections.drop_one()
    first.state = Stage.IDLE
    assert connections.drop_one()
    assert first.dropped
    assert not connections.drop_one()
