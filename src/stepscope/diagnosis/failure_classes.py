"""Classes of failures by their words: what failed, whether it is a root or a consequence, the cause and the advice."""

from dataclasses import dataclass, replace
from typing import Literal

from stepscope.diagnosis.xid_codes import CODES, xid_of

Role = Literal["root", "cascade", "confirmation"]
"""A root may end a run; a cascade follows from the end of another process; a confirmation tells why one was ended."""
MAX_CHARACTERS = 4000
"""The most characters of a text that are searched."""


@dataclass(frozen=True, slots=True)
class FailureClass:
    """One class of failures, recognised by words."""

    name: str
    role: Role
    words: tuple[tuple[str, ...], ...]
    """Alternatives, in lower case; of each, all parts must occur."""
    cause: str
    advice: str = ""

    def matches(self, text: str) -> bool:
        """Return whether a text in lower case has the words of this class."""
        return any(all(part in text for part in parts) for parts in self.words)


def _any(*words: str) -> tuple[tuple[str, ...], ...]:
    return tuple((word,) for word in words)


CLASSES = (
    FailureClass(
        "time_limit",
        "root",
        (("due to time limit",), ("time limit", "exceeded"), ("walltime", "exceeded")),
        "the time limit of the job was reached",
        "Ask for more time, or save checkpoints more often and start it again from the last one.",
    ),
    FailureClass(
        "infra_policy_event",
        "root",
        (("due to preemption",), ("preempted", "slurm"), ("node_fail",), ("due to node failure",), ("node failure",)),
        "the scheduler ended the job: preemption, or a node that failed",
        "Start it again from the last checkpoint; if it is one node each time, exclude that node.",
    ),
    FailureClass(
        "user_cancelled",
        "root",
        _any("keyboardinterrupt", "cancelled by user", "cancelled at 20", "due to user request"),
        "the run was interrupted by a person",
        "Start it again when you want to continue.",
    ),
    FailureClass(
        "gpu_hardware_fault",
        "root",
        (
            ("nvrm: xid",),
            ("uncorrectable ecc",),
            ("uncorrectable nvlink",),
            ("fallen off the bus",),
            ("gpu is lost",),
            ("hardware", "cuda error", "ecc"),
            ("cudaerroreccuncorrectable",),
            ("device-side", "hardware stack error"),
            ("pcie bus error", "severity=uncorrected"),
        ),
        "the GPU or its link failed",
        "Take the machine out of service, look at nvidia-smi -q and the kernel log, and start again without it.",
    ),
    FailureClass(
        "silent_data_corruption",
        "root",
        (
            ("possible transient error!",),
            ("possible persistent error!",),
            ("unexpected result is not reproducible",),
            ("rerun", "result validation", "failed"),
        ),
        "a GPU computed a wrong result: the same step, computed again, gave another one",
        "Take the GPU that it names out of service and test it; start again from a checkpoint before that step.",
    ),
    FailureClass(
        "cuda_oom",
        "root",
        (
            ("cuda out of memory",),
            ("outofmemoryerror",),
            ("hip out of memory",),
            ("cublas_status_alloc_failed",),
            ("cudaerrormemoryallocation",),
            ("resource_exhausted", "memory"),
        ),
        "the memory of the GPU is full",
        "Reduce the batch or the sequence length, accumulate gradients, recompute activations, or shard the model; "
        "see whether gpu memory grew before.",
    ),
    FailureClass(
        "linux_oom_kill_confirmation",
        "confirmation",
        (("out of memory: killed process",), ("oom_kill event",), ("oom-kill:",), ("detected", "oom_kill")),
        "the machine or its control group ran out of memory, and the kernel killed the process",
        "Reduce loader workers, prefetching and caches, or ask for more memory.",
    ),
    FailureClass(
        "host_out_of_memory",
        "root",
        (("memoryerror",), ("cannot allocate memory",), ("std::bad_alloc",), ("defaultcpuallocator", "memory")),
        "the memory of the machine is full",
        "Reduce loader workers, prefetching and caches, or ask for more memory.",
    ),
    FailureClass(
        "shared_memory_full",
        "root",
        (("bus error", "shared memory"), ("no space left on device", "/dev/shm"), ("unable to open shared memory",)),
        "the shared memory of the machine or container is full",
        "Give the container more (--shm-size), or use fewer loader workers.",
    ),
    FailureClass(
        "disk_full",
        "root",
        _any("no space left on device", "disk quota exceeded", "[errno 28]", "[errno 122]"),
        "the disk is full",
        "Free space, or write checkpoints elsewhere.",
    ),
    FailureClass(
        "peer_gpu_memory_access_failure",
        "root",
        (("peer access", "cuda"), ("peer mapping",), ("cudaipc",)),
        "one GPU cannot read the memory of another",
        "Check the topology (nvidia-smi topo -m) and whether the container shares IPC and devices.",
    ),
    FailureClass(
        "bad_token",
        "root",
        (
            ("index out of range in self",),
            ("srcindex < srcselectdimsize",),
            ("indexerror: target", "is out of bounds"),
            ("t >= 0 && t < n_classes",),
        ),
        "a token or label that the model has no place for: it is not below the size of the vocabulary or the classes",
        "Compare the highest token id and label of that batch with the sizes in the settings; skip that sample.",
    ),
    FailureClass(
        "device_assertion",
        "root",
        _any("device-side assert", "illegal memory access", "misaligned address", "cuda kernel errors might be"),
        "a kernel failed on the GPU: an index out of range, or a faulty kernel",
        "Run it with CUDA_LAUNCH_BLOCKING=1 to see which call; check labels and token ids against their ranges.",
    ),
    FailureClass(
        "previous_error_cascade",
        "cascade",
        _any("cudaerrorlaunchfailure", "unspecified launch failure", "previous error", "context is destroyed"),
        "an earlier error on the same GPU",
        "Look for the first error of that process.",
    ),
    FailureClass(
        "distributed_timeout",
        "cascade",
        (
            ("watchdog caught collective operation timeout",),
            ("timed out", "collective"),
            ("timed out waiting", "ms for"),
            ("timeout", "all_reduce"),
            ("timeout", "allreduce"),
            ("distbackenderror", "timeout"),
            ("wait timeout", "store"),
            ("application timeout caused pair closure",),
            ("heartbeat", "watchdog"),
            ("got stuck for", "watchdog"),
        ),
        "a collective did not end in time, because one rank never entered it or was too late",
        "Find the rank that was missing, and what it did then.",
    ),
    FailureClass(
        "communication_cascade",
        "cascade",
        (
            ("connection reset by peer",),
            ("connection closed by peer",),
            ("connection closed by remote",),
            ("connection refused",),
            ("connection was closed",),
            ("remote process exited",),
            ("remote peer",),
            ("broken pipe",),
            ("brokenpipeerror",),
            ("socket closed",),
            ("socket timeout",),
            ("transport/tcp",),
            ("nccl error",),
            ("ncclremoteerror",),
            ("ncclsystemerror",),
            ("ncclinternalerror",),
            ("nccl communicator", "abort"),
            ("process group", "abort"),
            ("peerlost",),
            ("peer", "lost"),
            ("peer", "gone"),
            ("distnetworkerror",),
            ("rendezvous", "closed"),
            ("sigterm", "signalexception"),
        ),
        "another process of the job ended, or its network failed",
        "Look for the rank that failed first.",
    ),
    FailureClass(
        "checkpoint_mismatch",
        "root",
        (
            ("error(s) in loading state_dict",),
            ("missing key(s) in state_dict",),
            ("unexpected key(s) in state_dict",),
            ("size mismatch for",),
            ("invalid magic number",),
            ("pytorchstreamreader", "failed"),
        ),
        "the checkpoint does not fit the model, or is damaged",
        "Compare the settings of the model with those of the run that wrote it; try an older checkpoint.",
    ),
    FailureClass(
        "shape_mismatch",
        "root",
        (
            ("mat1 and mat2 shapes",),
            ("shapes cannot be multiplied",),
            ("must match the size of tensor",),
            ("shape", "is invalid for input of size"),
            ("could not be broadcast together",),
            ("expected input batch_size",),
        ),
        "tensors whose shapes do not fit",
        "Look at the last batch: its length, padding, or a smaller last batch.",
    ),
    FailureClass(
        "artifact_or_path_not_found",
        "root",
        _any("filenotfounderror", "no such file or directory", "repositorynotfounderror", "is not a valid model"),
        "a file, folder or model that does not exist there",
        "Check the path on that machine: it may not be mounted there.",
    ),
    FailureClass(
        "filesystem_permission_denied",
        "root",
        _any("permissionerror", "permission denied", "read-only file system"),
        "a file that must not be read or written",
        "Check the owner of the folder, and how it is mounted on that machine.",
    ),
    FailureClass(
        "storage_failure",
        "root",
        _any("input/output error", "stale file handle", "transport endpoint is not connected", "remote i/o error"),
        "the storage failed",
        "Check the mounts of that machine and the kernel log.",
    ),
    FailureClass(
        "missing_dependency",
        "root",
        _any("modulenotfounderror", "no module named", "cannot open shared object file", "undefined symbol"),
        "a library that is missing there, or does not fit the others",
        "Compare the environments of the machines.",
    ),
    FailureClass(
        "argument_validation_failure",
        "root",
        (
            ("unrecognized arguments",),
            ("error: argument",),
            ("the following arguments are required",),
            ("pydantic", "validation error"),
            ("validationerror:",),
            ("omegaconf.errors.",),
            ("hydra.errors.",),
        ),
        "wrong arguments or settings of the program",
        "Correct the command line or the configuration file.",
    ),
    FailureClass(
        "nan_or_inf",
        "root",
        (("loss is nan",), ("nan loss",), ("non-finite",), ("nan or inf",), ("found nan",)),
        "a value that is not finite",
        "Look for the first value that was not finite, and the batch of that step.",
    ),
    FailureClass(
        "data_worker",
        "root",
        (("dataloader worker", "exited unexpectedly"), ("dataloader worker", "killed by signal")),
        "a worker of the data loader was killed: usually out of memory or of shared memory",
        "Use fewer workers, or give the container more shared memory.",
    ),
    FailureClass(
        "framework_crash",
        "root",
        (
            ("segmentation fault",),
            ("sigsegv",),
            ("illegal instruction",),
            ("sigill",),
            ("sigbus",),
            ("sigabrt",),
            ("fatal python error",),
            ("double free",),
            ("corrupted size",),
            ("terminate called after",),
        ),
        "native code crashed",
        "Set PYTHONFAULTHANDLER=1 to see the Python line; compare library versions with a run that worked.",
    ),
    FailureClass(
        "assertion",
        "root",
        _any("assertionerror"),
        "an assertion of the program failed",
        "Read the traceback.",
    ),
)


def class_of(text: str) -> FailureClass | None:
    """Return the class of a failure by its text; None when it is of none."""
    lower = text[:MAX_CHARACTERS].lower()
    found = next((each for each in CLASSES if each.matches(lower)), None)
    return _BY_XID.get(xid_of(lower), found) if found is not None and found.name == GPU_FAULT else found


GPU_FAULT = "gpu_hardware_fault"
_BY_XID: dict[int | None, FailureClass] = {
    number: replace(each, cause=f"{cause} (Xid {number})", advice=advice)
    for each in CLASSES
    if each.name == GPU_FAULT
    for number, (cause, advice) in CODES.items()
}
"""The class of a fault of the GPU, by the number of the driver's message."""
