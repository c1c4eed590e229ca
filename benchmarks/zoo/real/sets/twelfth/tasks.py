"""What the trainings of the twelfth set share: the loop, schedules, gratings, a text of words and two networks."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.real.tape import Tape

__all__ = ["F", "nn"]
Values = dict[str, float]
Schedule = Callable[[int], float]
Change = Callable[[Any, int], None]
LETTERS = 27
CONTEXT = 96


def constant(rate: float) -> Schedule:
    """The same rate at each step."""
    return lambda step: rate


def cosine(peak: float, steps: int, warmup: int = 20, floor: float = 0.1) -> Schedule:
    """A linear warm-up, then half a cosine down to a share of the peak."""

    def rate(step: int) -> float:
        if step < warmup:
            return peak * (step + 1) / warmup
        part = min(1.0, (step - warmup) / max(1, steps - warmup))
        return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * part)) / 2)

    return rate


def linear(peak: float, steps: int) -> Schedule:
    """A line down to zero, without warm-up."""
    return lambda step: peak * (1 - step / steps)


def warm_restarts(peak: float, cycle: int) -> Schedule:
    """Half a cosine after another."""
    return lambda step: peak * (0.02 + 0.98 * (1 + math.cos(math.pi * (step % cycle) / cycle)) / 2)


def stairs(peak: float, every: int, factor: float = 0.3) -> Schedule:
    """A factor down every so many steps."""
    return lambda step: peak * factor ** (step // every)


def follow(optimizer: torch.optim.Optimizer, rate: float) -> float:
    """Set the learning rate of all groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate


def run_steps(tape: Tape, steps: int, act: Callable[[int], Values | None], first: int = 0) -> None:
    """Take steps and log what each returns."""
    for step in range(first, first + steps):
        with tape.step(step):
            values = act(step)
            if values:
                tape.log({name: float(value) for name, value in values.items()})


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients."""
    model.eval()
    with torch.no_grad():
        yield
    model.train()


@dataclass(slots=True)
class Training:
    """A supervised training; `change` of `run` is called before each step and may replace any part."""

    tape: Tape
    model: Any
    draw: Callable[[], Any]
    loss: Callable[[Any, Any], torch.Tensor]
    report: Callable[["Training", int], Values | None]
    optimizer: torch.optim.Optimizer
    rate: Schedule
    clip: float = math.inf
    accumulate: int = 1
    clear: bool = True
    parts: dict[str, Any] = field(default_factory=dict)
    batch: Any = None
    train_loss: float = 0.0
    grad_norm: float = 0.0
    lr: float = 0.0
    recent: list[float] = field(default_factory=list)

    def run(self, steps: int, change: Change | None = None, first: int = 0) -> None:
        """Train."""

        def act(step: int) -> Values | None:
            if change is not None:
                change(self, step)
            self.update(step)
            return self.report(self, step)

        run_steps(self.tape, steps, act, first)

    def update(self, step: int) -> None:
        """Take one step of the optimizer."""
        self.lr = follow(self.optimizer, self.rate(step))
        if self.clear:
            self.model.zero_grad()
        total = 0.0
        for _ in range(self.accumulate):
            with self.tape.span("train.data_load"):
                self.batch = self.draw()
            loss = self.loss(self.model, self.batch) / self.accumulate
            loss.backward()
            total += loss.item()
        self.grad_norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.clip))
        self.optimizer.step()
        self.train_loss = total
        self.recent.append(total)

    def window(self, last: int) -> float:
        """The mean of the last losses."""
        rows = self.recent[-last:]
        return sum(rows) / len(rows)

    def held_out(self, batch: Any) -> float:
        """The loss of a batch in evaluation mode."""
        with self.tape.span("train.evaluate"), evaluating(self.model):
            return float(self.loss(self.model, batch))


def gratings(count: int, noise: float = 0.8) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of 12 by 12 with stripes in one of five directions and two widths: ten kinds."""
    labels = torch.randint(0, 10, (count,))
    turn = (labels % 5) * math.pi / 5
    pitch = torch.where(labels < 5, 0.9, 1.7)
    phase = 2 * math.pi * torch.rand(count, 1, 1)
    y, x = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    along = x * turn.cos()[:, None, None] + y * turn.sin()[:, None, None]
    return ((along * pitch[:, None, None] + phase).sin() + noise * torch.randn(count, 12, 12))[:, None], labels


def convnet(outputs: int = 10, width: int = 12, inputs: int = 1) -> nn.Sequential:
    """Two convolutions with batch norm and a linear head."""
    return nn.Sequential(
        *(nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(18 * width, outputs)),
    )


def picture_loss(model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy of the labels."""
    return F.cross_entropy(model(batch[0]), batch[1])


def accuracy(model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
    """The share of labels that are guessed."""
    with evaluating(model):
        return float((model(batch[0]).argmax(1) == batch[1]).float().mean())


def weight_norm(model: nn.Module) -> float:
    """The norm of all weights."""
    return math.sqrt(sum(weight.detach().square().sum().item() for weight in model.parameters()))


def resident_gib() -> float:
    """The memory of this process that is resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**30


def corpus(words: int = 60, length: int = 60_000, seed: int = 3) -> torch.Tensor:
    """A text of made words, each followed by one of four, in letters and spaces."""
    made = torch.Generator().manual_seed(seed)
    sizes = torch.randint(2, 7, (words,), generator=made).tolist()
    lexicon = [[*torch.randint(1, LETTERS, (size,), generator=made).tolist(), 0] for size in sizes]
    after = torch.randint(0, words, (words, 4), generator=made).tolist()
    picks = torch.randint(0, 4, (length,), generator=made).tolist()
    text: list[int] = []
    word = 0
    for pick in picks:
        text += lexicon[word]
        word = after[word][pick]
        if len(text) >= length:
            break
    return torch.tensor(text[:length])


def windows(text: torch.Tensor, count: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pieces of a text, and the same one letter later."""
    starts = torch.randint(0, len(text) - length - 1, (count, 1))
    rows = text[starts + torch.arange(length + 1)]
    return rows[:, :-1], rows[:, 1:]


class Attention(nn.Module):  # type: ignore[misc]
    """Causal attention and what follows it, each before a norm."""

    def __init__(self, width: int, feed: nn.Module, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = feed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The values after the block."""
        count, length, width = x.shape
        parts = self.qkv(self.before(x)).view(count, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(count, length, width))
        return x + self.feed(self.between(x))


def feed_forward(width: int) -> nn.Sequential:
    """Two layers, four times as wide inside."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class Decoder(nn.Module):  # type: ignore[misc]
    """A small language model."""

    def __init__(self, layers: int = 2, width: int = 48, feed: Callable[[int], nn.Module] = feed_forward) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Attention(width, feed(width)) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, LETTERS)
        for table in (self.letters, self.places):
            nn.init.normal_(table.weight, 0, 0.2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The scores of the next letter at each place."""
        x = self.letters(rows) + self.places.weight[: rows.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def text_loss(model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross entropy of the next letter."""
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())
