"""Timing of PyTorch by its hooks: data, forward, backward, optimizer, collectives, checkpoints, gradient norm."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from stepscope.integrations.torch import calls
from stepscope.integrations.torch.checks import Checks
from stepscope.integrations.torch.passes import ModuleTiming, OptimizerTiming
from stepscope.integrations.torch.phases import GpuClock
from stepscope.integrations.torch.profiling import Window, profile
from stepscope.integrations.torch.sampling import Sampling

__all__ = ["Window", "instrument", "instrument_once", "profile", "uninstrument"]


class Removable(Protocol):
    """An installed hook or patch."""

    def remove(self) -> None:
        """Remove it."""


@dataclass(slots=True, eq=False)
class Installed:
    """The hooks and patches currently installed in torch."""

    parts: list[Removable] = field(default_factory=list)
    active: list[bool] = field(default_factory=list)
    """Not empty while timing is on; checked by replaced functions that cannot be restored."""


NORM_EVERY = 10
_installed: list[Installed] = []


def instrument(
    *,
    data: bool = True,
    modules: bool = True,
    optimizers: bool = True,
    collectives: bool = True,
    checkpoints: bool = True,
    gpu: bool = True,
    grad_norm: int | None = None,
    checks: bool = True,
) -> None:
    """Time PyTorch into whichever run is current; a second call replaces the first.

    Each part can be disabled. `gpu` also measures phases on the device, by events that are read later without waiting.
    `grad_norm` is the number of optimizer steps between gradient norms; 0 disables them, and by default it is 10.
    `checks` look at weights, gradients, inputs and the allocator at about every 20th optimizer step. Checks, device
    times and, unless `grad_norm` is given, gradient norms come less often where they would exceed the run's
    `overhead_budget`. Where the loop waits for the hooks and they would exceed it, the passes of only some steps are
    timed, with the attribute `train.sampled`. Failures are counted and never raise into training.
    """
    uninstrument()
    state = Installed(active=[True])
    _installed.append(state)
    clock = GpuClock(gpu and torch.cuda.is_available())
    watch = Checks() if checks and optimizers else None
    if watch is not None:
        state.parts.append(watch)
    sampling = Sampling()
    passes = ModuleTiming(clock, sampling, watch) if modules else None
    if passes is not None:
        passes.install()
        state.parts.append(passes)
    if optimizers:
        period = NORM_EVERY if grad_norm is None else _period(grad_norm)
        steps = OptimizerTiming(clock, sampling, passes, period, watch, always=grad_norm is not None)
        steps.install()
        state.parts.append(steps)
    if data:
        state.parts += calls.loading(state.active)
    if collectives:
        state.parts += calls.collectives(clock, state.active)
    if checkpoints:
        state.parts += calls.checkpoints(state.active)


def instrument_once() -> Callable[[], None] | None:
    """Time torch as `instrument` does, unless it is timed already; return a function that undoes it."""
    if _installed:  # possibly with other options
        return None
    instrument()
    ours = _installed[-1]

    def undo() -> None:
        if ours in _installed:
            uninstrument()

    return undo


def uninstrument() -> None:
    """Undo `instrument`; does nothing without it."""
    while _installed:
        state = _installed.pop()
        state.active.clear()
        for part in state.parts:
            part.remove()


def _period(given: Any) -> int:
    """Return a number of steps; 0 for anything else."""
    return given if isinstance(given, int) and given > 0 else 0
