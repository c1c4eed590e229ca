"""Real DDP and FSDP that go wrong: four processes over gloo with `instrument()`, no span by the user, a fault each."""

import argparse
import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.zoo.evaluate import write
from stepscope.cli.journal_diagnosis import JournalDiagnosis

BEGIN, END = "<!-- ddp -->", "<!-- /ddp -->"
WORLD = 4
AT = 25
"""The step at which a rank goes wrong."""
RUN = "ddp"
LINGER_SECONDS = 7.0
"""How long a hang that was named goes on before the ranks are ended."""
LATE_SECONDS = 0.03
"""How late a straggler is at each step; on a busy machine as long as a usual step of its run, else it is none."""
ENOUGH = "enough"
"""A file in the home: the ranks have trained long enough."""
MOST_STEPS = 1_000
"""Ranks that wait for that file train no longer than this."""
Found = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A fault: the rank that has it, what it is called, and words of the text and cause."""

    rank: int
    kinds: tuple[str, ...]
    words: tuple[str, ...] = ()
    steps: int = 10_000
    until_named: bool = False
    """Whether it trains on after these steps until it is named: on a busy machine that takes more of them."""
    ends: bool = False
    """Whether the launcher ends the others, which must not change the finding."""
    instrumented: bool = True
    sharded: bool = False
    """Whether the weights are sharded by FSDP, instead of replicated by DDP."""

    @property
    def hangs(self) -> bool:
        """Whether its ranks never end."""
        return not self.ends and self.steps == 10_000


CASES: dict[str, Case] = {
    "sleeps": Case(2, ("hang",), ("rank 2 never arrived", "pause")),
    "sleeps_init_alone": Case(2, ("hang",), ("rank 2 never arrived", "pause"), instrumented=False),
    "stopped": Case(2, ("hang",), ("rank 2 never arrived",)),
    "mismatch": Case(2, ("collective_mismatch",), ("rank 2 in broadcast", "ranks 0, 1, 3 in all_reduce")),
    "mismatch_ahead": Case(2, ("collective_mismatch",), ("rank 2 in broadcast", "ranks 0, 1, 3 in all_reduce")),
    "straggler": Case(1, ("straggler",), ("rank 1",), steps=AT + 60, until_named=True),
    "straggler_between": Case(1, ("straggler",), ("rank 1",), steps=AT + 60, until_named=True),
    "oom": Case(2, ("crash",), ("rank 2", "memory of the GPU"), ends=True),
    "killed": Case(2, ("dead_rank",), ("rank 2", "SIGKILL"), ends=True),
    "perturbed": Case(3, ("replicas_differ",), ("rank 3",), steps=AT + 60, until_named=True),
    "healthy": Case(-1, (), steps=AT + 60),
    "fsdp_healthy": Case(-1, (), steps=AT + 60, sharded=True),
    "fsdp_sleeps": Case(2, ("hang",), ("rank 2 never arrived", "pause"), sharded=True),
    "fsdp_raises": Case(2, ("crash",), ("rank 2", "a batch that cannot be read"), ends=True, sharded=True),
}


def pause(seconds: float) -> None:
    """Do nothing for a while; the name shows in the stack."""
    time.sleep(seconds)


def train(name: str, rank: int, home: Path) -> None:
    """Be one rank of a small DDP training, and go wrong if it is this one."""
    import torch
    from torch import distributed, nn

    import stepscope
    from stepscope.integrations.torch import instrument

    log = os.open(home / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    torch.set_num_threads(1)
    torch.manual_seed(7)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), STEPSCOPE_HOME=str(home), STEPSCOPE_CONSOLE="true"
    )
    distributed.init_process_group("gloo", init_method=f"file://{home}/meeting", rank=rank, world_size=WORLD)
    run = stepscope.init(run_id=RUN, otel=False, quiet=True)
    if CASES[name].instrumented:
        instrument()
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    wrapped = _sharded(model) if CASES[name].sharded else nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)
    late = LATE_SECONDS
    took = []
    for step in range(MOST_STEPS if CASES[name].until_named else CASES[name].steps):
        began = time.monotonic()
        faulty = rank == CASES[name].rank and step >= AT
        if faulty and step == AT:
            late = max(LATE_SECONDS, median(took))
        if faulty and name == "straggler_between":
            time.sleep(late)
        with run.step(step):
            if faulty:
                _go_wrong(name, step, model, late)
            inputs = torch.rand(128, 32)
            loss = (wrapped(inputs) - 3 * inputs[:, :8].mean(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = torch.stack((loss.detach(), torch.tensor(float((home / ENOUGH).exists()))))
            if faulty and step == AT and name.startswith("mismatch"):
                distributed.broadcast(mean, src=0 if name == "mismatch" else rank)
            else:
                distributed.all_reduce(mean)
            run.log({"loss": loss.item(), "mean_loss": float(mean[0]) / WORLD})
        took.append(time.monotonic() - began)
        if step + 1 >= CASES[name].steps and float(mean[1]):  # all ranks read the same
            break
    distributed.barrier()
    run.finish()


def _sharded(model: Any) -> Any:
    """Shard each layer, and the rest, over all ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORLD,))
    for layer in model[::2]:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _go_wrong(name: str, step: int, model: Any, late: float) -> None:
    import torch

    if name == "straggler":
        time.sleep(late)
    if step != AT:
        return
    if "sleeps" in name:
        pause(3600)
    elif name == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif name == "oom":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.1 GiB in all.")
    elif name == "fsdp_raises":
        raise ValueError("a batch that cannot be read")
    elif name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "perturbed":
        with torch.no_grad():
            model[2].weight.mul_(1.01)


