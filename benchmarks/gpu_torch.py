"""On a CUDA machine: what `integrations.torch` costs a small training step, that it never waits, that it adds up.

Needs torch, and stepscope with its two dependencies on the path:

    PYTHONPATH=src:DEPENDENCIES python benchmarks/gpu_torch.py
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch

from benchmarks.timing import percentile

STEP_MS = 5.0
WIDTH = 2048
ROWS = {"the device is the limit": 16384, "the host is the limit": 1024}
"""Many rows keep the device busy while the host is ahead; with few it waits for each kernel to be launched."""
AHEAD = 2  # steps the host may be ahead of the device, as with a prefetching loader
BUDGET_PCT = 1.0
WARM_UP_SECONDS = 0.25
"""Time inside the hooks before a round that is measured."""
JUDGED = "instrument()"
PHASES = ("forward_gpu_ms", "backward_gpu_ms", "optimizer_step_gpu_ms")
Fact = tuple[str, bool]


class Net(torch.nn.Sequential):
    """A stack of layers that returns its loss, as models of Transformers do; so the loss is part of both passes."""

    def forward(self, data: Any) -> Any:
        """Compute the loss."""
        return super().forward(data).float().square().mean()


class Training:
    """A training step of a stack of layers, calibrated to about five milliseconds."""

    def __init__(self, rows: int) -> None:
        self.data = torch.randn(rows, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = 4
        self._build()
        self.layers = max(2, round(self.layers * STEP_MS / self._step_ms()))
        self._build()

    def _build(self) -> None:
        inside = [part for _ in range(self.layers) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
        self.net = Net(*inside).to("cuda", torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)

    def _step_ms(self) -> float:
        for _ in range(10):
            self.step()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(50):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 20

    def step(self) -> None:
        """Queue one step."""
        self.net(self.data).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def one_round(training: Training, around: Callable[[int], Any], steps: int) -> dict[str, float]:
    """Run some steps; milliseconds of a step by the device's clock, and of the host's part of it."""
    ends: list[Any] = []
    hosts: list[float] = []
    for step in range(steps + 5):
        begin = time.perf_counter_ns()
        with around(step):
            training.step()
        hosts.append((time.perf_counter_ns() - begin) / 1e6)
        end = torch.cuda.Event(enable_timing=True)
        end.record()
        ends.append(end)
        if step >= AHEAD:
            ends[step - AHEAD].synchronize()
    torch.cuda.synchronize()
    taken = [first.elapsed_time(second) for first, second in itertools.pairwise(ends[4:])]
    return {
        "step_mean_ms": statistics.fmean(taken),
        "step_p99_ms": percentile(taken, 99),
        "host_p50_ms": percentile(hosts[5:], 50),
    }


def variants(run: Any) -> dict[str, tuple[Callable[[], None], Callable[[int], Any]]]:
    """What is switched on for a round, and what is around each step."""
    from stepscope.integrations.torch import instrument

    return {
        "nothing": (lambda: None, lambda step: nullcontext()),
        "nothing, again": (lambda: None, lambda step: nullcontext()),
        "run.step": (lambda: None, run.step),
        JUDGED: (instrument, lambda step: nullcontext()),
        "instrument(), run.step": (instrument, run.step),
        "instrument(gpu=False, grad_norm=0)": (lambda: instrument(gpu=False, grad_norm=0), lambda step: nullcontext()),
        "instrument(grad_norm=1)": (lambda: instrument(grad_norm=1), lambda step: nullcontext()),
    }


def cost(run: Any, training: Training, rounds: int, steps: int, wanted: str) -> dict[str, dict[str, float]]:
    """Let the variants take turns; return medians over rounds, and of the ratios to doing nothing."""
    from stepscope.integrations.torch import uninstrument

    ways = {name: way for name, way in variants(run).items() if re.search(wanted, name)}
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        order = list(ways.items())
        shift = turn % len(order)
        for name, (begin, around) in order[shift:] + order[:shift]:
            begin()
            if turn and "instrument" in name:  # until then every step is timed, so that a short run is complete
                began = run.overhead.seconds("hooks")
                while run.overhead.seconds("hooks") - began < WARM_UP_SECONDS:
                    one_round(training, around, steps)
            row = one_round(training, around, steps)
            uninstrument()
            if turn:
                rows[name].append(row)
        print(f"round {turn} of {rounds}", file=sys.stderr, flush=True)
    table = {}
    for name, mine in rows.items():
        table[name] = {stat: statistics.median(row[stat] for row in mine) for stat in mine[0]}
        for stat in list(mine[0]):
            ratios = [row[stat] / other[stat] for row, other in zip(mine, rows["nothing"], strict=True)]
            table[name][stat.replace("_ms", "_pct")] = (statistics.median(ratios) - 1) * 100
            table[name][stat.replace("_ms", "_error")] = _error_pct(ratios)
    return table


def _error_pct(ratios: list[float]) -> float:
    return 100 * statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0


def measured_run(home: str, training: Training, steps: int) -> tuple[list[Fact], dict[str, float]]:
    """Train in a run with torch's trap for synchronizing calls set, and look at what was recorded."""
    import stepscope
    from stepscope.integrations.torch import instrument, uninstrument
    from stepscope.testing import read_run, series

    run = stepscope.init(project="bench", name="gpu-facts", home=home, probes=False)
    instrument(grad_norm=1)
    spans: list[tuple[Any, Any]] = []
    training.step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    for step in range(steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with run.step(step):
            begin.record()
            training.step()
            end.record()
        spans.append((begin, end))
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    whole = sum(begin.elapsed_time(end) for begin, end in spans)
    counts = run.outcomes.snapshot()
    uninstrument()
    run.finish(timeout=60)
    records = read_run(home, run.id)
    found = {key: dict(pair for pair in series(records, f"torch/{key}") if pair[0] is not None) for key in PHASES}
    sums = {key: sum(values.get(step, 0.0) for step in range(steps)) / steps for key, values in found.items()}
    norms = series(records, "torch/grad_norm")
    share = sum(sums.values()) / (whole / steps)
    facts = [
        ("no hook failed with the trap for synchronizing calls set", not any("failed" in name for name in counts)),
        (f"each of {steps} steps has its GPU times", all(set(range(steps)) <= set(each) for each in found.values())),
        (f"the phases add up to {share:.1%} of the step's GPU time (90 to 101 %)", 0.9 < share < 1.01),
        ("each step has a finite gradient norm", sum(0 < value < float("inf") for _, value in norms) > steps),
    ]
    return facts, {**sums, "step": whole / steps}


def captured(home: str, training: Training) -> list[Fact]:
    """A graph that is captured while torch is timed must come out whole."""
    import stepscope
    from stepscope.integrations.torch import instrument, uninstrument

    run = stepscope.init(project="bench", name="gpu-graph", home=home, probes=False)
    instrument()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            training.net(training.data)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = training.net(training.data)
    graph.replay()
    with torch.no_grad():
        same = torch.equal(out, training.net(training.data))
    uninstrument()
    failed = [name for name in run.outcomes.snapshot() if "failed" in name]
    run.finish(timeout=60)
    return [("a graph captured with the hooks on replays right, and no hook failed", same and not failed)]


def main() -> int:
    """Measure, check, print Markdown, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400, help="of each round")
    parser.add_argument("--ways", default="", metavar="PATTERN", help="measure only these; `nothing` must be one")
    parser.add_argument("--cost", action="store_true", help="measure where the host is the limit, and no more")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    import stepscope

    rounds, steps = (3, 60) if args.quick else (args.rounds, args.steps)
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {python}.")
    tables: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as home:
        workloads = {limit: Training(rows) for limit, rows in list(ROWS.items())[args.cost :]}
        for limit, training in workloads.items():
            run = stepscope.init(project="bench", name="gpu-torch", home=home, probes=False)
            tables[limit] = cost(run, training, rounds, steps, args.ways)
            run.finish(timeout=60)
            _print_cost(limit, training, tables[limit])
        if args.cost:
            return 0
        busy = next(iter(ROWS))
        facts, phases = measured_run(home, workloads[busy], steps)
        facts += captured(home, workloads[busy])
    for limit, table in tables.items():
        spent = table[JUDGED]["step_mean_pct"]
        facts.append(
            (f"`{JUDGED}` costs a step {spent:+.2f} % where {limit}, below {BUDGET_PCT:g} %", spent < BUDGET_PCT)
        )
    _print_facts(facts, phases)
    if args.json:
        args.json.write_text(json.dumps({"cost": tables, "facts": facts, "phases_ms": phases}, indent=1))
    return 0 if all(ok for _, ok in facts) else 1


def _print_cost(limit: str, training: Training, table: dict[str, dict[str, float]]) -> None:
    rows = len(training.data)
    print(f"\nWhere {limit}: {training.layers} layers of {WIDTH} x {WIDTH}, {rows} rows, bfloat16, fused AdamW.\n")
    print("| each step | host p50 ms | step mean ms | p99 ms | host p50 % | ± | mean % | ± | p99 % |")
    print("|---|---|---|---|---|---|---|---|---|")
    for way, row in table.items():
        print(
            f"| {way} | {row['host_p50_ms']:.3f} | {row['step_mean_ms']:.3f} | {row['step_p99_ms']:.3f} "
            f"| {row['host_p50_pct']:+.2f} | {row['host_p50_error']:.2f} "
            f"| {row['step_mean_pct']:+.2f} | {row['step_mean_error']:.2f} | {row['step_p99_pct']:+.2f} |",
            flush=True,
        )


def _print_facts(facts: list[Fact], phases: dict[str, float]) -> None:
    print("\n| phase | GPU ms |\n|---|---|")
    for phase, lasted in phases.items():
        print(f"| {phase.removesuffix('_gpu_ms')} | {lasted:.3f} |")
    print("\n| fact | holds |\n|---|---|")
    for text, ok in facts:
        print(f"| {text} | {'yes' if ok else 'NO'} |")


if __name__ == "__main__":
    sys.exit(main())
