"""Phases that start in one hook and end in another: a span, and GPU time measured by CUDA events."""

import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any

import torch
from opentelemetry.trace import StatusCode

import stepscope

CATEGORY = "torch"
MAX_ROUNDS = 1000
"""The limit of rounds waiting for the device; beyond it the oldest are dropped and counted."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the stream of a device."""

    device: int
    event: Any


@dataclass(frozen=True, slots=True)
class Stretch:
    """The device time of a phase, between two marks."""

    phase: str
    begin: Mark
    end: Mark


@dataclass(frozen=True, slots=True)
class Round:
    """The phases of one optimizer step, and that step."""

    run: stepscope.Run
    step: int
    axis: str | None
    stretches: list[Stretch]

    def passed(self) -> bool:
        """Return whether the device has finished all phases."""
        return all(each.end.event.query() for each in self.stretches)

    def log(self) -> None:
        """Record the milliseconds of each phase."""
        spent: dict[str, float] = {}
        for each in self.stretches:
            lasted = each.begin.event.elapsed_time(each.end.event)
            spent[f"{each.phase}_gpu_ms"] = spent.get(f"{each.phase}_gpu_ms", 0.0) + lasted
        self.run.log(spent, self.step, CATEGORY, axis=self.axis)


class GpuClock:
    """Marks phases in the current CUDA stream; does nothing without CUDA, or during graph capture."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self.on = True
        """Whether the phases until the next optimizer step are measured."""
        self._spent = 0.0
        self._free: dict[int, list[Any]] = {}
        self._open: list[Stretch] = []
        self._rounds: deque[Round] = deque()

    def is_behind(self) -> bool | None:
        """Return whether the device still works on the first phase of this step, so that the loop waits for it.

        None when no phase was measured.
        """
        if not self._open or torch.cuda.is_current_stream_capturing():
            return None
        return not self._open[0].end.event.query()

    def mark(self) -> Mark | None:
        """Mark the current position of the stream."""
        if not (self._wanted and self.on) or not torch.cuda.is_initialized():
            return None
        if torch.cuda.is_current_stream_capturing():
            return None
        began = time.perf_counter()
        device = torch.cuda.current_device()
        free = self._free.get(device)
        event = free.pop() if free else torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))  # passing the stream avoids a slow device lookup
        self._spent += time.perf_counter() - began
        return Mark(device, event)

    def measure(self, phase: str, begin: Mark | None) -> None:
        """End a phase; one that started on another device is left out."""
        if begin is not None and (end := self.mark()) is not None and end.device == begin.device:
            self._open.append(Stretch(phase, begin, end))

    def close_round(self, run: stepscope.Run, step: int, axis: str | None) -> None:
        """Assign the phases since the last call to a step, and record finished rounds.

        The next phases are measured if the run's overhead budget allows it.
        """
        stretches, self._open = self._open, []
        if self._wanted:
            began = time.perf_counter()
            self._close(run, step, axis, stretches)
            spend(run, "gpu_events", self._spent + time.perf_counter() - began)
            self._spent, self.on = 0.0, run.affords()

    def _close(self, run: stepscope.Run, step: int, axis: str | None, stretches: list[Stretch]) -> None:
        if stretches:
            self._rounds.append(Round(run, step, axis, stretches))
            if len(self._rounds) > MAX_ROUNDS:
                self._rounds.popleft().run.count("dropped", "metric", "device")
        self.collect()

    def collect(self) -> None:
        """Record the rounds that the device has finished, without waiting for it."""
        if self._rounds and torch.cuda.is_current_stream_capturing():
            return
        while self._rounds and self._rounds[0].passed():
            done = self._rounds.popleft()
            done.log()
            for each in done.stretches:
                for mark in (each.begin, each.end):
                    self._free.setdefault(mark.device, []).append(mark.event)

    def close(self) -> None:
        """Record finished rounds and count the rest as dropped, at the end of the run."""
        self.collect()
        while self._rounds:
            self._rounds.popleft().run.count("dropped", "metric", "device")


class Phase:
    """An open phase; its span is current in the thread that started it."""

    __slots__ = ("_clock", "_mark", "_name", "_span", "context")

    def __init__(
        self, clock: GpuClock | None, name: str, attrs: dict[str, Any], context: Context | None = None
    ) -> None:
        self._clock = clock
        self.context = context
        self._name = name.rpartition(".")[2]
        self._span = (
            stepscope.span(name, **attrs) if context is None else context.run(stepscope.span, name, **attrs)
        ).__enter__()
        self._mark = None if clock is None else clock.mark()

    def end(self, error: BaseException | None = None, after: Callable[[], dict[str, Any]] | None = None) -> None:
        """End the phase, with the attributes that are known only now."""
        if self._clock is not None:
            self._clock.measure(self._name, self._mark)
        try:
            for key, value in (after() if after is not None else {}).items():
                self._span.set_attribute(key, value)
        finally:
            self._span.__exit__(None if error is None else type(error), error, None)

    def abandon(self) -> None:
        """End a phase whose end was not observed."""
        self._span.set_status(StatusCode.ERROR, "did not end")
        self._span.__exit__(None, None, None)


def never_raising(work: Callable[..., None], spend: Callable[[float], None]) -> Callable[..., None]:
    """Make a hook that never raises into torch: failures are counted, with one warning; `spend` gets its seconds."""

    def hook(*arguments: Any) -> None:
        if torch.compiler.is_compiling() or (run := stepscope.current_run()) is None:
            return
        began = time.perf_counter()
        try:
            work(run, *arguments)
        except Exception as error:
            failed(run, work.__name__, error)
        took = time.perf_counter() - began
        run.add_overhead("hooks", took, optional=False)
        spend(took)

    return hook


class Optional:
    """A block of optional work: its processor time is added to the run's overhead."""

    __slots__ = ("_began", "_run")

    def __init__(self, run: stepscope.Run) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._began = time.thread_time()

    def __exit__(self, *raised: object) -> None:
        spend(self._run, "checks", time.thread_time() - self._began)


def spend(run: stepscope.Run, part: str, seconds: float) -> None:
    """Add optional work inside a hook to the run's overhead: under its own name, and not again as a hook."""
    run.add_overhead(part, seconds)
    run.add_overhead("hooks", -seconds, optional=False)


def failed(run: stepscope.Run, work: str, error: Exception) -> None:
    """Count a failure of the timing, with one warning; a faulty device also fails in torch's own calls."""
    run.count("failed", "torch", type(error).__name__)
    run.warn(f"timing torch failed in {work}: {error!r}", about=f"torch {work}")


def in_backward() -> bool:
    """Return whether this thread is inside a backward pass."""
    ask = getattr(torch._C, "_current_graph_task_id", None)
    return ask is not None and ask() != -1
