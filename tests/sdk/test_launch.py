"""Run id, rank and world size from the launchers' variables."""

import pytest

from stepscope.journal.layout import is_safe
from stepscope.model.errors import ConfigError
from stepscope.model.redaction import redact
from stepscope.sdk import launch


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, (None, 0, 1, 0, "none")),
        (
            {"TORCHELASTIC_RUN_ID": "job 7", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"},
            ("torchrun-job-7", 3, 4, 1, "torchrun"),
        ),
        (
            {
                "SLURM_JOB_ID": "99",
                "SLURM_PROCID": "2",
                "SLURM_NTASKS": "8",
                "SLURM_LOCALID": "2",
                "SLURM_STEP_ID": "0",
            },
            ("slurm-99-0", 2, 8, 2, "slurm"),
        ),
        (
            {
                "SLURM_JOB_ID": "100",
                "SLURM_ARRAY_JOB_ID": "99",
                "SLURM_ARRAY_TASK_ID": "5",
                "SLURM_PROCID": "0",
            },
            ("slurm-99-5", 0, 1, 0, "slurm"),
        ),
        (
            {"PMIX_NAMESPACE": "prterun-a@1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
            ("mpi-prterun-a-1", 1, 2, 0, "mpi"),
        ),
        ({"RANK": "x", "WORLD_SIZE": "-3"}, (None, 0, 1, 0, "none")),
    ],
)
def test_launchers(env: dict[str, str], expected: tuple[object, ...]) -> None:
    """Each launcher's variables give the same five facts; nonsense falls back to rank 0 of 1."""
    assert tuple(launch.detect(env))[:5] == expected


def test_our_own_variable_is_checked() -> None:
    """A rank set for Stepscope wins."""
    for text in ("-1", "x"):
        with pytest.raises(ConfigError, match=f"STEPSCOPE_RANK='{text}' must be a non-negative integer"):
            launch.detect({"STEPSCOPE_RANK": text})


def test_torchrun_without_an_id() -> None:
    """Without a rendezvous id the workers of one agent share an id that is safe in a path."""
    env = {
        "TORCHELASTIC_RUN_ID": "none",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    first, second = launch.detect({**env, "RANK": "0"}), launch.detect({**env, "RANK": "1"})
    assert first.run == second.run
    assert first.run is not None
    assert is_safe(first.run)
    assert launch.detect({**env, "MASTER_PORT": "2"}).run != first.run


def test_ray_jobs_of_two_clusters_differ() -> None:
    """Ray counts jobs from one in each cluster, so the address is part of the id."""
    one = launch.detect({"RAY_JOB_ID": "01", "RAY_ADDRESS": "a:1"}).run
    two = launch.detect({"RAY_JOB_ID": "01", "RAY_ADDRESS": "b:1"}).run
    assert one != two
    assert one is not None
    assert one.startswith("ray-01-")


def test_new_ids_sort_by_time_and_differ() -> None:
    """A fresh id sorts after an older one and is never made twice."""
    assert launch.new_run_id(1e9) < launch.new_run_id(2e9)
    assert len({launch.new_run_id(1e9) for _ in range(1000)}) == 1000
    assert is_safe(launch.new_run_id())


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["-H", "Authorization: Bearer X"], ["-H", "Authorization: [redacted]"]),
        (["-HAuthorization: Bearer X", "next"], ["-HAuthorization: [redacted]", "next"]),
        (["--header=Authorization:X"], ["--header=Authorization:[redacted]"]),
        (["--header", "X-Auth=X"], ["--header", "X-Auth=[redacted]"]),
        (["--headers", '{"a": 1, "api_key": "X"}'], ["--headers", '{"a": 1, "api_key": "[redacted]"}']),
        (["--url=https://h/p?lr=1&token=X"], ["--url=https://h/p?lr=1&token=[redacted]"]),
        (["--db", "postgres://me:X@h:5432/d"], ["--db", "postgres://[redacted]@h:5432/d"]),
        (["--api-key", "X", "--lr", "3"], ["--api-key", "[redacted]", "--lr", "3"]),
    ],
)
def test_secrets_of_the_command_line(given: list[str], shown: list[str]) -> None:
    """Options, headers, JSON and addresses keep their names and lose their secrets."""
    assert redact(given) == shown


def test_the_rest_of_the_command_line() -> None:
    """What is no secret stays as it is, and so does what comes after it."""
    given = [
        "train.py",
        "--lr=3",
        "--data=s3://my-secret-bucket/a",
        "8",
        "--eos_token=<s>",
        "at=12:30",
        "--pad-token",
        "x",
    ]
    assert redact(given) == given


def test_an_endless_argument() -> None:
    """One of any length is looked through once, not once for each of its characters."""
    given = ["a" * 1_000_000, "a " * 100_000]
    assert redact(given) == given


def test_what_slurm_says_of_the_job() -> None:
    """The job, its nodes and its end are recorded with the start of a process; empty variables are left out."""
    env = {
        "SLURM_JOB_ID": "42",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_END_TIME": "1794943136",
        "SLURM_JOB_NAME": "",
    }
    assert launch.scheduler(env) == {
        "slurm.job_id": "42",
        "slurm.job_nodelist": "n[1-2]",
        "slurm.job_end_time": "1794943136",
    }
