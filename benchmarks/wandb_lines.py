"""W&B history lines per second: `python -m benchmarks.wandb_lines` sends blocks to a hub until all are stored."""

import argparse
import http.client
import json
import tempfile
import time
from pathlib import Path

from tests.hub.conftest import RunningHub


def _block(first: int, lines: int) -> bytes:
    """A request as the client sends it: lines with five values each."""
    rows = [
        json.dumps({"_step": step, "_timestamp": 1.7e9 + step, "_runtime": step, "loss": 1 / (step + 1), "lr": 3e-4,
                    "grad_norm": 0.1 * step, "tokens": step * 512, "acc": step / 7})
        for step in range(first, first + lines)
    ]  # fmt: skip
    return json.dumps({"files": {"wandb-history.jsonl": {"offset": first, "content": rows}}}).encode()


def _cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / 100


def measure(lines: int, block: int) -> dict[str, float]:
    """Send lines in blocks; lines per second until acknowledged and until stored, and per second of CPU time."""
    bodies = [_block(first, block) for first in range(0, lines, block)]
    with tempfile.TemporaryDirectory() as folder:
        hub = RunningHub(Path(folder) / "home").start()
        try:
            assert hub.process is not None
            before, began = _cpu_seconds(hub.process.pid), time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=300)
            for body in bodies:
                connection.request("POST", "/files/e/bench/run/file_stream", body)
                answer = connection.getresponse()
                assert answer.status == 200, answer.read()
                answer.read()
            acknowledged = time.monotonic() - began
            spent = _cpu_seconds(hub.process.pid) - before
            hub.wait_stored("wandb", lines, 300)
            stored, all_spent = time.monotonic() - began, _cpu_seconds(hub.process.pid) - before
        finally:
            hub.kill()
    return {
        "acknowledged per second": lines / acknowledged,
        "stored per second": lines / stored,
        "acknowledged per CPU second": lines / spent,
        "stored per CPU second": lines / all_spent,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--block", type=int, default=5000)
    given = parser.parse_args()
    for name, value in measure(given.lines, given.block).items():
        print(f"{name}: {value:,.0f}")
