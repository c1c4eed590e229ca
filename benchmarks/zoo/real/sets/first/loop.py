"""A supervised training loop in torch that a fault can change while it runs."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.zoo.real.tape import Tape

Batch = tuple[torch.Tensor, torch.Tensor]
At = Callable[["Loop", int], None]


@dataclass(slots=True)
class Loop:
    """A training in progress: faults replace its parts."""

    model: torch.nn.Module
    batch: Callable[[int], Batch]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.nn.functional.cross_entropy
    lr: float = 1e-3
    optimizer: Any = None
    schedule: Callable[[int], float] | None = None
    steps: int = 400
    clip: float = 1e9
    accumulate: int = 1
    names: dict[str, str] = field(default_factory=dict)
    """The key under which each of loss, grad, lr, accuracy, val_loss and val_accuracy is logged; absent: not logged."""
    log_every: int = 1
    evaluate: Callable[[], dict[str, float]] | None = None
    evaluate_every: int = 50
    spans: bool = True
    zero: bool = True
    updates: bool = True
    sign: float = 1.0
    data_seconds: float = 0.0
    extra: Callable[[int], dict[str, float]] | None = None

    def fit(self, run: Tape, at: At | None = None) -> None:
        """Train; `at` is called before each step."""
        if self.optimizer is None:
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.lr)
        for step in range(self.steps):
            if at is not None:
                at(self, step)
            if self.schedule is not None:
                for group in self.optimizer.param_groups:
                    group["lr"] = self.lr * self.schedule(step)
            with run.step(step):
                values = self._step(run, step)
                if self.evaluate is not None and step % self.evaluate_every == self.evaluate_every - 1:
                    values |= self._evaluated(run)
                if step % self.log_every == 0:
                    run.log(values)

    def _step(self, run: Tape, step: int) -> dict[str, float]:
        total = right = 0.0
        if self.zero:
            self.optimizer.zero_grad()
        for part in range(self.accumulate):
            with run.span("train.data_load"):
                inputs, targets = self.batch(step * self.accumulate + part)
                if self.data_seconds:
                    time.sleep(self.data_seconds)
            with run.span("train.forward"):
                out = self.model(inputs)
                loss = self.loss(out, targets)
            with run.span("train.backward"):
                (self.sign * loss / self.accumulate).backward()
            total += loss.item() / self.accumulate
            if "accuracy" in self.names:
                right += (out.argmax(-1) == targets).float().mean().item() / self.accumulate
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip).item()
        if self.updates:
            with run.span("train.optimizer_step"):
                self.optimizer.step()
        values = {"loss": total, "grad": norm, "lr": self.optimizer.param_groups[0]["lr"], "accuracy": right}
        known = {self.names[key]: value for key, value in values.items() if key in self.names}
        return known | (self.extra(step) if self.extra is not None else {})

    def _evaluated(self, run: Tape) -> dict[str, float]:
        assert self.evaluate is not None
        self.model.eval()
        with run.span("train.evaluate"), torch.no_grad():
            found = self.evaluate()
        self.model.train()
        return {self.names.get(key, key): value for key, value in found.items()}


def cosine(steps: int, warm: int = 0, floor: float = 0.1) -> Callable[[int], float]:
    """A warm-up, then a cosine down to a floor."""

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(steps - warm, 1)))

    return factor


def linear(steps: int, warm: int = 0) -> Callable[[int], float]:
    """A linear warm-up, then a linear decay to zero."""
    return lambda step: (step + 1) / warm if step < warm else max((steps - step) / (steps - warm), 0.0)
