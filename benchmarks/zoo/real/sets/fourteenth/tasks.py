"""The loop and the networks that the trainings of the fourteenth set share."""

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from benchmarks.zoo.real.sets.fourteenth.schedules import Rate
from benchmarks.zoo.real.tape import Tape

Values = dict[str, Any]
Pair = tuple[torch.Tensor, torch.Tensor]


def drive(tape: Tape, steps: int, act: Callable[[int], Values | None], first: int = 0) -> None:
    """Act in each step, and log what it returns."""
    for step in range(first, first + steps):
        with tape.step(step):
            values = act(step)
        if values:
            tape.log({key: float(value) for key, value in values.items()}, step)


@dataclass(slots=True)
class Fit:
    """A training whose parts an accident may replace while it runs."""

    model: Any
    batch: Callable[[], Any]
    loss: Callable[[Any, Any], torch.Tensor]
    steps: int
    rate: Rate
    names: tuple[str, ...]
    """Of the loss, the rate and the norm of the gradients."""
    optimizer: Any = None
    at: Callable[["Fit", int], None] | None = None
    evaluate: Callable[["Fit"], Values] = lambda fit: {}
    evaluate_every: int = 50
    every: int = 1
    """How often is logged."""
    clip: float = 1.0
    parts: int = 1
    zero: bool = True
    now: float = 0.0
    norm: float = 0.0
    losses: list[float] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    """What the loss tells beside itself, and is logged."""

    def run(self, tape: Tape) -> None:
        """Train."""
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=0.01, fused=True)

        def act(step: int) -> Values | None:
            if self.at is not None:
                self.at(self, step)
            self.now = self.rate(step)
            for group in self.optimizer.param_groups:
                group["lr"] = self.now
            if self.zero:
                self.optimizer.zero_grad()
            total = 0.0
            for _ in range(self.parts):
                with tape.span("train.data_load"):
                    batch = self.batch()
                loss = self.loss(self.model, batch) / self.parts
                loss.backward()
                total += loss.item()
            self.norm = clipped(self.model, self.clip)
            self.optimizer.step()
            self.losses.append(total)
            return self.told(step)

        drive(tape, self.steps, act)

    def told(self, step: int) -> Values:
        """What is logged at a step."""
        found: Values = {}
        if (step + 1) % self.every == 0:
            found = dict(zip(self.names, (self.mean(self.every), self.now, self.norm), strict=False)) | self.extra
        if (step + 1) % self.evaluate_every == 0:
            found |= self.evaluate(self)
        return found

    def mean(self, last: int) -> float:
        """The mean of the last losses."""
        part = self.losses[-last:]
        return sum(part) / len(part)

    def seen(self, batch: Any) -> float:
        """The loss of a batch in evaluation."""
        with evaluated(self.model):
            return float(self.loss(self.model, batch))


@contextmanager
def evaluated(model: Any) -> Iterator[None]:
    """Hold a model in evaluation, without gradients, and set it back to training."""
    model.eval()
    with torch.no_grad():
        yield
    model.train()


def clipped(model: Any, most: float) -> float:
    """Clip the gradients, and return the norm that they had."""
    return float(nn.utils.clip_grad_norm_(model.parameters(), most))


def still(model: Any) -> Any:
    """A copy that is not trained."""
    return copy.deepcopy(model).requires_grad_(False)


def dense(*widths: int, act: Any = nn.ReLU) -> Any:
    """Layers with an activation between them."""
    parts: list[Any] = []
    for given, wanted in itertools.pairwise(widths):
        parts += [nn.Linear(given, wanted), act()]
    return nn.Sequential(*parts[:-1])


def drawn(rows: Pair, count: int) -> Callable[[], Pair]:
    """Batches of so many rows, in a new order each epoch."""
    waiting: list[torch.Tensor] = []

    def batch() -> Pair:
        if not waiting:
            waiting.extend(torch.randperm(len(rows[0])).split(count))
        taken = waiting.pop()
        return rows[0][taken], rows[1][taken]

    return batch
