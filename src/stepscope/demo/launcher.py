"""Starts the demo's processes, watches them, and starts the ranks again from their checkpoint when one dies."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from stepscope.demo import demo_plan
from stepscope.demo.game import GameJob
from stepscope.demo.rank import Job
from stepscope.model.errors import StepscopeError

MAX_RESTARTS = 2
GRACE_SECONDS = 10.0
Progress = Callable[[int, int, float], None]
"""Called with the steps done, the total, and the loss or the reward."""
_OTHERS = ("STEPSCOPE_", "OTEL_", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "RAY_", "RANK", "WORLD_SIZE")


class DemoFailed(StepscopeError):
    """A process of the demo failed in a way that was not planned."""


def train(home: Path, run: str, steps: int, progress: Progress, restarted: Callable[[], None]) -> None:
    """Train on all ranks; when one dies, begin again where the last checkpoint was, as another attempt."""
    with tempfile.TemporaryDirectory(prefix="stepscope-demo-") as folder:
        for restarts in range(MAX_RESTARTS + 1):
            if _attempt(home, run, steps, progress, restarts, Path(folder)):
                return
            if restarts < MAX_RESTARTS:
                restarted()
        raise DemoFailed(f"the training died {MAX_RESTARTS + 1} times: {_last_line(Path(folder))}")


def play(home: Path, run: str, game: demo_plan.GamePlan, progress: Progress) -> None:
    """Run the reinforcement learning."""
    job = GameJob(str(home), run, game.iterations)
    with tempfile.TemporaryDirectory(prefix="stepscope-demo-") as folder:
        words = Path(folder) / "game.err"
        process = _start("game", job, {}, words)
        with stopping([process]):
            _follow(process, game.iterations, progress)
            if process.wait(GRACE_SECONDS) != 0:
                raise DemoFailed(f"the run of reinforcement learning failed: {_last_line(Path(folder))}")


def _attempt(home: Path, run: str, steps: int, progress: Progress, restarts: int, folder: Path) -> bool:
    """Start all ranks once; whether they reached the end."""
    pairs = [socket.socketpair() for _ in range(demo_plan.RANKS - 1)]
    sockets = [[here.fileno() for here, _ in pairs], *([there.fileno()] for _, there in pairs)]
    processes = []
    try:
        for rank in range(demo_plan.RANKS):
            job = Job(str(home), run, rank, steps, sockets[rank], str(folder / "model.npz"), restarts)
            processes.append(_start("rank", job, _identity(rank), folder / f"rank{rank}.err", sockets[rank]))
    finally:
        for pair in pairs:
            for each in pair:
                each.close()
    with stopping(processes):
        _follow(processes[0], steps, progress)
        return [process.wait(GRACE_SECONDS) for process in processes] == [0] * demo_plan.RANKS


def _identity(rank: int) -> dict[str, str]:
    """The variables that a launcher sets for a process."""
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(demo_plan.RANKS)}


def _start(
    module: str, job: msgspec.Struct, identity: Mapping[str, str], words: Path, sockets: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_OTHERS)}
    env = {**kept, **identity, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    line = [sys.executable, "-m", f"stepscope.demo.{module}", msgspec.json.encode(job).decode()]
    with open(words, "wb") as errors:
        return subprocess.Popen(
            line,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=sockets,
            start_new_session=True,  # Ctrl-C at the terminal is for the launcher
        )


def _follow(process: "subprocess.Popen[bytes]", total: int, progress: Progress) -> None:
    """Pass on the progress that a process reports, until it ends."""
    stream: IO[bytes] | None = process.stdout
    if stream is None:
        return
    for line in stream:
        with contextlib.suppress(ValueError):
            done, value = line.split()
            progress(int(done), total, float(value))


@contextlib.contextmanager
def stopping(processes: Sequence["subprocess.Popen[Any]"], seconds: float = GRACE_SECONDS) -> Iterator[None]:
    """Terminate all processes when the block ends; kill those that have not exited after some seconds."""
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _last_line(folder: Path) -> str:
    """The last line that any process left on its standard error."""
    lines = [line for path in sorted(folder.glob("*.err")) for line in path.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line.strip()), "no output")
