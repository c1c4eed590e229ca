"""What a real loop loses to the SDK, to a shipper, and to a hub on the same machine."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.destinations import destination, end_shipper
from benchmarks.hub_process import HubError, HubProcess
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError, Conversation, scratch
from benchmarks.timing import percentile
from stepscope.testing import read_batches

NAME = "beside"
METHOD = (
    "A loop of three milliseconds a step: as many products of matrices with torch or with numpy on all cores, or as "
    "many batches from two workers of a `DataLoader` for a small network of torch, as take so long. A step has `step`, "
    "two spans and a `log` of two values. One process runs the loop in turns: 4 s alone, 4 s with the SDK, 16 s beside "
    "a hub of low priority that nobody reads, and 4 s alone again, in changing order; then with torch and a shipper "
    "process that delivers to a server, and beside a hub whose live events are read. A turn with the SDK is a run of "
    "its own; the turns beside the hub are one run. The hub stands still in the turns of others, so that all it does "
    "falls into its own, and as its clock goes on it stores twice as often as it would. Means of the rounds; the mean "
    "of both turns alone in the same round is 0 %. `noise %` is twice the standard error of the mean: what is less "
    "cannot be told from nothing. `hub s` is the processor time of the hub for 1,000 steps, until all is stored and "
    "diagnosed."
)
NOTHING, CONTROL, PAGE, SHIPPER = "nothing", "nothing again", "hub, page", "shipper"
USUAL = (NOTHING, "SDK", "hub", CONTROL)
LOOPS = {
    "torch": (USUAL, 16),
    "numpy": (USUAL, 4),
    "loader": (USUAL, 4),
    "torch and others": ((NOTHING, SHIPPER, PAGE, CONTROL), 4),
}
"""The cases of each loop, and how many rounds: a quarter of an hour in all."""
SECONDS = 4.0
HUB_SECONDS = 16.0
"""So that some of its commits fall into its turns, as they do in a run."""
STEP_SECONDS = 0.003
SETTLE_SECONDS = 3.0
"""A new hub works for a while before anything is written."""
LIMIT_SECONDS = 120.0
WARM_UP_STEPS = 50
SIZE = 448
STATS = ("mean", "median", "p99")
Step = Callable[[], float]


def child(params: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, float]]:
    """Make the loop of this process; return what runs it for one turn and times each step."""
    step = _long_enough({"torch": _torch, "numpy": _numpy, "loader": _loader}[params["loop"].split()[0]]())
    kept: dict[str, Callable[[], None]] = {}

    def turn(question: dict[str, Any]) -> dict[str, float]:
        home, seconds = question["home"], question["seconds"]
        if home is None:
            return _summary(_timed(step, seconds))
        import stepscope

        if question["kept"]:
            if home not in kept:
                kept[home] = _recorded_in(stepscope.init(project="bench", home=home), step)
            return _summary(_timed(kept[home], seconds))
        with stepscope.init(project="bench", home=home, sinks=question["sinks"] or None) as run:
            return _summary(_timed(_recorded_in(run, step), seconds))

    return turn


def _recorded_in(run: Any, step: Step) -> Callable[[], None]:
    steps = itertools.count()

    def recorded() -> None:
        with run.step(next(steps)):
            with run.span("forward"):
                value = step()
            with run.span("optimizer"):
                pass
        run.log({"loss": value, "lr": 1e-3})

    return recorded


def _long_enough(part: Step) -> Step:
    """A step of as many parts as take `STEP_SECONDS` on this machine."""
    times = sorted(_timed(part, 1.0))
    count = max(1, round(STEP_SECONDS / times[len(times) // 2]))
    return lambda: sum(part() for _ in range(count))


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


def _timed(step: Callable[[], object], seconds: float) -> list[float]:
    for _ in range(WARM_UP_STEPS):
        step()
    times: list[float] = []
    began = time.perf_counter()
    end = began + seconds
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
        try:
            rounds = _rounds(loop, cases, 1 if options.quick else count, progress)
        except (HubError, ChildError, OSError) as error:
            progress(f"beside: SKIPPED: {error}")
            found.append(Result(NAME, loop, OURS, skipped=str(error)))
            continue
        found += [Result(NAME, f"{loop}, {case}", OURS, _stats(rounds, case)) for case in cases]
    return found


def _stats(rounds: list[dict[str, dict[str, float]]], case: str) -> dict[str, float]:
    def ratio(each: dict[str, dict[str, float]], stat: str) -> float:
        """How many times as long as alone; the second loop alone is compared with the first."""
        alone = each[NOTHING][stat] if case == CONTROL else (each[NOTHING][stat] + each[CONTROL][stat]) / 2
        return each[case][stat] / alone

    ratios = {stat: [ratio(each, stat) for each in rounds] for stat in STATS}
    shown = {f"{stat}_pct": (statistics.fmean(times) - 1) * 100 for stat, times in ratios.items()}
    shown["step_ms"] = statistics.fmean(each[case]["mean"] for each in rounds)
    if len(rounds) > 1:
        shown["noise_pct"] = 200 * statistics.stdev(ratios["mean"]) / len(rounds) ** 0.5
    return shown | ({"hub_s": rounds[0][case]["hub_s"]} if "hub_s" in rounds[0][case] else {})


def _rounds(loop: str, cases: tuple[str, ...], count: int, progress: Progress) -> list[dict[str, dict[str, float]]]:
    """Run the cases in one process, beside one hub that is let on only in its turns."""
    with scratch() as folder, contextlib.ExitStack() as undo:
        hub = HubProcess(folder)
        undo.callback(hub.close)
        time.sleep(SETTLE_SECONDS)
        talk = Conversation("benchmarks.measures.beside", {"loop": loop}, folder)
        undo.callback(talk.close)
        os.killpg(hub.pid, signal.SIGSTOP)
        homes = {"SDK": folder / "alone", SHIPPER: folder / "shipped", "hub": hub.home, PAGE: hub.home}
        sinks = {}
        if SHIPPER in cases:
            sinks[SHIPPER] = [{"otlp": {"endpoint": undo.enter_context(destination("takes", folder))}}]
            undo.callback(end_shipper, homes[SHIPPER])
        before, rounds = hub.cpu_s(), []
        for turn in range(count):
            progress(f"beside: {loop}, round {turn + 1}")
            first, found = turn % len(cases), {}
            for case in (*cases[first:], *cases[:first]):
                beside = homes.get(case) == hub.home
                home = str(homes[case]) if case in homes else None
                with _working(hub, case == PAGE) if beside else contextlib.nullcontext():
                    seconds = HUB_SECONDS if beside else SECONDS
                    question = {"home": home, "sinks": sinks.get(case), "seconds": seconds, "kept": beside}
                    found[case] = talk.ask(question)
            rounds.append(found)
        with _working(hub, False):
            hub.wait_stored("folder", _recorded(hub.home), LIMIT_SECONDS, pause_s=1.0)
            _wait_diagnosed(hub)
        steps = sum(each[case]["steps"] for each in rounds for case in cases if homes.get(case) == hub.home)
        for case in ("hub", PAGE):
            for each in rounds:
                if case in each:
                    each[case]["hub_s"] = (hub.cpu_s() - before) / steps * 1000
        return rounds


@contextlib.contextmanager
def _working(hub: HubProcess, read: bool) -> Iterator[None]:
    """Let a hub that stands still go on for the length of a block, and be read as by a page if so wished."""
    os.killpg(hub.pid, signal.SIGCONT)
    try:
        with _page(hub) if read else contextlib.nullcontext():
            yield
    finally:
        os.killpg(hub.pid, signal.SIGSTOP)


def _wait_diagnosed(hub: HubProcess) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while (found := hub.get("/api/health")["diagnosis"])["queued_records"] or found["waiting_runs"]:
        if time.monotonic() > deadline:
            raise HubError(f"not diagnosed after {LIMIT_SECONDS:.0f} s: {found}")
        time.sleep(1.0)


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
    """Count the records that the loops wrote in the home of the hub."""
    runs = (home / "runs").iterdir()
    return sum(len(batch.records) for run in runs for batch in read_batches(home, run.name))
