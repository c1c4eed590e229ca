"""The priority of a hub among the other programs of its machine, of which one may be a training job."""

import contextlib
import os
from pathlib import Path

from stepscope.model.errors import ConfigError

VARIABLE = "STEPSCOPE_HUB_PRIORITY"
"""Holds the priority where no option does."""
LOW, NORMAL = "low", "normal"
PRIORITIES = (LOW, NORMAL)
NICE = 19
_GROUP = Path("/proc/self/autogroup")


def chosen_priority(given: str | None = None) -> str:
    """Return the option, else the variable, else `low`; ConfigError for an unknown value of the variable."""
    found = given or os.environ.get(VARIABLE) or LOW
    if found not in PRIORITIES:
        raise ConfigError(f"{VARIABLE}={found} is not a priority: use {' or '.join(PRIORITIES)}")
    return found


def lower_priority() -> None:
    """Give way to other programs, with all threads there are; those that are started later inherit it.

    Disk access follows the niceness. Idle scheduling would give way even more, but a hub beside programs that use all
    cores would not answer. Where a system refuses, the hub runs with what it got.
    """
    lowered: set[int] = set()
    while found := _threads() - lowered:  # one that is not lowered yet may just have started another
        for thread in found:
            _lower(thread)
        lowered |= found
    if os.getsid(0) == os.getpid():  # else the terminal's other programs, such as a trainer, are in the same group
        # Linux shares the CPU among sessions first, and niceness counts only within one.
        with contextlib.suppress(OSError):
            _GROUP.write_text(str(NICE))


def _threads() -> set[int]:
    """The threads of this process; 0, the calling one, where the system does not list them."""
    try:
        return set(map(int, os.listdir("/proc/self/task")))
    except OSError:
        return {0}


def _lower(thread: int) -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, NICE)
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
