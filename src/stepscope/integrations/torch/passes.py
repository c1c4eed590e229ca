"""Timing of the outermost module's forward and backward passes and of optimizer steps; the gradient norm."""

import contextvars
import sys
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import stepscope
from stepscope.integrations.torch.checks import Checks, quietly, tensors_in
from stepscope.integrations.torch.phases import CATEGORY, GpuClock, Optional, Phase, in_backward, never_raising
from stepscope.integrations.torch.sampling import Sampling
from stepscope.model.names import ATTR_BUCKET

FORWARD = "train.forward"
INFERENCE = "inference.forward"
"""A forward pass without gradients: its purpose depends on the caller, so it has no bucket."""
BACKWARD = "train.backward"
GRADIENT_SYNC = "train.collective.gradient_sync"
"""What is left to wait for of the collectives that DDP or FSDP began in the backward pass."""
_DEPTH = 3
_MAX_OUTPUTS = 16


class ModuleTiming:
    """Times one forward and one backward pass at a time; concurrent ones of other threads are not timed.

    A global module hook catches the next call of any module, which is the outermost one. It is removed while that
    module runs, so that inner modules cost nothing.
    """

    def __init__(self, clock: GpuClock, sampling: Sampling, checks: Checks | None = None) -> None:
        self._clock = clock
        self._sampling = sampling
        self._checks = checks
        self._waiting: Any = None
        self._module: Any = None
        self._forward: Phase | None = None
        self._outside: BaseException | None = None
        """The exception being handled when the forward pass started."""
        self._handle: Any = None
        self._backward: Phase | None = None
        self._sync: Phase | None = None
        methods = (self._enter, self._leave, self._backward_ends, self._backward_begins, self._sync_ends)
        self._hooks = [never_raising(each, sampling.add) for each in methods]

    def install(self) -> None:
        """Install the hook for the next call of a module, unless this step is left out."""
        if self._waiting is None and self._sampling.on:
            self._waiting = register_module_forward_pre_hook(self._on_call)

    def _on_call(self, module: Any, args: Any) -> None:
        if torch.compiler.is_compiling():  # checked first, so that compiled code does not depend on anything below
            return
        self._hooks[0](module, args)

    def _enter(self, run: stepscope.Run, module: Any, args: Any) -> None:
        if self._forward is not None or in_backward():
            return  # another thread, or activation recomputation
        self.settle()
        self.rest()
        self._module, self._outside = module, sys.exc_info()[1]
        self._handle = module.register_forward_hook(self._on_return, always_call=True)
        if self._checks is not None and self._checks.wants_input:
            quietly(run, self._checks.forward, module, args)
        attrs = {"train.module": type(module).__name__, **self._sampling.attrs()}
        if torch.is_grad_enabled():
            self._forward = Phase(self._clock, FORWARD, {**attrs, ATTR_BUCKET: "productive"})
        else:
            self._forward = Phase(self._clock, INFERENCE, attrs)

    def _on_return(self, module: Any, args: Any, output: Any) -> None:
        if module is self._module:
            self._hooks[1](output)
            self._module = None
            self.install()

    def _leave(self, run: stepscope.Run, output: Any) -> None:
        forward, self._forward = self._forward, None
        error = sys.exc_info()[1]
        failed = error if error is not self._outside else None
        self._outside = None
        if failed is None:
            self._forget_handle()  # otherwise torch is iterating over the hooks, and it is removed before the next call
        if forward is not None:
            forward.end(failed)
        if failed is None and torch.is_grad_enabled():
            self._await_backward(output)

    def _await_backward(self, output: Any) -> None:
        """Register a hook on the gradient of an output, which marks the start of the backward pass."""
        context = contextvars.copy_context()
        begin = self._hooks[3]

        def on_gradient(gradient: Any) -> None:
            if self._backward is None:
                begin(context)

        for tensor in differentiable(output):
            tensor.register_hook(on_gradient)

    def _backward_begins(self, run: stepscope.Run, context: contextvars.Context) -> None:
        # torch calls back at the end of the whole pass; DDP and FSDP use the same mechanism.
        engine = torch.autograd.Variable._execution_engine
        if self._checks is not None and self._checks.armed is not None:
            quietly(run, self._checks.backward)
        attrs = {ATTR_BUCKET: "productive", **self._sampling.attrs()}
        self._backward = Phase(self._clock, BACKWARD, attrs, context)
        engine.queue_callback(self._hooks[2])

    def _backward_ends(self, run: stepscope.Run) -> None:
        backward, self._backward = self._backward, None
        if backward is not None:
            backward.end()
        if backward is not None and has_peers():
            # DDP and FSDP wait for their collectives in callbacks that were queued during the pass: after this one,
            # and before the next.
            attrs = {ATTR_BUCKET: "overhead", **self._sampling.attrs()}
            self._sync = Phase(self._clock, GRADIENT_SYNC, attrs, backward.context)
            torch.autograd.Variable._execution_engine.queue_callback(self._hooks[4])

    def _sync_ends(self, run: stepscope.Run) -> None:
        sync, self._sync = self._sync, None
        if sync is not None:
            sync.end()

    def settle(self) -> None:
        """End phases left open by an exception and reinstall the hook; called where no pass can be running."""
        for phase in (self._forward, self._backward, self._sync):
            if phase is not None:
                phase.abandon()
        self._forward = self._backward = self._sync = self._module = None
        self._forget_handle()
        self.install()

    def rest(self) -> None:
        """Remove the hook for the next call, in a step that is left out."""
        if self._waiting is not None:
            self._waiting.remove()
            self._waiting = None

    def _forget_handle(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def remove(self) -> None:
        """Remove all hooks."""
        self.settle()
        self.rest()


def has_peers() -> bool:
    """Return whether this process belongs to a group with others."""
    distributed = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


def differentiable(output: Any) -> list[Any]:
    """The first tensors of an output that require gradients."""
    found = (each for each in tensors_in(output, _DEPTH) if each.requires_grad and not each.is_leaf)
    return [each for each, _ in zip(found, range(_MAX_OUTPUTS), strict=False)]


OPTIMIZER_STEP = "train.optimizer_step"
AXIS = "optimizer_step"
"""The axis of values recorded outside `run.step`: the number of optimizer steps."""


class OptimizerTiming:
    """Hooks on every optimizer of the process."""

    def __init__(
        self,
        clock: GpuClock,
        sampling: Sampling,
        modules: ModuleTiming | None,
        norm_every: int,
        checks: Checks | None = None,
        *,
        always: bool = True,
    ) -> None:
        """With `always`, gradient norms are computed whatever they cost; else within the overhead budget."""
        self._always = always
        self._clock = clock
        self._sampling = sampling
        self._behind = False
        self._checks = checks
        self._modules = modules
        self._norm_every = norm_every
        self._steps = 0
        self._open: Phase | None = None
        self._handles: list[Any] = []
        self._known: stepscope.Run | None = None

    def install(self) -> None:
        """Install the hooks."""
        before, after = (never_raising(each, self._sampling.add) for each in (self._before, self._after))
        sample = never_raising(self._sample, lambda seconds: None)  # which is no part of a step that is timed

        def on_step(optimizer: Any, args: Any, kwargs: Any) -> None:
            if self._sampling.on or self._is_norm_due():  # else nothing is opened, and nothing is left open
                before(optimizer, args, kwargs)

        def on_stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
            if self._sampling.on:
                after(optimizer, args, kwargs)
                return
            if self._checks is not None and not torch.compiler.is_compiling() and self._checks.count(optimizer):
                sample(self._checks, optimizer)
            if self._sampling.skip(self._steps) and self._modules is not None:
                self._modules.install()
            self._steps += 1

        self._handles = [register_optimizer_step_pre_hook(on_step), register_optimizer_step_post_hook(on_stepped)]

    def _is_norm_due(self) -> bool:
        return self._norm_every > 0 and self._steps % self._norm_every == 0

    def _before(self, run: stepscope.Run, optimizer: Any, args: Any, kwargs: Any) -> None:
        if run is not self._known:
            self._known = run
            run.on_finish(self._clock.close)
        if self._modules is not None and not in_backward():
            self._modules.settle()
        self._abandon()
        if self._is_norm_due() and (self._always or run.affords()):
            with Optional(run):
                self._log_norm(run, optimizer)
        if self._sampling.on:
            behind = self._clock.is_behind()
            self._behind = self._behind if behind is None else behind
            attrs = {ATTR_BUCKET: "productive", "train.optimizer": type(optimizer).__name__, **self._sampling.attrs()}
            self._open = Phase(self._clock, OPTIMIZER_STEP, attrs)

    def _after(self, run: stepscope.Run, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._open is None:
            return
        phase, self._open = self._open, None
        phase.end()
        place = self._place(run)
        self._clock.close_round(run, *place)
        if self._checks is not None:
            quietly(run, self._checks.step, optimizer, *place)
        self._sampling.end_step(self._steps, run.overhead_budget, matters=not self._behind)
        self._steps += 1
        if self._modules is not None and not self._sampling.on:
            self._modules.rest()

    def _sample(self, run: stepscope.Run, checks: Checks, optimizer: Any) -> None:
        quietly(run, checks.sample, optimizer, *self._place(run))

    def _place(self, run: stepscope.Run) -> tuple[int, str | None]:
        step, axis = run.mark
        return (self._steps, AXIS) if step is None else (step, axis)

    def _log_norm(self, run: stepscope.Run, optimizer: Any) -> None:
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        if not gradients or any(each.is_sparse for each in gradients):
            return
        if any(type(each) is not torch.Tensor for each in gradients):
            text = "no gradient norm: gradients are sharded over ranks, and combining them needs communication"
            run.warn(text)
            return
        with torch.no_grad():
            norm = torch.nn.utils.get_total_norm(gradients)
            if getattr(optimizer, "grad_scale", None) is not None:  # a fused optimizer unscales later
                norm = norm / optimizer.grad_scale
        step, axis = self._place(run)
        run.log({"grad_norm": norm}, step, CATEGORY, axis=axis)

    def _abandon(self) -> None:
        if self._open is not None:
            self._open.abandon()
            self._open = None

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._abandon()
