"""On a CUDA machine: what logging tensors costs a step, that it never waits, that the values are right.

Needs torch, and stepscope with its two dependencies on the path:

    PYTHONPATH=src:DEPENDENCIES python benchmarks/gpu_log.py
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch

from benchmarks import gpu_graphs, gpu_values
from benchmarks.timing import percentile

STEP_MS = 5.0
SIZE = 4096
AHEAD = 2  # steps the host may be ahead of the device, as with a prefetching loader
Log = Callable[[dict[str, Any], int], None]


class Model:
    """A training step made of matrix products, calibrated to about five milliseconds."""

    def __init__(self) -> None:
        self.a = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) / SIZE**0.5
        self.x = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
        self.products = 1
        self.products = max(1, round(STEP_MS / self._product_ms()))

    def _product_ms(self) -> float:
        for _ in range(20):
            self.forward()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(100):
            self.forward()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 10

    def forward(self) -> Any:
        """Queue one step and return its output."""
        y = self.x
        for _ in range(self.products):
            y = y @ self.a
        return y

    def step(self) -> dict[str, Any]:
        """Queue one step and return its metrics, on the device."""
        y = self.forward()
        top = y[0].float()
        return {"loss": top.square().mean(), "grad_norm": top.norm(), "accuracy": y[0, 0] > 0}


def one_round(model: Model, log: Log, steps: int) -> dict[str, float]:
    """Run some steps; return microseconds of the call, milliseconds of the step by the device's clock."""
    calls: list[float] = []
    ends: list[Any] = []
    for step in range(steps + 5):
        metrics = model.step()
        begin = time.perf_counter_ns()
        log(metrics, step)
        calls.append((time.perf_counter_ns() - begin) / 1e3)
        end = torch.cuda.Event(enable_timing=True)
        end.record()
        ends.append(end)
        if step >= AHEAD:
            ends[step - AHEAD].synchronize()
    torch.cuda.synchronize()
    taken = [before.elapsed_time(after) for before, after in itertools.pairwise(ends[4:])]
    return {
        "call_p50_us": percentile(calls[5:], 50),
        "call_p99_us": percentile(calls[5:], 99),
        "step_mean_ms": statistics.fmean(taken),
        "step_p99_ms": percentile(taken, 99),
    }


def variants(run: Any) -> dict[str, Log]:
    """What a step may do with its three metrics."""
    held: list[Any] = []

    def hold(metrics: dict[str, Any], step: int) -> None:
        held.append(metrics)
        if len(held) > 100:
            del held[:50]

    return {
        "nothing": lambda metrics, step: None,
        "nothing, again": lambda metrics, step: None,
        "hold the references": hold,
        "stepscope.log": lambda metrics, step: run.log(metrics, step=step),
        ".item() of each": lambda metrics, step: [value.item() for value in metrics.values()] and None,
        ".item(), then stepscope.log": lambda metrics, step: run.log(
            {key: value.item() for key, value in metrics.items()}, step=step
        ),
    }


def cost(run: Any, model: Model, rounds: int, steps: int) -> dict[str, dict[str, float]]:
    """Let the variants take turns; return medians over rounds, and of the ratios to doing nothing."""
    ways = variants(run)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        order = list(ways.items())
        shift = turn % len(order)
        for name, log in order[shift:] + order[:shift]:
            row = one_round(model, log, steps)
            if turn:
                rows[name].append(row)
        print(f"round {turn} of {rounds}", file=sys.stderr, flush=True)
    alone = rows["nothing"]
    table = {}
    for name, mine in rows.items():
        table[name] = {stat: statistics.median(row[stat] for row in mine) for stat in mine[0]}
        for stat in ("step_mean_ms", "step_p99_ms"):
            ratios = [row[stat] / other[stat] for row, other in zip(mine, alone, strict=True)]
            table[name][stat.replace("_ms", "_pct")] = (statistics.median(ratios) - 1) * 100
    return table


