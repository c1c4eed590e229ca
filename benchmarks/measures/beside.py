"""What a real loop loses to the SDK, to a shipper, and to a hub on the same machine."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.destinations import destination, end_shipper
from benchmarks.hub_process import HubError, HubProcess
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError, fresh, scratch
from benchmarks.timing import percentile
from stepscope.hub.intake.store_pump import QUIET_PACE_SECONDS
from stepscope.testing import read_batches

NAME = "beside"
METHOD = (
    "A loop of a few milliseconds a step for 40 s, twice as long as commits are apart, in a process of its own: "
    "products of matrices with torch and with numpy on all cores, and a small network of torch that gets its batches "
    "from two workers of a `DataLoader`. A step has `step`, two spans and a `log` of two values. Each round runs the "
    "loop alone, with the SDK, with the SDK and a shipper process that delivers to a server, beside a hub of low "
    "priority, beside one whose live events are read (the last three with torch), and alone again, in changing order; "
    "the mean of both loops alone is 0 %, and what `nothing again` shows is noise: processes differ by a few percent "
    "from birth. Medians of the rounds. `hub s` is the processor time of the hub for 1,000 steps, until all is stored."
)
NOTHING, CONTROL = "nothing", "nothing again"
CASES = (NOTHING, "SDK", "shipper", "hub", "hub, page", CONTROL)
FEWER = (NOTHING, "SDK", "hub", CONTROL)
LOOPS = {"torch": (CASES, 2), "numpy": (FEWER, 1), "loader": (FEWER, 1)}
"""The cases of each loop, and how many rounds."""
SECONDS = 2 * QUIET_PACE_SECONDS
SETTLE_SECONDS = 3.0
"""A new hub works for a while before anything is written."""
LIMIT_SECONDS = 120.0
WARM_UP_STEPS = 50
SIZE = 448
STATS = ("mean", "median", "p99")
Step = Callable[[], float]


def child(params: dict[str, Any]) -> dict[str, float]:
    """Run one loop in this process and time each step."""
    step = {"torch": _torch, "numpy": _numpy, "loader": _loader}[params["loop"]]()
    if params["case"] in (NOTHING, CONTROL):
        return _summary(_timed(step))
    import stepscope

    with stepscope.init(project="bench", home=params["home"], sinks=params["sinks"] or None) as run:
        steps = itertools.count()

        def recorded() -> None:
            with run.step(next(steps)):
                with run.span("forward"):
                    value = step()
                with run.span("optimizer"):
                    pass
            run.log({"loss": value, "lr": 1e-3})

        return _summary(_timed(recorded))


def _torch() -> Step:
    import torch

    torch.manual_seed(0)
    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    return lambda: float(torch.tanh(left @ right).mean())


def _numpy() -> Step:
    import numpy as np

    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((SIZE, SIZE), dtype="f4") for _ in range(2))
    return lambda: float(np.tanh(left @ right).mean())


def _loader() -> Step:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    data = DataLoader(TensorDataset(torch.randn(16384, 64)), batch_size=256, num_workers=2, persistent_workers=True)
    batches = itertools.chain.from_iterable(itertools.repeat(data))

    def step() -> float:
        loss = net(next(batches)[0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss)

    return step


def _timed(step: Step) -> list[float]:
    for _ in range(WARM_UP_STEPS):
        step()
    times: list[float] = []
    began = time.perf_counter()
    end = began + SECONDS
    while began < end:
        step()
        now = time.perf_counter()
        times.append(now - began)
        began = now
    return times


def _summary(times: list[float]) -> dict[str, float]:
    return {
        "mean": statistics.fmean(times) * 1e3,
        "median": statistics.median(times) * 1e3,
        "p99": percentile(times, 99) * 1e3,
        "steps": float(len(times) + WARM_UP_STEPS),
    }


def measure(options: Options, progress: Progress) -> list[Result]:
    """Let the cases take turns."""
    if OURS not in options.subjects:
        return []
    found: list[Result] = []
    for loop, (cases, count) in LOOPS.items():
        if options.quick and found:
            break
        rounds: list[dict[str, dict[str, float]]] = []
        try:
            for turn in range(1 if options.quick else count):
                progress(f"beside: {loop}, round {turn + 1}")
                rounds.append({case: _one(loop, case) for case in (*cases[turn:], *cases[:turn])})
        except (HubError, ChildError, OSError) as error:
            progress(f"beside: SKIPPED: {error}")
            found.append(Result(NAME, loop, OURS, skipped=str(error)))
            continue
        found += [Result(NAME, f"{loop}, {case}", OURS, _stats(rounds, case)) for case in cases]
    return found


def _stats(rounds: list[dict[str, dict[str, float]]], case: str) -> dict[str, float]:
    def middle(name: str) -> float:
        return statistics.median(each[case][name] for each in rounds)

    def ratio(each: dict[str, dict[str, float]], stat: str) -> float:
        """How many times as long as alone; the second loop alone is compared with the first."""
        alone = each[NOTHING][stat] if case == CONTROL else (each[NOTHING][stat] + each[CONTROL][stat]) / 2
        return each[case][stat] / alone

    ratios = {stat: statistics.median(ratio(each, stat) for each in rounds) for stat in STATS}
    shown = {f"{stat}_pct": (times - 1) * 100 for stat, times in ratios.items()} | {"step_ms": middle("mean")}
    if case == CONTROL:
        shown["noise_pct"] = statistics.median(abs(ratio(each, "mean") - 1) * 100 for each in rounds)
    return shown | ({"hub_s": middle("hub_s")} if "hub_s" in rounds[0][case] else {})


def _one(loop: str, case: str) -> dict[str, float]:
    """Run one loop in one case."""
    with scratch() as folder, contextlib.ExitStack() as undo:
        params: dict[str, Any] = {"loop": loop, "case": case, "home": str(folder / "home"), "sinks": []}
        if case == "shipper":
            params["sinks"] = [{"otlp": {"endpoint": undo.enter_context(destination("takes", folder))}}]
            undo.callback(end_shipper, folder / "home")
        if not case.startswith("hub"):
            return dict(fresh("benchmarks.measures.beside", params))
        hub = HubProcess(folder)
        undo.callback(hub.close)
        time.sleep(SETTLE_SECONDS)
        before = hub.cpu_s()
        with _page(hub) if case == "hub, page" else contextlib.nullcontext():
            found = dict(fresh("benchmarks.measures.beside", params))
        time.sleep(QUIET_PACE_SECONDS + 1.0)  # asking makes it store at once, and more often
        hub.wait_stored("folder", _recorded(hub.home), LIMIT_SECONDS, pause_s=1.0)
        return found | {"hub_s": (hub.cpu_s() - before) / found["steps"] * 1000}


@contextlib.contextmanager
def _page(hub: HubProcess) -> Iterator[None]:
    """Read live events and the list of runs, as an open page does."""
    over = threading.Event()

    def read() -> None:
        while not over.wait(2.0):
            hub.get("/api/runs")

    reading = threading.Thread(target=read, daemon=True)
    with hub.stream("/api/live"):
        reading.start()
        yield
        over.set()
        reading.join()


def _recorded(home: Path) -> int:
    """Count the records that the loop wrote in the home of the hub."""
    (run,) = (home / "runs").iterdir()
    return sum(len(batch.records) for batch in read_batches(home, run.name))
