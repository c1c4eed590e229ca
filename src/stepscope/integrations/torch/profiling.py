"""Profiling of some optimizer steps by torch's profiler; the Chrome trace is stored with the run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import stepscope
from stepscope.extend import run_folder

EVENT = "torch.profile"


class Window:
    """A profile of the steps in [first, end), counted from 0 at the call of `profile`."""

    def __init__(self, run: stepscope.Run, first: int, end: int, make: Callable[[], Any]) -> None:
        self._run = run
        self._first = first
        self._end = end
        self._make = make
        self._seen = 0
        self._profiler: Any = None
        self._step: int | None = None
        self.path: Path | None = None
        """The path of the trace, once written."""
        self._handle = register_optimizer_step_post_hook(lambda *_: self._advance())
        run.on_finish(self.stop)
        if first == 0:
            self._quietly(self._start)

    def _advance(self) -> None:
        self._seen += 1
        if self._profiler is not None:
            self._quietly(self._profiler.step)
        if self._seen == self._end:
            self.stop()
        elif self._seen == self._first:
            self._quietly(self._start)

    def _start(self) -> None:
        self._step = self._run.mark.step
        profiler = self._make()
        profiler.start()
        self._profiler = profiler

    def stop(self) -> None:
        """End the window, if it is open, and write the trace. A second call does nothing."""
        self._handle.remove()
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            self._quietly(lambda: self._write(profiler))

    def _write(self, profiler: Any) -> None:
        profiler.stop()
        run = self._run
        folder = run_folder(run) / "profiles"
        folder.mkdir(parents=True, exist_ok=True)
        path = _unused(folder, f"torch-r{run.rank}-{self._first}")
        profiler.export_chrome_trace(str(path))
        self.path = path
        described = {"path": str(path), "format": "chrome", "bytes": path.stat().st_size}
        steps = min(self._seen, self._end) - self._first
        run.event(EVENT, {**described, "steps": steps, "train.step.first": self._step})

    def _quietly(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            self._run.count("failed", "torch.profile", type(error).__name__)
            self._run.warn(f"torch's profiler failed: {error!r}", about="torch.profile")


def profile(steps: int | range = 3, **options: Any) -> Window | None:
    """Profile the next `steps` optimizer steps of the current run, or those of a range; None without a run.

    The Chrome trace is written to the run's folder, and the event `torch.profile` has its path. `options` are those of
    `torch.profiler.profile`. The overhead is the profiler's; writing the trace delays the next step.
    """
    run = stepscope.current_run()
    if run is None:
        return None
    window: Any = range(steps) if isinstance(steps, int) else steps
    if not isinstance(window, range) or window.step != 1 or window.start < 0 or not window:
        run.reject("torch.profile", "steps must be a number above 0 or a range")
        return None
    return Window(run, window.start, window.stop, lambda: torch.profiler.profile(**options))


def _unused(folder: Path, stem: str) -> Path:
    path, turn = folder / f"{stem}.json", 1
    while path.exists():
        path, turn = folder / f"{stem}-{turn}.json", turn + 1
    return path
