"""Documents that hubs share, on a real server: versions, conflicts, and a hub that lost its right to write them."""

from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path

import pytest

from stepscope.hub.fleet.shared_state import SharedState
from stepscope.hub.fleet.sharing import SHARED_TOKENS, SharedTokens
from stepscope.hub.refusals import Refused
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.store.cluster.address import parse
from stepscope.hub.store.cluster.documents import Documents, DocumentWrite
from stepscope.hub.store.cluster.ownership import Ownership, this_process
from stepscope.hub.store.cluster.server import Server
from stepscope.hub.store.columns import Block, numbers, texts
from stepscope.model.errors import Retry
from stepscope.sinks.http import Answer, Connection
from tests.hub.cluster.conftest import AddressOf, drop

Join = Callable[[], "OneHub"]


class OneHub:
    """What a hub has of the shared state; another one reaches it without a network."""

    def __init__(self, url: str, reach: Callable[[str], "OneHub"]) -> None:
        self.engine = Server(parse(url))
        me = this_process()
        self.address = f"http://{me.hub}"
        self.ownership = Ownership(self.engine, this_process(me.hub, self.address), 60)
        self.ownership.join()
        self.state = SharedState(self.engine, self.ownership, lambda address: _Direct(address, reach))

    def poll(self) -> None:
        """Read what other hubs changed."""
        self.state._poll()

    def values(self, kind: str) -> dict[str, str]:
        """The documents of a kind."""
        return {key: each.value for key, each in self.state.all(kind).items()}

    def write(self, key: str, value: str | None, expected: int | None = None) -> None:
        """Change a document."""
        self.state.write(DocumentWrite("note", key, value, expected))


class _Direct(Connection):
    """Hands a request to the other hub of this process."""

    def __init__(self, address: str, reach: Callable[[str], OneHub]) -> None:
        self._hub = reach(address)

    def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        try:
            return Answer(HTTPStatus.OK, {}, self._hub.state.take(body))
        except Refused as refused:
            return Answer(refused.refusal.status, {}, str(refused).encode())
        except Retry as error:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, {}, str(error).encode())

    def close(self) -> None:
        pass


@pytest.fixture
def join(server: AddressOf, request: pytest.FixtureRequest) -> Iterator[Join]:
    """Make one more hub on a database of its own."""
    url = server(f"documents_{request.node.name}")
    known: dict[str, OneHub] = {}

    def make() -> OneHub:
        hub = OneHub(url, known.__getitem__)
        known[hub.address] = hub
        return hub

    yield make
    for hub in known.values():
        hub.engine.close()
    drop(url)


def test_no_change_is_lost(join: Join) -> None:
    """Either hub writes and deletes; a change of a version that is not the newest is refused, and says so."""
    one, two = join(), join()
    two.write("a", "from two")
    one.write("b", "from one")
    one.poll()
    two.poll()
    assert one.values("note") == two.values("note") == {"a": "from two", "b": "from one"}
    version = two.state.all("note")["b"].version
    one.write("b", "newer", version)
    two.write("b", "newer", version)  # the same change again, as after a lost answer
    for stale in (version, 0):
        with pytest.raises(Refused, match="note b was changed by somebody else"):
            two.write("b", "older", stale)
    two.write("a", None)
    one.write("a", "again", 0)
    two.poll()
    assert two.values("note") == {"a": "again", "b": "newer"}
    three = join()
    assert three.values("note") == two.values("note")


def test_what_a_hub_without_the_shard_writes_does_not_count(join: Join) -> None:
    """Its late insert is seen by nobody: not by hubs that follow, nor by one that starts."""
    one = join()
    one.write("a", "first")
    two = join()
    late = one.state.all("note")["a"].version + 1
    assert two.ownership.leases[0].take(two.ownership._holders[0])
    two.write("a", "second")
    columns: Block = {
        "version": numbers("UInt64", [late]),
        **{name: texts([text]) for name, text in (("kind", "note"), ("key", "late"), ("value", "late"))},
        "deleted": numbers("UInt8", [0]),
        "since": numbers("UInt64", [0]),
    }
    one.engine.insert("documents", columns)
    with pytest.raises(Retry, match="nothing can be changed"):
        one.write("a", "third")
    for hub in (one, two, join()):
        hub.poll()
        assert hub.values("note") == {"a": "second"}
    assert one.ownership.beat() == []
    one.write("a", "through the other")
    assert two.values("note") == {"a": "through the other"}


def test_without_the_store_all_stays_as_known(join: Join) -> None:
    """A change is refused with the reason, and what is known can still be read."""
    hub = join()
    hub.write("a", "known")
    hub.engine.close()
    with pytest.raises(Retry, match="nothing can be changed while the store does not accept writes"):
        hub.write("a", "new")
    assert hub.values("note") == {"a": "known"}


def test_listeners_hear_of_every_change_once(join: Join) -> None:
    """Of their kind only, with the value or that it was deleted."""
    one, two = join(), join()
    heard: list[tuple[str, str, bool]] = []
    two.state.listen("note", lambda found: heard.extend((each.key, each.value, each.deleted) for each in found))
    one.write("a", "1")
    one.state.write(DocumentWrite("other", "a", "1"))
    two.poll()
    two.poll()
    one.write("a", None)
    two.poll()
    assert heard == [("a", "1", False), ("a", "", True)]


def test_superseded_versions_are_deleted(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table does not grow with every change; documents stay as they are."""
    monkeypatch.setattr("stepscope.hub.store.cluster.documents.MAX_DEAD", 10)
    monkeypatch.setattr("stepscope.hub.fleet.shared_state._COMPACT_EVERY", 30)
    hub = join()
    hub.write("kept", "kept")
    hub.state.write(*(DocumentWrite("note", "often", str(each)) for each in range(40)))
    hub.poll()
    assert hub.engine.query("SELECT count() AS held FROM documents").one("held") < 20
    assert {key: each.value for key, each in Documents(hub.engine).all("note").items()} == {
        "kept": "kept",
        "often": "39",
    }


def test_tokens_of_two_homes(join: Join, tmp_path: Path) -> None:
    """Created or revoked in either home, also while its hub is not running; a file that is gone revokes nothing."""
    hubs = [join(), join()]
    folders = [tmp_path / "one", tmp_path / "two"]
    files = [Tokens(folder / "tokens.json") for folder in folders]

    def sync() -> list[set[str]]:
        for index in (0, 1, 0):
            hubs[index].poll()
            SharedTokens(hubs[index].state, files[index], folders[index]).sync()
        return [set(file.reread() or ()) for file in files]

    first, text = files[0].create(["read"])
    second, _ = files[1].create(["admin"])
    assert sync() == [{first.id, second.id}] * 2
    assert files[1].find(text) == first
    assert files[1].revoke(first.id)
    assert sync() == [{second.id}] * 2
    (folders[0] / "tokens.json").unlink()
    files[0] = Tokens(folders[0] / "tokens.json")
    assert sync() == [{second.id}] * 2
    assert second.id in (folders[0] / SHARED_TOKENS).read_text()
