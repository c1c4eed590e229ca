"""Classes of failures: messages of real programs, and the class and role that each must get."""

import pytest

from stepscope.diagnosis.failure_classes import CLASSES, class_of

MESSAGES = [
    ("KeyboardInterrupt", "user_cancelled"),
    ("slurmstepd: error: *** JOB 4242 ON n17 CANCELLED AT 2026-11-17T10:00:00 DUE TO TIME LIMIT ***", "time_limit"),
    (
        "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-11-17T10:00:00 DUE TO PREEMPTION ***",
        "infra_policy_event",
    ),
    ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.", "gpu_hardware_fault"),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu_hardware_fault"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "cuda_oom"),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=9.0.", "linux_oom_kill_confirmation"),
    ("Out of memory: Killed process 4242 (python) total-vm:91234kB", "linux_oom_kill_confirmation"),
    ("MemoryError: Unable to allocate 9.31 GiB for an array", "host_out_of_memory"),
    ("ERROR: Unexpected bus error encountered in worker. Insufficient shared memory (shm).", "shared_memory_full"),
    ("OSError: [Errno 28] No space left on device: 'model.pt'", "disk_full"),
    (
        "RuntimeError: CUDA error: peer access is not supported between these two devices",
        "peer_gpu_memory_access_failure",
    ),
    ("torch.AcceleratorError: CUDA error: device-side assert triggered", "device_assertion"),
    (
        "Second rerun: unexpected result is not reproducible on a different GPU, therefore was likely incorrect",
        "silent_data_corruption",
    ),
    ("Possible transient error!", "silent_data_corruption"),
    ("IndexError: index out of range in self", "bad_token"),
    ("Indexing.cu:1553: indexSelectLargeIndex: Assertion `srcIndex < srcSelectDimSize` failed.", "bad_token"),
    ("IndexError: Target 12 is out of bounds.", "bad_token"),
    ("CUDA error: unspecified launch failure", "previous_error_cascade"),
    (
        "[rank2]:[E1117 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7219, OpType=ALLREDUCE, NumelIn=64, Timeout(ms)=600000)",
        "distributed_timeout",
    ),
    ("ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress", "distributed_timeout"),
    ("[/pytorch/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4242", "communication_cascade"),
    ("torch.distributed.DistBackendError: NCCL error in: ncclRemoteError: A call failed", "communication_cascade"),
    ("RuntimeError: Error(s) in loading state_dict for GPT: size mismatch for wte.weight", "checkpoint_mismatch"),
    ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x5 and 4x8)", "shape_mismatch"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'", "artifact_or_path_not_found"),
    ("PermissionError: [Errno 13] Permission denied: '/ckpt'", "filesystem_permission_denied"),
    ("OSError: [Errno 116] Stale file handle", "storage_failure"),
    ("ModuleNotFoundError: No module named 'flash_attn'", "missing_dependency"),
    ("train.py: error: unrecognized arguments: --lr2", "argument_validation_failure"),
    ("pydantic_core._pydantic_core.ValidationError: 1 validation error for Config", "argument_validation_failure"),
    ("ValueError: loss is NaN at step 12", "nan_or_inf"),
    ("RuntimeError: DataLoader worker (pid(s) 4242) exited unexpectedly", "data_worker"),
    ("Fatal Python error: Segmentation fault", "framework_crash"),
    ("AssertionError: lengths differ", "assertion"),
]


@pytest.mark.parametrize(("message", "name"), MESSAGES)
def test_a_message_has_its_class(message: str, name: str) -> None:
    """Messages as libraries, launchers and kernels write them."""
    found = class_of(message)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("message", "cause", "advice"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.", "off the bus", "take it out"),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=9, Ch 00000008", "a fault of the program", "Start the program again"),
        ("[  12.3] NVRM: Xid (PCI:0000:9b:00): 48, pid='<unknown>', DBE", "could not be corrected", "reset it"),
        ("NVRM: Xid (PCI:0000:9b:00): 9999, what no list has", "the GPU or its link failed", "out of service"),
    ],
)
def test_the_number_of_an_xid_decides_cause_and_advice(message: str, cause: str, advice: str) -> None:
    """A fault of the program is told from a broken GPU; an unknown number is a fault of the GPU."""
    found = class_of(message)
    assert found is not None
    assert found.name == "gpu_hardware_fault"
    assert cause in found.cause
    assert advice in found.advice


def test_every_class_has_an_example() -> None:
    """No class is there that no known message has."""
    assert {each.name for each in CLASSES} == {name for _, name in MESSAGES}


@pytest.mark.parametrize("text", ["Killed", "step 12 loss 0.4", "killed 3 enemies, reward 7", "epoch done", ""])
def test_ordinary_lines_have_none(text: str) -> None:
    """A bare word is not enough."""
    assert class_of(text) is None