def _import_torch() -> None:
    """Import what the ranks need, once for all that are forked from this process."""
    for module in ("torch.distributed", "torch._dynamo", "stepscope.integrations.torch"):
        importlib.import_module(module)


class Launcher:
    """Four ranks; when one fails the others get SIGTERM, as torchrun does, and SIGKILL if they do not end."""

    def __init__(self, name: str, home: Path) -> None:
        _import_torch()
        ready = multiprocessing.get_context("fork")  # a child is reaped when it is looked at, as by torchrun
        self._processes = [ready.Process(target=train, args=(name, rank, home)) for rank in range(WORLD)]
        self._failed_at = 0.0
        for process in self._processes:
            process.start()

    def look(self) -> bool:
        """End the others if one failed; return whether any still runs."""
        codes = [process.exitcode for process in self._processes]
        if any(code not in (None, 0) for code in codes) and not self._failed_at:
            self._failed_at = time.monotonic()
            self._signal(signal.SIGTERM)
        elif self._failed_at and time.monotonic() - self._failed_at > 5.0:
            self._signal(signal.SIGKILL)
        return any(code is None for code in codes)

    def _signal(self, number: int) -> None:
        for process in self._processes:
            if process.exitcode is None and process.pid is not None:
                os.kill(process.pid, number)

    def stop(self) -> None:
        """End the ranks that still run."""
        for process in self._processes:
            process.kill()
            process.join()


