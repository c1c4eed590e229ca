"""How soon a point that one hub acknowledged is in the answer of another one, on a cluster of 2 shards x 2 replicas."""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stepscope.testing.clickhouse_cluster import missing, running_cluster
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import RunningHub

RUNS = 4
"""So that both shards, each written by another hub, have some."""
_PAUSE = 0.37
"""Between two points; no multiple of the interval between two commits."""


def seconds_until_shown(sender: RunningHub, other: RunningHub, run: str, step: int) -> float:
    """Send a point to one hub and ask the other one until its answer has it; seconds from the acknowledgement on."""
    answer = sender.post("/v1/metrics", bodies.points(1, run=run, first=step))
    assert answer.status == 200, answer
    acknowledged = time.monotonic()
    while step + 1 > _points(other, run):
        assert time.monotonic() < acknowledged + 60, f"step {step} of {run} is not shown"
        time.sleep(0.02)
    return time.monotonic() - acknowledged


def _points(hub: RunningHub, run: str) -> int:
    found = hub.request("GET", f"/api/runs/{run}/series?key=loss")
    return sum(line["total"] for line in found.json()["series"]) if found.status == 200 else 0


@contextmanager
def running_hubs(folder: Path, store: str, count: int) -> Iterator[list[RunningHub]]:
    """Run hubs on one store."""
    with ExitStack() as stack:
        hubs = [RunningHub(folder / f"hub-{index}", env={"STEPSCOPE_STORE": store}) for index in range(count)]
        for hub in hubs:
            hub.start()
            stack.callback(hub.stop)
        yield hubs


def measure(hubs: Sequence[RunningHub], times: int, name: str = "visible") -> list[float]:
    """Send points through each hub in turn and ask the other one."""
    took = []
    for number in range(times):
        sender, other = hubs if number % 2 else hubs[::-1]
        took.append(seconds_until_shown(sender, other, f"{name}-{number % RUNS}", number // RUNS))
        time.sleep(_PAUSE)
    return took


def main() -> int:
    """Print the quantiles; 1 when a point took longer than a second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    times = parser.parse_args().times
    if lacking := missing():
        print(f"not installed: {lacking}")
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_cluster(folder / "cluster") as cluster, running_hubs(folder, cluster.url(), 2) as hubs:
            measure(hubs, 2 * RUNS, "first")  # the first answers of a new hub take longer
            took = sorted(measure(hubs, times))
    late = sum(each > 1 for each in took)
    print(f"{times} points: median {statistics.median(took):.2f} s, p95 {took[int(times * 0.95)]:.2f} s, ", end="")
    print(f"longest {took[-1]:.2f} s, {late} after more than a second")
    return 1 if late else 0


if __name__ == "__main__":
    raise SystemExit(main())
