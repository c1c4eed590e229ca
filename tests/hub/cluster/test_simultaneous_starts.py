"""Real hubs that start, restart and take over shards of a real cluster at once, under load."""

import pytest

from benchmarks import cluster_starts
from benchmarks.cluster_starts import Fleet, rounds
from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}")


def test_what_was_acknowledged_is_there_once(
    cluster: ClusterProcesses, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round of each kind; `python -m benchmarks.cluster_starts` does two hundred."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), cluster)
    try:
        (counts,) = rounds(fleet, len(cluster_starts.KINDS))
    finally:
        fleet.kill()
    assert counts["acknowledged"] > 0
    assert (counts["lost"], counts["doubled"], counts["complete"], counts["ignored aborts"]) == (0, 0, True, 0)
