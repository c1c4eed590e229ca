"""Real ranks that go wrong: processes with a gloo collective, of which one never joins it or is killed."""

import argparse
import multiprocessing
import os
import signal
import tempfile
import time
from pathlib import Path

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.record_order import in_order
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.journal.layout import list_writers, writer_folder
from stepscope.journal.segments import Tail

WORLD = 3
FAULTY = 1
"""The rank that goes wrong, at this step:"""
AT = 30
RUN = "ranks"
PACE_SECONDS = 0.05


def train(how: str, rank: int, home: Path) -> None:
    """Be one rank: compute, meet the others in an all-reduce, record; go wrong in one of two ways."""
    import torch
    from torch import distributed

    import stepscope

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(WORLD), "STEPSCOPE_HOME": str(home)})
    meeting = home / "meeting"
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD)
    run = stepscope.init(run_id=RUN, probes=False, otel=False, quiet=True)
    for step in range(10_000):
        with run.step(step):
            with run.span("train.data_load"):
                time.sleep(PACE_SECONDS)
                if rank == FAULTY and step == AT:
                    if how == "kill":
                        run.flush()
                        os.kill(os.getpid(), signal.SIGKILL)
                    time.sleep(600)
            with run.span("all_reduce"):
                value = torch.ones(1000)
                distributed.all_reduce(value)
            run.log({"loss": 2.0 / (1 + step / 50), "sum": value.sum().item()})


class Ranks:
    """Running ranks, and the diagnosis of what they record."""

    def __init__(self, how: str, home: Path) -> None:
        self._home = home
        self.diagnosis = Diagnosis(world=WORLD)
        self._tails: dict[str, Tail] = {}
        ready = multiprocessing.get_context("forkserver")  # torch is imported once for all ranks
        ready.set_forkserver_preload(["torch.distributed", "stepscope"])
        self._processes = [ready.Process(target=train, args=(how, rank, home)) for rank in range(WORLD)]
        for process in self._processes:
            process.start()

    def look(self) -> None:
        """Read what is new, and see who is gone and what time it is."""
        for name in list_writers(self._home, RUN):
            self._tails.setdefault(name, Tail(writer_folder(self._home, RUN, name)))
        for each in in_order([batch for tail in self._tails.values() for batch in tail.read()]):
            self.diagnosis.feed(each.rank, each.record, each.attempt, each.host)
        for rank, process in enumerate(self._processes):
            if process.exitcode == -signal.SIGKILL:
                self.diagnosis.died(rank, time.time_ns())
        self.diagnosis.tick(time.time_ns())

    def stop(self) -> None:
        """End the ranks that still run."""
        for process in self._processes:
            process.kill()
            process.join()


def find(how: str, kind: str, seconds: float = 300.0) -> list[Finding]:
    """Run ranks until a kind is found, or so many seconds have passed, and return the findings."""
    with tempfile.TemporaryDirectory() as home:
        ranks = Ranks(how, Path(home))
        try:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                ranks.look()
                found = ranks.diagnosis.findings()
                if any(each.kind == kind for each in found):
                    return found
                time.sleep(0.2)
            return ranks.diagnosis.findings()
        finally:
            ranks.stop()


def main() -> None:
    """Run all ranks and print what is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=("hang", "kill"))
    args = parser.parse_args()
    for each in find(args.how, "hang" if args.how == "hang" else "dead_rank"):
        print(f"{each.severity} {each.kind} {each.ranks}: {each.text}")


if __name__ == "__main__":
    main()
