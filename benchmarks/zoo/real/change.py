"""What trainings with a state share: a change of it at a step, and the norm of their gradients."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.tape import Tape

Change = Callable[[dict[str, Any], int], None]


def from_step(at: int, **parts: Any) -> Change:
    """Set parts of a training from a step on."""

    def change(state: dict[str, Any], step: int) -> None:
        if step == at:
            state.update(parts)

    return change


def grad_norm(model: torch.nn.Module) -> float:
    """Return the norm of all gradients."""
    return float(torch.stack([each.grad.norm() for each in model.parameters() if each.grad is not None]).norm())


def add_healthy(family: str, name: str, train: Callable[..., None], **parts: Any) -> None:
    """Register a healthy training with these settings."""

    def one(run: Tape) -> None:
        train(run, **parts)

    one.__name__ = name
    healthy(family)(one)


def add_fault(family: str, name: str, kinds: str, train: Callable[..., None], **parts: Any) -> None:
    """Register a training that goes wrong with these settings."""

    def one(run: Tape) -> None:
        train(run, **parts)

    one.__name__ = name
    fault(family, kinds)(one)
