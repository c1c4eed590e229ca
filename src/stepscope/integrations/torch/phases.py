"""A phase of training that begins in one hook and ends in another: a span, and its GPU time by CUDA events."""

from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Any

import torch
from opentelemetry.trace import StatusCode

import stepscope

CATEGORY = "torch"
MOST_ROUNDS = 1000
"""Rounds that may wait for the device; beyond that the oldest are dropped and counted."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the stream of a device."""

    device: int
    event: Any


@dataclass(frozen=True, slots=True)
class Stretch:
    """A phase between two marks."""

    phase: str
    begin: Mark
    end: Mark


@dataclass(frozen=True, slots=True)
class Round:
    """The phases up to an optimizer's step, and the step they belong to."""

    run: stepscope.Run
    step: int
    axis: str | None
    stretches: list[Stretch]

    def passed(self) -> bool:
        """Return whether the device has finished all of it."""
        return all(each.end.event.query() for each in self.stretches)

    def log(self) -> None:
        """Record the milliseconds of each phase."""
        spent: dict[str, float] = {}
        for each in self.stretches:
            lasted = each.begin.event.elapsed_time(each.end.event)
            spent[f"{each.phase}_gpu_ms"] = spent.get(f"{each.phase}_gpu_ms", 0.0) + lasted
        self.run.log(spent, self.step, CATEGORY, axis=self.axis)


class GpuClock:
    """Marks phases in the current stream. Nothing is marked without CUDA, or while a graph is captured."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._free: dict[int, list[Any]] = {}
        self._open: list[Stretch] = []
        self._rounds: deque[Round] = deque()

    def mark(self) -> Mark | None:
        """Mark where the current stream is."""
        if not self._wanted or not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
            return None
        device = torch.cuda.current_device()
        free = self._free.get(device)
        event = free.pop() if free else torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))  # without a stream torch looks for the device anew, slowly
        return Mark(device, event)

    def measure(self, phase: str, begin: Mark | None) -> None:
        """End a phase here; one that began on another device is left out."""
        if begin is not None and (end := self.mark()) is not None and end.device == begin.device:
            self._open.append(Stretch(phase, begin, end))

    def close_round(self, run: stepscope.Run, step: int, axis: str | None) -> None:
        """Assign the phases since the last call to a step, and record the rounds the device has finished."""
        stretches, self._open = self._open, []
        if stretches:
            self._rounds.append(Round(run, step, axis, stretches))
            if len(self._rounds) > MOST_ROUNDS:
                self._rounds.popleft().run.count("dropped", "metric", "device")
        self.collect()

    def collect(self) -> None:
        """Record the rounds the device has finished; queries the device without waiting."""
        if self._rounds and torch.cuda.is_current_stream_capturing():
            return
        while self._rounds and self._rounds[0].passed():
            done = self._rounds.popleft()
            done.log()
            for each in done.stretches:
                for mark in (each.begin, each.end):
                    self._free.setdefault(mark.device, []).append(mark.event)

    def close(self) -> None:
        """Record what is finished and count the rest as dropped: the run ends."""
        self.collect()
        while self._rounds:
            self._rounds.popleft().run.count("dropped", "metric", "device")


class Phase:
    """One phase that is open; the span is current in the thread that began it."""

    __slots__ = ("_clock", "_mark", "_name", "_span")

    def __init__(
        self, clock: GpuClock | None, name: str, attrs: dict[str, Any], context: Context | None = None
    ) -> None:
        self._clock = clock
        self._name = name.rpartition(".")[2]
        self._span = (
            stepscope.span(name, **attrs) if context is None else context.run(stepscope.span, name, **attrs)
        ).__enter__()
        self._mark = None if clock is None else clock.mark()

    def end(self, error: BaseException | None = None) -> None:
        """End the phase."""
        if self._clock is not None:
            self._clock.measure(self._name, self._mark)
        self._span.__exit__(None if error is None else type(error), error, None)

    def abandon(self) -> None:
        """End a phase whose end no hook has seen."""
        self._span.set_status(StatusCode.ERROR, "did not end")
        self._span.__exit__(None, None, None)


def quietly(work: Callable[..., None]) -> Callable[..., None]:
    """Make a hook that cannot raise into torch: what fails is counted and named once."""

    def hook(*arguments: Any) -> None:
        if torch.compiler.is_compiling() or (run := stepscope.current_run()) is None:
            return
        try:
            work(run, *arguments)
        except Exception as error:
            failed(run, work.__name__, error)

    return hook


def failed(run: stepscope.Run, work: str, error: Exception) -> None:
    """Count an error in a timing, and report it once; a device in a bad state shows in torch's own call."""
    run.count("failed", "torch", type(error).__name__)
    run.warn(f"timing torch failed in {work}: {error!r}", about=f"torch {work}")


def in_backward() -> bool:
    """Return whether this thread is inside a backward pass."""
    ask = getattr(torch._C, "_current_graph_task_id", None)
    return ask is not None and ask() != -1
