"""The embedded engine keeps the contract of stores."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stepscope.hub.store.store import Store, open_store
from stepscope.model.ports import Batch
from tests.hub.store.contract import StoreContract, line, losses, writer
from tests.hub.store.cut_contract import CutContract

pytest.importorskip("tests.chdb")


@pytest.fixture(scope="class")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for the tests of a class; each test has a run of its own."""
    opened = open_store(tmp_path_factory.mktemp("store") / "store")
    yield opened
    opened.close()


@pytest.fixture
def run(request: pytest.FixtureRequest) -> str:
    """A run that no other test writes to."""
    return str(request.node.name)


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Callable[[Store | None], Store]]:
    """Open a folder again and again."""
    opened: list[Store] = []

    def again(before: Store | None) -> Store:
        if before is not None:
            before.close()
        opened.append(open_store(tmp_path / "store"))
        return opened[-1]

    yield again
    opened[-1].close()


class TestOpenStore(StoreContract):
    def test_readers_do_not_disturb_the_writer(self, store: Store, run: str) -> None:
        """Several threads read while one writes; what a reader sees only grows, and in the end is everything."""
        store.write(Batch(writer(run), 0, losses([(0, 0.0)])))
        done = threading.Event()

        def watch() -> list[int]:
            seen = [line(store, run).total]
            while not done.is_set():
                seen.append(line(store, run).total)
            return [*seen, line(store, run).total]

        with ThreadPoolExecutor(3) as readers:
            watching = [readers.submit(watch) for _ in range(3)]
            for seq in range(1, 20):
                store.write(Batch(writer(run), seq, losses([(seq, float(seq))])))
            done.set()
            for watched in watching:
                totals = watched.result(60)
                assert totals == sorted(totals)
                assert totals[-1] == 20

    def test_documented_statements_for_object_storage(self, store: Store) -> None:
        """A newer engine than that of our cluster parses them, and their expression is a time of our points."""
        text = (Path(__file__).parents[3] / "docs" / "scale.md").read_text()
        moves = [each.rstrip(";") for each in text.splitlines() if each.startswith("ALTER TABLE stepscope_shard.")]
        assert len(moves) == 2
        for sql in moves:
            assert "AlterQuery" in (store.engine.tree(sql) or "")
        moment = moves[1].partition("MODIFY TTL ")[2].partition(" TO VOLUME")[0]
        found = store.engine.query(f"SELECT toTypeName({moment}) AS type FROM (SELECT toInt64(0) AS time)")
        assert found["type"] == ["DateTime"]


class TestCutStore(CutContract):
    pass
