"""Checks of execution at some optimizer steps: weights that do not change, gradients not cleared, equal batches."""

import gc
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch

import stepscope
from stepscope.integrations.torch.phases import CATEGORY, Optional, failed, in_backward
from stepscope.model.names import EVENT_PARAMETERS

PERIODS = ((19, 21, 23), (47, 53, 49))
"""Optimizer steps between two samples, at first and later, by turns: so a cycle of the data is not one batch."""
LATER = 200
MEMORY_EVERY = 5
"""Optimizer steps between two readings of the allocated memory: a leak is seen within some hundred steps."""
SETTLED = 3
"""The optimizer step after which all optimizers and gradients of a program are expected to have been seen."""
EARLY = 12
"""Up to this optimizer step more samples are taken, to know what is usual."""
MAX_TENSORS, MAX_VALUES = 16, 256
"""How much of the weights is compared with the last sample."""
MAX_INPUT = 1024
MAX_NAMES = 8
PAUSE_SECONDS = 0.005
"""A garbage collection that takes longer is recorded."""


class Checks:
    """Records what tells that a step did nothing. All is computed on the device; nothing waits for it."""

    def __init__(self) -> None:
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._main: Any = None
        self._known = 0
        """The id of the first optimizer, which is sampled."""
        self._steps = 0
        self._next = SETTLED
        self._round = 0
        self._reported = False
        self._before: torch.Tensor | None = None
        self._device: torch.device | None = None
        """The device of the weights, where that has an allocator."""
        self.armed: Any = None
        """A parameter whose gradient is looked at when the next backward pass begins."""
        self.wants_input = True
        """Whether the next forward pass is looked at."""
        self._model: Any = None
        self._replicated = False
        self._collecting = 0.0
        self._paused = self._longest = 0.0
        gc.callbacks.append(self._on_collection)

    def remove(self) -> None:
        """Stop watching."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)
        self._before = self.armed = self._main = self._model = None

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.perf_counter()
            return
        took = time.perf_counter() - self._collecting
        if took > PAUSE_SECONDS:
            self._paused += took
            self._longest = max(self._longest, took)

    def forward(self, run: stepscope.Run, module: Any, args: Any) -> None:
        """See the outermost module and its input, where a sample is due."""
        if self._model is None and torch.is_grad_enabled():
            self._model = weakref.ref(module)
            self._replicated = isinstance(module, torch.nn.parallel.DistributedDataParallel)
        if torch.is_grad_enabled():
            self.wants_input = False
            checksum, step = _checksum(args), run.mark[0]
            if checksum is not None and step is not None:
                run.log({"input_checksum": checksum}, step, CATEGORY)

    def backward(self, run: stepscope.Run) -> None:
        """See whether the gradients of the last step were cleared before new ones are added."""
        armed, self.armed = self.armed, None
        if armed is None or len(self._optimizers) != 1:
            return
        gradient = armed.grad
        stale = 0.0 if gradient is None else (gradient.detach().reshape(-1)[:MAX_INPUT] != 0).any().float()
        step = run.mark[0]
        if step is not None:
            run.log({"stale_gradient": stale}, step, CATEGORY)

    def count(self, optimizer: Any) -> bool:
        """Count a step of the first optimizer; return whether a sample is due after it.

        That depends on the count alone, neither on what this rank can afford nor on which steps it times: what is
        sampled is compared between ranks.
        """
        if id(optimizer) != self._known:
            return False
        self._steps += 1
        if self._steps < self._next:
            return False
        self._round += 1
        periods = PERIODS[self._steps >= LATER]
        self._next = self._steps + (SETTLED if self._steps < EARLY else periods[self._round % len(periods)])
        return True

    def step(self, run: stepscope.Run, optimizer: Any, step: int, axis: str | None) -> None:
        """See an optimizer step that is timed, and the weights after it where a sample is due."""
        if id(optimizer) != self._known:
            self._optimizers.add(optimizer)
            if self._main is not None and self._main() is not None:
                return
            self._main, self._known = weakref.ref(optimizer), id(optimizer)
        due = self.count(optimizer)
        if self._device is not None and self._steps % MEMORY_EVERY == 0:
            run.log({"memory_allocated_bytes": torch.cuda.memory_allocated(self._device)}, step, CATEGORY, axis=axis)
        if due:
            self.sample(run, optimizer, step, axis)

    def sample(self, run: stepscope.Run, optimizer: Any, step: int, axis: str | None) -> None:
        """See the weights after an optimizer step, if the run can afford it."""
        if in_backward() or _is_capturing() or not run.affords():
            return
        with Optional(run):
            if not self._reported:
                self._reported = True
                self._report_parameters(run)
            self._sample(run, optimizer, step, axis)

    def _sample(self, run: stepscope.Run, optimizer: Any, step: int, axis: str | None) -> None:
        weights = [each.detach() for group in optimizer.param_groups for each in group["params"]]
        if not weights or any(type(each) is not torch.Tensor or each.is_sparse for each in weights):
            return  # sharded over ranks, or sparse
        found: dict[str, Any] = {}
        with torch.no_grad():
            norms = torch.stack(torch._foreach_norm([each for each in weights if each.is_floating_point()]))
            found["param_norm"] = norms.norm()
            if self._replicated:
                order = torch.arange(1, len(norms) + 1, dtype=torch.float64, device=norms.device)
                found["weights_checksum"] = (norms * order).sum()
            part = torch.cat([each.reshape(-1)[:MAX_VALUES].float() for each in _spread(weights)])
            if self._before is not None and self._before.shape == part.shape:
                found["update_ratio"] = (part - self._before).norm() / part.norm().clamp_min(1e-30)
            self._before = part.clone()
        if self._longest:
            found["gc_pause_ms"], found["gc_longest_ms"] = self._paused * 1e3, self._longest * 1e3
            self._paused = self._longest = 0.0
        if weights[0].is_cuda:
            self._device = weights[0].device
            found.update(_allocator(self._device))
        run.log(found, step, CATEGORY, axis=axis)
        self.armed = next((each for group in optimizer.param_groups for each in group["params"]), None)
        self.wants_input = True

    def _report_parameters(self, run: stepscope.Run) -> None:
        """Record, once, which parameters of the model no optimizer has, and which have no gradient."""
        model = None if self._model is None else self._model()
        if model is None:
            return
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        trained = [each for group in groups for each in group["params"]]
        held = {id(each) for each in trained}
        named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        outside = [name for name, each in named if id(each) not in held]
        if len(outside) == len(named) and any(each.grad is not None for each in trained):
            return  # a teacher or a reference: another module is trained
        without = [name for name, each in named if each.grad is None and id(each) in held]
        found: dict[str, Any] = {
            "parameters": len(named),
            "outside_optimizer": len(outside),
            "outside_names": outside[:MAX_NAMES],
        }
        cleared = len(without) == len([each for _, each in named if id(each) in held])
        if not cleared:  # else a fused step cleared them all
            found |= {"without_gradient": len(without), "without_names": without[:MAX_NAMES]}
        run.event(EVENT_PARAMETERS, found)


def _spread(weights: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return some of the weights, from the first layer to the last, on one device."""
    here = [each for each in weights if each.device == weights[0].device and each.is_floating_point()]
    stride = max(len(here) // MAX_TENSORS, 1)
    return here[::stride][:MAX_TENSORS]


def tensors_in(given: Any, depth: int = 2) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested lists, mappings and dataclasses."""
    if isinstance(given, torch.Tensor):
        yield given
    elif depth and isinstance(given, (list, tuple)):
        for each in given:
            yield from tensors_in(each, depth - 1)
    elif depth and isinstance(given, Mapping):
        for each in given.values():
            yield from tensors_in(each, depth - 1)
    elif depth and hasattr(given, "__dataclass_fields__"):
        yield from tensors_in(vars(given), depth - 1)


def _checksum(args: Any) -> torch.Tensor | None:
    """Return a number that differs for different inputs, as a tensor on their device."""
    first = next((each for each in tensors_in(args) if each.numel() > 1), None)
    if first is None:
        return None
    part = first.detach().reshape(-1)[:MAX_INPUT].float()
    return (part * torch.arange(1, part.numel() + 1, dtype=part.dtype, device=part.device)).sum()


def _is_capturing() -> bool:
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _allocator(device: torch.device) -> dict[str, int]:
    stats = torch.cuda.memory_stats(device)
    names = {
        "memory_reserved_bytes": "reserved_bytes.all.current",
        "alloc_retries": "num_alloc_retries",
    }
    return {name: stats[key] for name, key in names.items() if key in stats}


def quietly(run: stepscope.Run, work: Any, *arguments: Any) -> None:
    """Call a check; its failures are counted and never reach torch."""
    try:
        work(run, *arguments)
    except Exception as error:
        failed(run, "checks", error)