@dataclass
class Outcome:
    """What was found: when the case was named, and at the end."""

    named: bool
    seconds: float
    """From the first time that something was found."""
    first: Found = field(default_factory=list)
    last: Found = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether it was named, and at the end still is."""
        return self.named


def above_info(found: Found) -> Found:
    """Return the findings that are more than a remark."""
    return [each for each in found if each["severity"] != "INFO"]


def is_named(case: Case, found: Found) -> bool:
    """Whether the findings above INFO are those of the case, and no others."""
    grave = above_info(found)
    if not case.kinds:
        return not grave
    mine = [each for each in grave if each["kind"] in case.kinds and each["ranks"] == [case.rank]]
    rest = [each for each in grave if each not in mine]
    text = " ".join([each["text"] + each["cause"] + " ".join(each["symptoms"]) for each in mine])
    return len(mine) == 1 and not rest and all(word in text for word in case.words)


def run_case(name: str, seconds: float = 600.0, keep: Callable[[Path], None] = lambda home: None) -> Outcome:
    """Run a case until it is named, or its ranks ended; then end them, and diagnose what is left once more."""
    case = CASES[name]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        began = time.monotonic()
        launcher = Launcher(name, home)
        diagnosis = JournalDiagnosis(home, RUN)
        named, found, at = False, [], 0.0
        try:
            settled = 0
            while time.monotonic() - began < seconds and settled < 3:
                running = launcher.look()
                settled += not running
                while diagnosis.advance(0.5):
                    pass
                found = diagnosis.findings()
                if not named and case.kinds and is_named(case, found):
                    named, at = True, time.monotonic() - began
                    (home / ENOUGH).touch()
                if named and running and case.hangs and time.monotonic() - began > at + LINGER_SECONDS:
                    break
                time.sleep(0.1 if running else 1.0)
        finally:
            launcher.stop()
        time.sleep(1.0)
        fresh = JournalDiagnosis(home, RUN)
        while fresh.advance(5.0):
            pass
        last = fresh.findings()
        keep(home)
        return Outcome(is_named(case, found) and is_named(case, last), at, found, last)


def describe(found: Iterable[dict[str, Any]]) -> str:
    """Findings as lines."""
    return "\n".join(
        f"    {each['severity']} {each['kind']} {each['ranks']}: {each['text']}\n      {each['cause']}"
        + "".join(f"\n      - {symptom}" for symptom in each["symptoms"])
        for each in found
    )


@dataclass
class Tally:
    """What became of the repetitions of a case."""

    times: int = 0
    right: int = 0
    seconds: list[float] = field(default_factory=list)
    wrong: Counter[str] = field(default_factory=Counter)
    """What was said instead, and how often."""

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self.times += 1
        self.right += outcome.right
        if outcome.right:
            self.seconds.append(outcome.seconds)
        else:
            grave = above_info([*outcome.first, *outcome.last])
            self.wrong[", ".join(sorted({f"`{each['kind']}` {each['ranks']}" for each in grave})) or "nothing"] += 1


def table(found: dict[str, Tally]) -> str:
    """How often each case was right, when it was named, and what was said where it was wrong."""
    lines = ["| case | right | named after, median | longest | said where wrong |", "|---|---|---|---|---|"]
    for name, tally in found.items():
        took = sorted(tally.seconds)
        times = f"{took[len(took) // 2]:.1f} s | {took[-1]:.1f} s" if took and CASES[name].kinds else " | "
        wrong = "; ".join(f"{text} ({times} times)" for text, times in tally.wrong.most_common(3))
        lines.append(f"| {name} | {tally.right} of {tally.times} | {times} | {wrong} |")
    return "\n".join(lines)


def main() -> int:
    """Run cases several times and print how often each was right; 1 when one was not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all if none is given")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1, help="cases that run beside each other; most of them wait")
    parser.add_argument("--verbose", action="store_true", help="print findings that are right too")
    parser.add_argument("--write", type=Path, help="a page to put the table into")
    args = parser.parse_args()
    found = {name: Tally() for name in args.cases or CASES}
    loads = [os.getloadavg()[0]]
    _import_torch()
    with ProcessPoolExecutor(args.at_once, multiprocessing.get_context("fork")) as pool:
        names = [name for _ in range(args.times) for name in found]
        for name, outcome in zip(names, pool.map(run_case, names), strict=True):
            found[name].add(outcome)
            loads.append(os.getloadavg()[0])
            print(f"{name}: {'right' if outcome.right else 'WRONG'} after {outcome.seconds:.1f} s", flush=True)
            if args.verbose or not outcome.right:
                print(f"  live:\n{describe(outcome.first)}\n  afterwards:\n{describe(outcome.last)}", flush=True)
    text = f"{table(found)}\n\n{os.cpu_count()} cores, load {min(loads):.0f} to {max(loads):.0f}."
    print(text)
    if args.write:
        write(args.write, text, BEGIN, END)
    return int(any(each.right < each.times for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
