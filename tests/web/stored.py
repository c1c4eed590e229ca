"""Runs that are in a store before its hub starts: sending so many to one would take long."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stepscope.diagnosis.run_diagnosis import VERSION
from stepscope.hub.home import HubHome
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.store import open_store
from stepscope.hub.store.write.finding_rows import Diagnosed, write_findings
from stepscope.model.ports import Batch
from tests.hub.conftest import RunningHub


@contextmanager
def hub_with(
    home: Path, batches: Sequence[Batch], fill: Callable[[Engine], None] = lambda engine: None
) -> Iterator[RunningHub]:
    """Start a hub on a home whose store holds these batches, and what `fill` adds to them.

    The runs are marked as diagnosed, without findings: a hub would replay them all, a million points among them.
    """
    place = HubHome(home)
    store = open_store(place.store)
    assert store.write_many(list(batches)) == [None] * len(batches)
    fill(store.engine)
    newest = store.engine.query("SELECT run, max(commit) AS newest FROM ledger GROUP BY run").rows("run", "newest")
    write_findings(store.engine, [Diagnosed(run, [], VERSION, commit) for run, commit in newest], 1)
    store.close()
    place.close()
    hub = RunningHub(home).start()
    yield hub
    hub.kill()
