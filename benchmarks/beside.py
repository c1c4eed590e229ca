"""What a real loop loses to the SDK, and to a hub on the same machine: `python -m benchmarks.beside`.

A loop of PyTorch on all cores takes about 3 ms a step. Each round runs it without Stepscope, with the SDK, and with the
SDK beside a hub of normal and of low priority, in turn; ratios are of the same round. The hub's processor time for
1,000 steps hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.hub_process import HubProcess
from benchmarks.spawn import fresh, scratch
from stepscope.testing import read_batches

NOTHING = "nothing"
CASES = {NOTHING: None, "SDK": None, "SDK, hub normal": "normal", "SDK, hub low": "low"}
"""The subjects, and the priority of the hub beside them."""
WARM_UP_STEPS = 200
LIMIT_SECONDS = 120.0
"""Time that the hub has to store what is left after the loop."""
SETTLE_SECONDS = 5.0
"""A new hub works for a while before anything is written."""


def child(params: dict[str, Any]) -> dict[str, float]:
    """Run the loop in this process and time each step."""
    step = _torch_step(params["size"])
    if params["case"] == NOTHING:
        return _summary(_timed(step, params))
    import stepscope

    with stepscope.init(project="bench", home=params["home"]) as run:
        steps = itertools.count()

        def recorded() -> None:
            with run.step(next(steps)):
                with run.span("forward"):
                    value = step()
                with run.span("optimizer"):
                    pass
            run.log({"loss": value, "lr": 1e-3})

        return _summary(_timed(recorded, params))


def _torch_step(size: int) -> Any:
    import torch

    torch.manual_seed(0)
    left, right = torch.randn(size, size), torch.randn(size, size)

    def step() -> float:
        return float(torch.tanh(left @ right).mean())

    return step


def _timed(call: Any, params: dict[str, Any]) -> list[float]:
    for _ in range(WARM_UP_STEPS):
        call()
    times: list[float] = []
    began = time.perf_counter()
    end = began + params["seconds"]
    while began < end:
        call()
        times.append(time.perf_counter() - began)
        if params["every"]:
            time.sleep(max(params["every"] - times[-1], 0.0))
        began = time.perf_counter()
    return times


def _summary(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "mean": statistics.fmean(times) * 1e3,
        "median": statistics.median(times) * 1e3,
        "p99": ordered[int(len(ordered) * 0.99)] * 1e3,
        "steps": len(times) + WARM_UP_STEPS,
    }


def measure(case: str, options: dict[str, Any]) -> dict[str, float]:
    """Run one case; with a hub also its processor time until all is stored."""
    priority = CASES[case]
    with scratch() as folder, contextlib.ExitStack() as undo:
        params = {**options, "case": case, "home": str(folder / "home")}
        if priority is None:
            return dict(fresh("benchmarks.beside", params))
        hub = HubProcess(folder, "--priority", priority)
        undo.callback(hub.close)
        time.sleep(SETTLE_SECONDS)
        before = hub.cpu_s()
        found = dict(fresh("benchmarks.beside", params))
        began = time.monotonic()
        hub.wait_stored("folder", _recorded(hub.home), LIMIT_SECONDS, pause_s=1.0)
        behind = time.monotonic() - began
        return found | {"hub_s": (hub.cpu_s() - before) / found["steps"] * 1000, "behind_s": behind}


def _recorded(home: Path) -> int:
    """Count the records that the loop wrote in the home of the hub."""
    (run,) = (home / "runs").iterdir()
    return sum(len(batch.records) for batch in read_batches(home, run.name))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each loop (15)")
    parser.add_argument("--size", type=int, default=448, help="rows of the matrices (448, 3 ms on two cores)")
    parser.add_argument("--case", action="append", choices=tuple(CASES), help="one case besides the first (all)")
    parser.add_argument("--every", type=float, default=0.0, help="least seconds between the starts of two steps (0)")
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    cases = [NOTHING, *(args.case or list(CASES)[1:])]
    ratios: dict[str, dict[str, list[float]]] = {case: {} for case in cases}
    for _ in range(args.rounds):
        round_of = {case: measure(case, vars(args)) for case in cases}
        for case, found in round_of.items():
            print(f"  {case:<16} " + "  ".join(f"{key} {value:.3f}" for key, value in found.items()), flush=True)
            for key in ("mean", "median", "p99"):
                ratios[case].setdefault(key, []).append((found[key] / round_of[NOTHING][key] - 1) * 100)
            if "hub_s" in found:
                ratios[case].setdefault("hub_s", []).append(found["hub_s"])
    print("\n| beside the loop | mean | median | p99 | CPU seconds of the hub for 1,000 steps |\n|---|---|---|---|---|")
    for case in cases[1:]:
        middle = {key: statistics.median(values) for key, values in ratios[case].items()}
        shown = " | ".join(f"{middle[key]:+.1f} %" for key in ("mean", "median", "p99"))
        print(f"| {case} | {shown} | {middle['hub_s']:.3f} |" if "hub_s" in middle else f"| {case} | {shown} | |")


if __name__ == "__main__":
    main()
