"""What the trainings of the fifth set share: a loop over steps, an update, and data of four sorts."""

import argparse
import inspect
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn
Tensor = torch.Tensor
Data = tuple[Tensor, Tensor]


def ticks(tape: Tape, steps: int) -> Iterator[int]:
    """Yield the steps; what the body of the loop does is timed as a step."""
    for step in range(steps):
        with tape.step(step):
            yield step


def seeded(seed: int) -> np.random.Generator:
    """Seed torch, and return a generator of numpy with the same seed."""
    torch.manual_seed(seed)
    return np.random.default_rng(torch.initial_seed())


def gradient_norm(model: nn.Module) -> float:
    """The norm of all gradients."""
    return math.sqrt(sum(float(each.grad.square().sum()) for each in model.parameters() if each.grad is not None))


def descend(loss: Tensor, optimizer: torch.optim.Optimizer, model: nn.Module, clip: float = math.inf) -> float:
    """Update the weights once; return the norm of the gradients before they were clipped."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    norm = gradient_norm(model)
    if norm > clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return norm


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> float:
    """Set the learning rate and return it."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate


def cosine(step: int, total: int, peak: float, warmup: int = 40, least: float = 0.0) -> float:
    """Linear warmup and half a cosine."""
    if step < warmup:
        return peak * (step + 1) / warmup
    done = min(1.0, (step - warmup) / (total - warmup))
    return least + (peak - least) * 0.5 * (1 + math.cos(math.pi * done))


def arrows(count: int, noise: float = 0.35) -> Data:
    """Noisy pictures of 12 by 12 points with an arrow up, right, down or left somewhere."""
    shape = torch.zeros(5, 5)
    shape[:, 2] = 1
    shape[1, 1] = shape[1, 3] = shape[2, 0] = shape[2, 4] = 1
    labels = torch.randint(4, (count,))
    pictures = noise * torch.randn(count, 1, 12, 12)
    turned = [torch.rot90(shape, -turns) for turns in range(4)]
    places = torch.randint(2, 6, (count, 2)).tolist()
    for picture, label, (row, column) in zip(pictures, labels.tolist(), places, strict=True):
        picture[0, row : row + 5, column : column + 5] += turned[label]
    return pictures, labels


def customers(count: int, noise: float = 0.4, positive: float = 0.0) -> Data:
    """A table of ten columns and whether a customer leaves; most stay where `positive` is low."""
    weights = torch.linspace(-1, 1, 6)
    table = torch.randn(count, 10)
    score = table[:, :6] @ weights + table[:, 6] * table[:, 7] + noise * torch.randn(count)
    return table, (score > positive).float()


def houses(count: int, noise: float = 0.3) -> Data:
    """A table of eight columns and a price, standardised."""
    table = torch.randn(count, 8)
    price = table[:, 0] + torch.sin(2 * table[:, 1]) + table[:, 2] * table[:, 3] - 0.5 * table[:, 4].abs()
    return table, price + noise * torch.randn(count)


def demand(count: int, length: int = 60) -> Tensor:
    """Series with a week, a trend and noise."""
    time = torch.arange(length)
    phase, trend, height = 7 * torch.rand(count, 1), 0.02 * torch.randn(count, 1), 0.5 + torch.rand(count, 1)
    return height * torch.sin(2 * math.pi * (time + phase) / 7) + trend * time + 0.2 * torch.randn(count, length)


def source_code() -> Tensor:
    """The characters of a module of Python, as numbers below 128."""
    text = inspect.getsource(argparse)
    return torch.tensor(list(text.encode("ascii", "replace")))


def shuffled(*parts: Tensor, size: int) -> Iterator[list[Tensor]]:
    """Yield batches for ever; each epoch has another order."""
    while True:
        order = torch.randperm(len(parts[0]))
        for at in range(0, len(order) - size + 1, size):
            yield [part[order[at : at + size]] for part in parts]


def eye(width: int = 12, dropout: float = 0.0, norm: bool = True, classes: int = 4) -> nn.Sequential:
    """A network for the pictures."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, 5, stride=2), *([nn.BatchNorm2d(width)] if norm else []), nn.ReLU()]
    layers += [nn.Conv2d(width, 2 * width, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(8 * width, classes))


def dense(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers with an activation between them."""
    layers: list[Any] = []
    for at in range(len(sizes) - 1):
        layers += [nn.Linear(sizes[at], sizes[at + 1]), activation()]
    return nn.Sequential(*layers[:-1])


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """The share of right answers."""
    return float((scores.argmax(-1) == labels).float().mean())
