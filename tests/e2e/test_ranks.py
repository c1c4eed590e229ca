"""The ranks of a job record into one run, each with its rank, without coordination."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.journal import layout
from stepscope.model.records import Metric

Read = Callable[..., Any]

TRAIN = """
    import os
    import stepscope

    run = stepscope.init()
    rank = int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or os.environ["OMPI_COMM_WORLD_RANK"])
    for step in range(20):
        run.log({"rank": rank}, step=step)
    if os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0" and rank == 1 and "FAIL" in os.environ:
        raise RuntimeError("lost a GPU")
"""
LAUNCHERS = {
    "torchrun": {
        "RANK": "{rank}",
        "LOCAL_RANK": "{rank}",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "job7",
        "TORCHELASTIC_RESTART_COUNT": "0",
    },
    "torchrun without an id": {
        "RANK": "{rank}",
        "LOCAL_RANK": "{rank}",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "none",
    },
    "torch.multiprocessing": {
        "RANK": "{rank}",
        "LOCAL_RANK": "{rank}",
        "WORLD_SIZE": "4",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "1234",
    },
    "slurm": {
        "SLURM_PROCID": "{rank}",
        "SLURM_LOCALID": "{rank}",
        "SLURM_NTASKS": "4",
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "0",
    },
    "mpi": {
        "OMPI_COMM_WORLD_RANK": "{rank}",
        "OMPI_COMM_WORLD_LOCAL_RANK": "{rank}",
        "OMPI_COMM_WORLD_SIZE": "4",
        "PMIX_NAMESPACE": "prterun-host-12@1",
    },
}


def check(batches: Read, home: Any, attempts: int = 1) -> None:
    """See that one run holds the right ranks in every attempt, and all four in the last."""
    (run,) = layout.list_runs(home)
    found = [each for each in {batch.writer.id: batch.writer for batch in batches(run=run)}.values() if each.main]
    ranks = Counter((writer.attempt, writer.rank) for writer in found)
    assert set(ranks.values()) == {1}
    assert {attempt for attempt, _ in ranks} == set(range(1, attempts + 1))
    assert {rank for attempt, rank in ranks if attempt == attempts} == set(range(4))
    assert all((writer.local_rank, writer.world_size) == (writer.rank, 4) for writer in found)
    for batch in batches(run=run):
        ranks = {r.values["rank"] for r in batch.records if isinstance(r, Metric) and "rank" in r.values}
        assert ranks <= {batch.writer.rank}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_four_ranks_by_variables(start: Any, batches: Read, home: Any, launcher: str) -> None:
    """Four processes with a launcher's variables, started together, are one run with four ranks."""
    ranks = []
    for rank in range(4):
        variables = {key: value.format(rank=rank) for key, value in LAUNCHERS[launcher].items()}
        ranks.append(start(TRAIN, env={**variables, "STEPSCOPE_RUN_ID": None}))
    for program in ranks:
        done = program.wait()
        assert (done.returncode, done.stderr) == (0, "")
    check(batches, home)
    (run,) = layout.list_runs(home)
    steps = [
        r.step for batch in batches(run=run) for r in batch.records if isinstance(r, Metric) and "rank" in r.values
    ]
    assert Counter(steps) == dict.fromkeys(range(20), 4)


@pytest.mark.parametrize("rendezvous", ["--standalone", "--master-port=29571"])
def test_real_torchrun(start: Any, batches: Read, home: Any, rendezvous: str) -> None:
    """Under the real torchrun four ranks are one run, and its restart after a failure is the second attempt."""
    pytest.importorskip("torch", reason="torch is not installed")
    options = ("--nproc-per-node=4", "--max-restarts=1", "--monitor-interval=0.1", rendezvous)
    agent = start(TRAIN, *options, module="torch.distributed.run", env={"STEPSCOPE_RUN_ID": None, "FAIL": "1"})
    done = agent.wait(300)
    assert done.returncode == 0, done.stderr
    check(batches, home, attempts=2)
