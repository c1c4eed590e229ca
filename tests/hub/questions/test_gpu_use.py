"""GPU hours, energy and utilization of runs: in the table, its filter and order, and of one run."""

import pytest

from stepscope.hub.service import Hub
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric, Record
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import SECOND, START, began, ended

HOUR = 3600.0


def store(
    hub: Hub, run: str, rank: int, readings: list[dict[str, float]], *, host: str = "a", attempt: int = 1
) -> None:
    """Store what the probes of one process recorded."""
    writer = Writer(
        id=f"{run}-{rank}-{attempt}", run=run, project="gpus", rank=rank, world_size=2, host=host, attempt=attempt,
        wall_ns=START,
    )  # fmt: skip
    records: list[Record] = [began({})]
    records += [
        Metric(START + at * SECOND, None, None, "system", reading) for at, reading in enumerate(readings, start=1)
    ]
    hub.store.write(Batch(writer, 1, [*records, ended(START + 100 * SECOND)]))


@pytest.fixture(scope="module", autouse=True)
def machines(hub: Hub) -> None:
    """Store runs on two hosts, in two attempts, with a GPU of others, without an energy counter, and without GPUs."""
    whole = {"gpu/0/run_seconds": HOUR, "gpu/0/energy_joules": 3.6e6, "gpu/0/busy_seconds": HOUR / 2}
    others = {"gpu/7/energy_joules": 9e9, "gpu/7/busy_seconds": HOUR}
    store(hub, "two-hosts", 0, [{"gpu/0/run_seconds": 1.0}, {**whole, **others}])
    store(hub, "two-hosts", 1, [whole], host="b")
    store(hub, "restarted", 0, [whole])
    store(hub, "restarted", 0, [{**whole, "gpu/0/run_seconds": HOUR / 2}], attempt=2)
    store(hub, "shared", 0, [whole])
    store(hub, "shared", 1, [{"gpu/0/run_seconds": HOUR - 1}])
    store(hub, "no-counter", 0, [{"gpu/0/run_seconds": 2 * HOUR}])
    store(hub, "half-known", 0, [{**whole, "gpu/1/run_seconds": HOUR}])
    store(hub, "no-gpu", 0, [{"cpu/utilization": 0.5}])


def used(get: Get, run: str) -> dict[str, float]:
    """What the table has about the GPUs of a run."""
    fields = ["gpu_hours", "gpu_kwh", "gpu_utilization"]
    (row,) = get("/api/runs", filter=f"project = gpus and id = {run}", column=fields)["runs"]
    found = {field: each["value"] for field, each in row["columns"].items()}
    assert found == {field: each["value"] for field, each in get(f"/api/runs/{run}")["columns"].items()}
    return found


def test_hours_energy_and_utilization_add_up_over_hosts_and_attempts(get: Get) -> None:
    """GPUs of the host that the run does not use are not counted."""
    assert used(get, "two-hosts") == pytest.approx({"gpu_hours": 2, "gpu_kwh": 2, "gpu_utilization": 0.5})
    assert used(get, "restarted") == pytest.approx({"gpu_hours": 1.5, "gpu_kwh": 2, "gpu_utilization": 2 / 3})


def test_a_gpu_that_two_processes_share_counts_once(get: Get) -> None:
    """Ranks on one GPU do not use two."""
    assert used(get, "shared") == pytest.approx({"gpu_hours": 1, "gpu_kwh": 1, "gpu_utilization": 0.5})


def test_what_is_unknown_is_absent(get: Get) -> None:
    """Energy that only a part of the GPUs has would be too low; a run without GPUs has no hours, not 0."""
    assert used(get, "no-counter") == {"gpu_hours": 2.0}
    assert used(get, "half-known") == {"gpu_hours": 2.0}
    assert used(get, "no-gpu") == {}


def test_runs_are_sorted_and_filtered_by_them(get: Get) -> None:
    """They are fields like any other, with the same errors."""
    found = get("/api/runs", filter="project = gpus and gpu_hours >= 1.5", sort="-gpu_kwh")["runs"]
    assert {run["id"] for run in found} == {"two-hosts", "restarted", "no-counter", "half-known"}
    assert {run["id"] for run in found[:2]} == {"two-hosts", "restarted"}
    wrong = get("/api/runs", expect=400, filter="gpu_hours > many")["error"]["message"]
    assert "is not a number, and gpu_hours is one" in wrong
    assert "gpu_hours" in get("/api/fields")["plain"]
