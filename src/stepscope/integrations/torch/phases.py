"""A phase of training that begins in one hook and ends in another: a span, and a stretch of GPU time."""

from collections.abc import Callable
from contextvars import Context
from typing import Any

import torch
from opentelemetry.trace import StatusCode

import stepscope
from stepscope.integrations.torch.gpu import GpuClock


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
    """Count what went wrong in a timing, and name it once; a device in a bad state shows in torch's own call."""
    run.count("failed", "torch", type(error).__name__)
    run.warn(f"timing torch failed in {work}: {error!r}", about=f"torch {work}")


def in_backward() -> bool:
    """Tell whether this thread is inside a backward pass."""
    ask = getattr(torch._C, "_current_graph_task_id", None)
    return ask is not None and ask() != -1
