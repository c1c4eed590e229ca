"""What the trainings of the fourth set share: a loop, an update, batches, a classifier of digits and a table."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.zoo.real.journal_tapes import user_run
from benchmarks.zoo.real.sets.third.digits import digits
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn
Values = dict[str, Any]


def trained(
    tape: Tape,
    steps: int,
    train: Callable[[int], Values],
    evaluate: Callable[[], Values] | None = None,
    *,
    every: int = 1,
    evaluate_every: int = 44,
    watched: bool = False,
    **config: Any,
) -> None:
    """Run a loop: a step, what it logs at every so many steps, and an evaluation now and then."""
    with user_run(tape, watched=watched, **config) as run:
        for step in range(steps):
            with run.step(step):
                values = train(step)
                if step % every == 0:
                    run.log(values)
            if evaluate and (step + 1) % evaluate_every == 0:
                run.log(evaluate(), step=step)


def updated(loss: torch.Tensor, optimizer: torch.optim.Optimizer, clip: float = 1e9) -> torch.Tensor:
    """Clear the gradients, compute them, clip them, update the weights; return the norm before it was clipped."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    norm = nn.utils.clip_grad_norm_(parameters, clip)
    optimizer.step()
    return norm


def batches(*parts: torch.Tensor, size: int = 32, shuffle: bool = True) -> Iterator[Any]:
    """Yield batches for ever, in another order in each epoch."""
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(*parts), batch_size=size, shuffle=shuffle, drop_last=True
    )
    while True:
        yield from loader


def convolutions(last: nn.Module | None = None, width: int = 16) -> nn.Sequential:
    """A small network for pictures of 8 by 8 points."""
    layers: list[nn.Module] = [
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]
    layers += [nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    layers += [nn.Linear(8 * width, 10), *([last] if last else [])]
    return nn.Sequential(*layers)


def perceptron(sizes: tuple[int, ...], norm: bool = False) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), *([nn.BatchNorm1d(outputs)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers[: -2 if norm else -1])


class Digits:
    """A classifier of digits, as in a tutorial."""

    def __init__(self, model: nn.Module | None = None, size: int = 32, shuffle: bool = True) -> None:
        torch.manual_seed(41)
        self.x, self.y, self.held_x, self.held_y = digits()
        self.model = model or convolutions()
        self.size = size
        self.batches = batches(self.x, self.y, size=size, shuffle=shuffle)
        self.loss = F.cross_entropy

    def adam(self, lr: float, **parts: Any) -> torch.optim.Optimizer:
        """An optimizer for it."""
        return torch.optim.AdamW(self.model.parameters(), lr=lr, **parts)

    def sgd(self, lr: float) -> torch.optim.Optimizer:
        """Another one."""
        return torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)

    def step(self, optimizer: torch.optim.Optimizer, clip: float = 1e9) -> tuple[torch.Tensor, ...]:
        """Train with one batch; return loss, accuracy and gradient norm."""
        x, y = next(self.batches)
        scores = self.model(x)
        loss = self.loss(scores, y)
        norm = updated(loss, optimizer, clip)
        return loss.detach(), (scores.argmax(1) == y).float().mean(), norm

    def evaluated(self, x: torch.Tensor | None = None, y: torch.Tensor | None = None) -> tuple[float, float]:
        """Held-out loss and accuracy."""
        x, y = self.held_x if x is None else x, self.held_y if y is None else y
        self.model.eval()
        with torch.no_grad():
            scores = self.model(x)
            found = self.loss(scores, y).item(), (scores.argmax(1) == y).float().mean().item()
        self.model.train()
        return found


def plainly(tape: Tape, task: Digits, optimizer: torch.optim.Optimizer, steps: int = 500, **parts: Any) -> None:
    """Train with the names of a plain loop: train/loss, train/acc, grad_norm, lr, val/loss, val/acc."""

    def train(step: int) -> Values:
        loss, right, norm = task.step(optimizer)
        return {"train/loss": loss, "train/acc": right, "grad_norm": norm, "lr": optimizer.param_groups[0]["lr"]}

    def evaluate() -> Values:
        loss, right = task.evaluated()
        return {"val/loss": loss, "val/acc": right}

    trained(tape, steps, train, evaluate, lr=optimizer.param_groups[0]["lr"], batch_size=task.size, **parts)


def table(rows: int = 1200) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of eight numbers, and a number that depends on four of them."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(rows, 8, generator=generator)
    y = x[:, 0] * 2 + torch.sin(2 * x[:, 1]) + x[:, 2] * x[:, 3] + 0.2 * torch.randn(rows, generator=generator)
    return x, (y - y.mean()) / y.std()
