"""What a run used of its GPUs: which of them are its own, and what the readings of any GPU probe add up to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.sdk.probes.gpu_totals import GpuTotals, is_within, visible
from stepscope.sdk.probes.system import Reading
from stepscope.sdk.probes.watch import Probes


def four(**values: float) -> Reading:
    """A reading of four GPUs."""
    return {f"gpu/{gpu}/{name}": value for gpu in range(4) for name, value in values.items()}


def seconds(reading: Reading) -> dict[int, float]:
    """The GPUs that a process uses, with their time."""
    return {int(key.split("/")[1]): value for key, value in reading.items() if key.endswith("/run_seconds")}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "2, 0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "1,-1,2"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1,9"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
        ({"CUDA_VISIBLE_DEVICES": "MIG-5c6f"}, []),
        ({"ROCR_VISIBLE_DEVICES": "3,2,1", "HIP_VISIBLE_DEVICES": "0,1"}, [3, 2]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"TPU_VISIBLE_CHIPS": "0,1"}, [0, 1]),
    ],
)
def test_masks_choose_among_the_gpus_of_the_host(env: dict[str, str], expected: list[int]) -> None:
    """Masks are read as the drivers read them: in their order, up to the first that is not there."""
    assert visible(env, 4) == expected


def test_a_process_among_several_uses_one_gpu() -> None:
    """Each rank reports its own GPU, whether all ranks see all GPUs or each its own."""
    torchrun = {"LOCAL_WORLD_SIZE": "4"}
    assert seconds(GpuTotals(2, 4, 0.0, torchrun).add(four(utilization=1), 9.0)) == {2: 9.0}
    assert seconds(GpuTotals(1, 4, 0.0, {"CUDA_VISIBLE_DEVICES": "3"}).add(four(utilization=1), 9.0)) == {3: 9.0}
    slurm = {"SLURM_NTASKS_PER_NODE": "1", "SLURM_NNODES": "2"}
    assert seconds(GpuTotals(0, 2, 0.0, slurm).add(four(utilization=1), 90.0)) == dict.fromkeys(range(4), 90.0)


def test_a_rank_that_reads_no_gpu_finds_them_by_their_files(tmp_path: Path) -> None:
    """Other ranks of a host do not ask the driver; where there are no files there are no GPUs."""
    assert GpuTotals(1, 2, 0.0, {}, str(tmp_path)).add({}, 5.0) == {}
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert GpuTotals(1, 2, 0.0, {}, str(tmp_path)).add({}, 5.0) == {"gpu/1/run_seconds": 5.0}
    (amd := tmp_path / "amd").mkdir()
    (amd / "dri").mkdir()
    (amd / "dri" / "renderD128").touch()
    assert GpuTotals(0, 1, 0.0, {}, str(amd)).add({}, 5.0) == {}
    (amd / "kfd").touch()
    assert GpuTotals(0, 1, 0.0, {}, str(amd)).add({}, 5.0) == {"gpu/0/run_seconds": 5.0}


def test_a_process_alone_uses_the_gpus_that_it_computes_on() -> None:
    """The driver says which; where it does not, all are counted, but only once the program had time to begin."""
    totals = GpuTotals(0, 1, 0.0, {})
    assert seconds(totals.add(four(utilization=0), 5.0)) == {}
    assert seconds(totals.add(four(utilization=0), 10.0, [1])) == {1: 10.0}
    assert seconds(GpuTotals(0, 1, 0.0, {}).add(four(utilization=0), 61.0)) == dict.fromkeys(range(4), 61.0)
    assert seconds(GpuTotals(0, 1, 0.0, {}).add(four(utilization=0), 5.0, ended=True)) == dict.fromkeys(range(4), 5.0)
    assert seconds(GpuTotals(0, 1, 0.0, {"CUDA_VISIBLE_DEVICES": "2"}).add(four(utilization=0), 5.0)) == {2: 5.0}


def test_energy_is_from_the_counter_or_from_the_power() -> None:
    """Both begin at 0 with the run; the first reading says nothing, which is not 0; a counter that restarts adds 0."""
    totals = GpuTotals(0, 1, 0.0, {})
    assert totals.add({"gpu/0/energy_joules": 5e6, "gpu/1/power_watts": 100.0}, 0.0, [0, 1]) == {
        "gpu/0/run_seconds": 0.0, "gpu/1/run_seconds": 0.0
    }  # fmt: skip
    found = totals.add({"gpu/0/energy_joules": 5e6 + 900, "gpu/1/power_watts": 200.0}, 10.0)
    assert (found["gpu/0/energy_joules"], found["gpu/1/energy_joules"]) == (900.0, 1500.0)
    found = totals.add({"gpu/0/energy_joules": 10.0, "gpu/1/power_watts": 200.0}, 20.0)
    assert (found["gpu/0/energy_joules"], found["gpu/1/energy_joules"]) == (900.0, 3500.0)
    found = totals.add({"gpu/0/energy_joules": 110.0, "gpu/0/power_watts": 9e9}, 30.0)
    assert found["gpu/0/energy_joules"] == 1000.0
    assert "gpu/1/energy_joules" not in found


def test_busy_time_is_the_utilization_over_time() -> None:
    """Only GPUs have it: the utilization of the processor is none of theirs."""
    totals = GpuTotals(0, 1, 0.0, {})
    totals.add({"gpu/0/utilization": 0.5, "cpu/utilization": 1.0}, 0.0)
    found = totals.add({"gpu/0/utilization": 1.0, "cpu/utilization": 1.0}, 4.0)
    assert found == {"gpu/0/busy_seconds": 3.0, "gpu/0/run_seconds": 4.0}


def test_children_of_the_program_count_as_it() -> None:
    """An inference engine that the program started computes for the run; its parent does not."""
    code = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        assert is_within(pid, os.getpid())
        assert is_within(os.getpid(), os.getpid())
        assert not is_within(os.getpid(), pid)
        assert not is_within(2**31 - 1, os.getpid())
        child.communicate()


class Gpu:
    """A GPU under a test's control, on which this process computes."""

    name, detail = "gpu/0", "of a test"

    def __init__(self) -> None:
        self.joules = 1e6

    def read(self) -> Reading:
        self.joules += 50
        return {"gpu/0/energy_joules": self.joules}

    def processes(self) -> list[int]:
        return [os.getpid()]

    def close(self) -> None:
        pass


def test_the_last_reading_is_at_the_end() -> None:
    """A run that ends between two readings has the time and the energy until its end."""
    now = iter([0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    written: list[Reading] = []
    probes = Probes(
        written.append, 5.0, [Gpu()], clock=lambda: next(now), wait=lambda s: True, totals=GpuTotals(0, 1, 0.0, {})
    )
    probes.start()
    assert probes.stop(300)
    assert [reading.get("gpu/0/energy_joules") for reading in written] == [None, 50.0]
    assert written[-1]["gpu/0/run_seconds"] == 2.0
