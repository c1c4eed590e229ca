"""What carrying a run through Ray costs an empty actor call, beside one plain argument and Ray's own tracing.

Needs ray and stepscope:

    python benchmarks/ray_call.py
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TURNS, CALLS = 6, 300
TRACING = "ray.util.tracing.setup_local_tmp_tracing:setup_tracing"
"""The hook that Ray documents: it makes spans around calls and writes them to files."""
NOTHING, AGAIN, ARGUMENT, CARRIED, TRACED = (
    "nothing",
    "nothing, again",
    "one argument",
    "`carried`",
    "Ray's own tracing",
)
MOST = 1 / 3
"""Of what Ray's own tracing adds to a call, `carried` may add so much; an argument alone is half of that."""


class Empty:
    """An actor that does nothing."""

    def call(self, given: bytes | None = None) -> None:
        """Return."""


class Ours:
    """The same, to be decorated."""

    def call(self) -> None:
        """Return."""


def round_trip(call: Callable[[], Any]) -> float:
    """Microseconds of a call and its answer: the median of many."""
    import ray

    taken = []
    for _ in range(CALLS):
        begin = time.perf_counter_ns()
        ray.get(call())
        taken.append(time.perf_counter_ns() - begin)
    return statistics.median(taken) / 1e3


def child(hook: str | None) -> dict[str, float]:
    """Measure in a Ray session of its own; the variants take turns."""
    import ray

    import stepscope
    from stepscope.integrations.ray import carried

    with tempfile.TemporaryDirectory() as home:
        if hook is None:
            stepscope.init(project="bench", name="ray", home=home, probes=False)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _tracing_startup_hook=hook)
        empty = ray.remote(Empty).options(num_cpus=0.5).remote()
        ways: dict[str, Callable[[], Any]] = {TRACED: empty.call.remote}
        if hook is None:
            ours = ray.remote(carried(Ours)).options(num_cpus=0.5).remote()
            some = b"x" * 200
            ways = {
                NOTHING: empty.call.remote,
                AGAIN: empty.call.remote,
                ARGUMENT: lambda: empty.call.remote(some),
                CARRIED: ours.call.remote,
            }
        rows: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(TURNS + 1):
            for name, call in ways.items():
                taken = round_trip(call)
                if turn:
                    rows[name].append(taken)
        ray.shutdown()
        stepscope.finish()
    return {name: statistics.median(taken) for name, taken in rows.items()}


def main() -> int:
    """Let sessions with and without Ray's tracing alternate; print Markdown; return the exit status."""
    sessions: list[dict[str, float]] = []
    for turn in range(3):
        print(f"session {turn + 1} of 3", file=sys.stderr, flush=True)
        sessions.append({**_spawn(""), **_spawn(TRACING)})
    print("| an empty actor call | round trip us | % |\n|---|---|---|")
    shares = {}
    for name in (NOTHING, AGAIN, ARGUMENT, CARRIED, TRACED):
        shares[name] = (statistics.median(each[name] / each[NOTHING] for each in sessions) - 1) * 100
        print(f"| {name} | {statistics.median(each[name] for each in sessions):.0f} | {shares[name]:+.1f} |")
    ratio = shares[CARRIED] / shares[TRACED]
    print(f"\n`carried` adds {ratio:.2f} of what Ray's own tracing adds; at most {MOST:.2f}.")
    return 0 if ratio <= MOST else 1


def _spawn(hook: str) -> dict[str, float]:
    here = Path(__file__).resolve()
    env = {**os.environ, "RAY_DEDUP_LOGS": "0", "PYTHONPATH": os.pathsep.join((str(here.parent), *sys.path))}
    line = [sys.executable, str(here), "child", hook]
    with tempfile.TemporaryFile("w+") as said:
        ended = subprocess.run(line, env=env, stdout=subprocess.PIPE, stderr=said, text=True, check=False)
        if ended.returncode:
            said.seek(0)
            raise SystemExit(f"a Ray session failed:\n{said.read()[-2000:]}")
    return dict(json.loads(ended.stdout.splitlines()[-1]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        print(json.dumps(child(sys.argv[2] or None)))
    else:
        sys.exit(main())