def never_waits(run: Any, model: Model) -> list[tuple[str, bool]]:
    """Prove it twice: by torch's trap for synchronizing calls, and by returning before the device is done."""
    value = torch.ones((), device="cuda")
    trap = False
    torch.cuda.set_sync_debug_mode("error")
    try:
        value.item()
    except RuntimeError:
        trap = True
    for step in range(300):
        run.log({"never waits": value + step, "as an element": value.expand(3)[step % 3]}, step=step)
    torch.cuda.set_sync_debug_mode("default")
    still_busy, slowest = True, 0.0
    for step in range(300, 310):
        for _ in range(20):
            model.forward()
        done = torch.cuda.Event()
        done.record()
        begin = time.perf_counter()
        run.log({"never waits": value + step, "as an element": value.expand(3)[0]}, step=step)
        slowest = max(slowest, time.perf_counter() - begin)
        still_busy = still_busy and not done.query()
        torch.cuda.synchronize()
    return [
        ("torch's trap for synchronizing calls works (`.item()` sets it off)", trap),
        (f"`log` returned while the device was busy, 10 of 10 (slowest {slowest * 1e6:.0f} µs)", still_busy),
    ]


def check_never_waits(found: dict[str, dict[int, Any]]) -> tuple[str, bool]:
    """A call that sets off the trap would lose its value: all must be in the journal, and right."""
    values = found.get("never waits", {})
    ok = all(values.get(step) == step + 1.0 for step in range(310)) and len(found.get("as an element", {})) == 310
    return "310 values logged with the trap set or the device busy are all in the journal", ok


def main() -> int:
    """Measure, check, print Markdown, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    import stepscope

    with tempfile.TemporaryDirectory() as home:
        run = stepscope.init(project="bench", name="gpu", home=home, probes=False)
        model = Model()
        rounds, steps = (3, 60) if args.quick else (15, 200)
        table = cost(run, model, rounds, steps)
        facts = never_waits(run, model)
        expected = gpu_values.log_exact(run, "cuda")

        def busy() -> None:
            model.forward()

        keys = [gpu_values.log_streams(run, "cuda", busy), *gpu_values.log_changed(run, "cuda", busy)]
        facts += gpu_graphs.facts(run, busy)
        keys += [gpu_graphs.WAITING, *gpu_graphs.log_replays(run)]
        run.finish(timeout=60)
        found = gpu_values.read_back(Path(home))
    facts += [check_never_waits(found), gpu_graphs.check_inside(found)]
    checks = gpu_values.check_exact(found, expected) + gpu_values.check_pairs(found, keys)
    _print(table, facts, checks, model)
    if args.json:
        args.json.write_text(json.dumps({"cost": table, "facts": facts}, indent=1))
    return 0 if all(ok for _, ok in facts) and all(check.ok for check in checks) else 1


def _print(
    table: dict[str, dict[str, float]],
    facts: list[tuple[str, bool]],
    checks: list[gpu_values.Check],
    model: Model,
) -> None:
    name = torch.cuda.get_device_name()
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"{name}, torch {torch.__version__}, Python {python}.")
    print(f"A step is {model.products} products of {SIZE} x {SIZE} bfloat16 matrices.\n")
    print("| each step | call p50 µs | call p99 µs | step mean ms | p99 ms | mean % | p99 % |")
    print("|---|---|---|---|---|---|---|")
    for way, row in table.items():
        print(
            f"| {way} | {row['call_p50_us']:.1f} | {row['call_p99_us']:.1f} | {row['step_mean_ms']:.3f} "
            f"| {row['step_p99_ms']:.3f} | {row['step_mean_pct']:+.2f} | {row['step_p99_pct']:+.2f} |"
        )
    print("\n| fact | holds |\n|---|---|")
    for text, ok in facts:
        print(f"| {text} | {'yes' if ok else 'NO'} |")
    print("\n| values | logged | right | refused | wrong | |\n|---|---|---|---|---|---|")
    for check in checks:
        verdict = "ok" if check.ok else "WRONG"
        print(f"| {check.name} | {check.logged} | {check.right} | {check.missing} | {check.wrong} | {verdict} |")


if __name__ == "__main__":
    sys.exit(main())
