"""What the thirteenth set shares: the loop, schedules, a learner and plain networks."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.zoo.real.tape import Tape

Values = dict[str, Any]
Rate = Callable[[int], float]
Pair = tuple[torch.Tensor, torch.Tensor]
INFO = 9


def drive(
    tape: Tape, steps: int, act: Callable[[int], Values | None], over: Callable[[], bool] = lambda: False
) -> None:
    """Take steps until all are taken or it is over, and log what each gives."""
    for step in range(steps):
        if over():
            return
        with tape.step(step):
            values = act(step)
            if values:
                tape.log({name: float(torch.as_tensor(value).detach()) for name, value in values.items()})


def say(tape: Tape, step: int, text: str) -> None:
    """Print a line as the program would."""
    tape.rows.append(["l", tape._now(), step, INFO, text])


def flat(rate: float) -> Rate:
    """The same rate at each step."""
    return lambda step: rate


def cosine(peak: float, steps: int, warm: int = 0, floor: float = 0.1) -> Rate:
    """Up along a line, then down along half a cosine."""

    def rate(step: int) -> float:
        if step < warm:
            return peak * (step + 1) / warm
        part = min(1.0, (step - warm) / max(1, steps - warm))
        return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * part)) / 2)

    return rate


@dataclass(slots=True)
class Learner:
    """A model with its optimizer and schedule, and what its last step had: loss, gradient norm and rate."""

    model: Any
    rate: Rate
    optimizer: Any = None
    clip: float = 1.0
    clears: bool = True
    loss: float = 0.0
    norm: float = 0.0
    now: float = 0.0

    def __post_init__(self) -> None:
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=0.01)

    def take(self, step: int, loss: Callable[[], torch.Tensor], parts: int = 1) -> None:
        """Take one step on so many parts of a batch."""
        self.now = self.rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.now
        if self.clears:
            self.optimizer.zero_grad()
        self.loss = 0.0
        for _ in range(parts):
            part = loss() / parts
            part.backward()
            self.loss += part.item()
        self.norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.clip))
        self.optimizer.step()


def in_evaluation(model: Any, of: Callable[[], torch.Tensor]) -> float:
    """A number of a model in evaluation."""
    model.eval()
    with torch.no_grad():
        found = of().item()
    model.train()
    return float(found)


def dense(sizes: tuple[int, ...], between: Any = nn.ReLU) -> Any:
    """Linear layers with a nonlinearity between them."""
    parts: list[Any] = []
    for given, wanted in itertools.pairwise(sizes):
        parts += [nn.Linear(given, wanted), between()]
    return nn.Sequential(*parts[:-1])
