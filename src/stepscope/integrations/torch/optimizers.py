"""Optimizer steps, the gradient norm as the optimizer sees it, and the step that GPU times belong to."""

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import stepscope
from stepscope.integrations.torch.gpu import CATEGORY, GpuClock
from stepscope.integrations.torch.modules import ModuleTiming
from stepscope.integrations.torch.phases import Phase, in_backward, quietly
from stepscope.model.names import ATTR_BUCKET

OPTIMIZER_STEP = "train.optimizer_step"
AXIS = "optimizer_step"
"""The axis of values recorded outside any `run.step`: how many optimizer steps there were."""


class OptimizerTiming:
    """Hooks on every optimizer of the process."""

    def __init__(self, clock: GpuClock, modules: ModuleTiming | None, norm_every: int) -> None:
        self._clock = clock
        self._modules = modules
        self._norm_every = norm_every
        self._steps = 0
        self._open: Phase | None = None
        self._handles: list[Any] = []
        self._known: stepscope.Run | None = None

    def install(self) -> None:
        """Hook in."""
        before, after = quietly(self._before), quietly(self._after)
        self._handles = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]

    def _before(self, run: stepscope.Run, optimizer: Any, args: Any, kwargs: Any) -> None:
        if run is not self._known:
            self._known = run
            run.on_finish(self._clock.close)
        if self._modules is not None and not in_backward():
            self._modules.settle()
        self._abandon()
        if self._norm_every and self._steps % self._norm_every == 0:
            self._log_norm(run, optimizer)
        attrs = {ATTR_BUCKET: "productive", "train.optimizer": type(optimizer).__name__}
        self._open = Phase(self._clock, OPTIMIZER_STEP, attrs)

    def _after(self, run: stepscope.Run, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._open is None:
            return
        phase, self._open = self._open, None
        phase.end()
        self._clock.close_round(run, *self._place(run))
        self._steps += 1

    def _place(self, run: stepscope.Run) -> tuple[int, str | None]:
        step, axis = run.mark
        return (self._steps, AXIS) if step is None else (step, axis)

    def _log_norm(self, run: stepscope.Run, optimizer: Any) -> None:
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        if not gradients or any(each.is_sparse for each in gradients):
            return
        if any(type(each) is not torch.Tensor for each in gradients):
            text = "no gradient norm: gradients that are spread over ranks need an exchange between them"
            run.warn(text)
            return
        with torch.no_grad():
            norm = torch.nn.utils.get_total_norm(gradients)
            if getattr(optimizer, "grad_scale", None) is not None:  # a fused optimizer unscales by itself, later
                norm = norm / optimizer.grad_scale
        step, axis = self._place(run)
        run.log({"grad_norm": norm}, step, CATEGORY, axis=axis)

    def _abandon(self) -> None:
        if self._open is not None:
            self._open.abandon()
            self._open = None

    def remove(self) -> None:
        """Take the hooks out."""
        for handle in self._handles:
            handle.remove()
        self._abandon()
