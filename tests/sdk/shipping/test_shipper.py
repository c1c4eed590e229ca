"""The shipper seen from the trainer: its lock, and what it leaves behind."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from stepscope.sdk.shipping.shipper import leave_behind
from stepscope.sdk.shipping.shipper_process import lock_home


def test_a_forked_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A child forked while the lock was checked does not hold it."""
    lock = lock_home(tmp_path, "h")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read, 1)
        os._exit(0)
    lock.release()
    try:
        lock_home(tmp_path, "h").release()
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)


def test_a_shipper_leaves_no_zombie(until: Callable[..., None]) -> None:
    """A child that was left behind is gone when it has ended, though nobody waits for it."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    leave_behind(child)
    until(lambda: not Path(f"/proc/{child.pid}").exists())
