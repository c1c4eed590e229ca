"""GPU time of phases by CUDA events: recorded in the stream, read when they have passed, never waited for."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch

import stepscope

CATEGORY = "torch"
MOST_ROUNDS = 1000
"""Rounds that may wait for the device; beyond that the oldest are dropped and counted."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the stream of a device."""

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
        """Tell whether the device is done with all of it."""
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
        """Give the phases since the last call to a step, and record the rounds the device is done with."""
        stretches, self._open = self._open, []
        if stretches:
            self._rounds.append(Round(run, step, axis, stretches))
            if len(self._rounds) > MOST_ROUNDS:
                self._rounds.popleft().run.count("dropped", "metric", "device")
        self.collect()

    def collect(self) -> None:
        """Record the rounds the device is done with; asks the device, and does not wait."""
        if self._rounds and torch.cuda.is_current_stream_capturing():
            return
        while self._rounds and self._rounds[0].passed():
            done = self._rounds.popleft()
            done.log()
            for each in done.stretches:
                for mark in (each.begin, each.end):
                    self._free.setdefault(mark.device, []).append(mark.event)

    def close(self) -> None:
        """Record what can be, count the rest as dropped: the run ends."""
        self.collect()
        while self._rounds:
            self._rounds.popleft().run.count("dropped", "metric", "device")
