"""A hub names what goes wrong in a run of three real processes while it happens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")

from benchmarks.zoo.live import delay
from benchmarks.zoo.live_rank import FAULTS
from stepscope.hub.client import HttpClient
from tests.hub.conftest import RunningHub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub for all faults."""
    made = RunningHub(tmp_path_factory.mktemp("live") / "home").start()
    yield made
    made.stop()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_while_the_run_goes_on(hub: RunningHub, fault: str) -> None:
    """NaN, spike, stall, straggler, a rank killed and a hang come as an event; how soon is measured elsewhere."""
    assert delay(HttpClient(hub.url), Path(hub.home), fault, f"live-{fault}", timeout=300.0) is not None
