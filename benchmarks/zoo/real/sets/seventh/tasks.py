"""Data and networks of the seventh set: digits of segments, prices, demand by the hour, sentences with a topic."""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn
Pair = tuple[torch.Tensor, torch.Tensor]
Values = dict[str, Any]

SEGMENTS = (
    "1110111",
    "0010010",
    "1011101",
    "1011011",
    "0111010",
    "1101011",
    "1101111",
    "1010010",
    "1111111",
    "1111011",
)
"""Which of the segments are lit: top, upper left and right, middle, lower left and right, bottom."""
STROKES = (
    (slice(0, 1), slice(1, 4)),
    (slice(1, 4), slice(0, 1)),
    (slice(1, 4), slice(4, 5)),
    (slice(4, 5), slice(1, 4)),
    (slice(5, 8), slice(0, 1)),
    (slice(5, 8), slice(4, 5)),
    (slice(8, 9), slice(1, 4)),
)


def drive(tape: Tape, steps: int, act: Callable[[int], Values | None], first: int = 0) -> None:
    """Take so many steps, and log what each of them returns."""
    for step in range(first, first + steps):
        with tape.step(step):
            values = act(step)
            if values:
                tape.log({name: float(torch.as_tensor(value).detach()) for name, value in values.items()})


def learn(optimizer: torch.optim.Optimizer, loss: torch.Tensor, clip: float = math.inf) -> torch.Tensor:
    """Update the weights and return the norm of all gradients before clipping."""
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(weights_of(optimizer), clip)
    optimizer.step()
    return norm


def weights_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """All weights that an optimizer holds."""
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> float:
    """Set the learning rate of all groups and return it."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate


def dense(sizes: Iterable[int], between: Callable[[], Any] = nn.ReLU) -> Any:
    """Linear layers with an activation between each two."""
    parts: list[Any] = []
    for given, wanted in itertools.pairwise(sizes):
        parts += [nn.Linear(given, wanted), between()]
    return nn.Sequential(*parts[:-1])


def share_right(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The share of the rows whose highest score is that of the label."""
    return (scores.argmax(-1) == labels).float().mean()


def digits(count: int, noise: float = 0.3) -> Pair:
    """Pictures of 12 by 8 points with a digit of seven segments somewhere in them, and the digits."""
    stamps = torch.zeros(10, 9, 5)
    for digit, lit in enumerate(SEGMENTS):
        for stroke, on in zip(STROKES, lit, strict=True):
            stamps[digit][stroke] = float(on)
    labels, moved = torch.randint(0, 10, (count,)), torch.randint(0, 16, (count,))
    pictures = torch.zeros(count, 1, 12, 8)
    for row, (down, right) in enumerate(zip((moved // 4).tolist(), (moved % 4).tolist(), strict=True)):
        pictures[row, 0, down : down + 9, right : right + 5] = stamps[labels[row]]
    return pictures * (0.7 + 0.6 * torch.rand(count, 1, 1, 1)) + noise * torch.randn_like(pictures), labels


def reader(width: int = 8) -> Any:
    """Two convolutions and two linear layers that read a digit."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(12 * width, 48), nn.ReLU(), nn.Linear(48, 10),
    )  # fmt: skip


def prices(count: int, tail: float = 3.0) -> Pair:
    """Ten properties of houses, and the logarithms of their prices, which have heavy tails."""
    given = torch.randn(count, 10)
    level = given[:, 0] + 0.6 * given[:, 1] * given[:, 2] + (given[:, 3] - 0.5).relu() - 0.4 * given[:, 4]
    odd = torch.distributions.StudentT(torch.tensor(tail)).sample((count,))
    return given, level + 0.25 * odd


def demand(count: int, hours: int = 16) -> Pair:
    """The demand of some hours, as counts above zero, and that of the hour after."""
    at = torch.arange(hours + 1.0) + 30 * torch.rand(count, 1)
    wave = 1 + 0.5 * (2 * math.pi * at / 12).sin() + 0.3 * (2 * math.pi * at / 5 + 1).cos()
    level = 20 * (0.3 * torch.randn(count, 1)).exp()
    counts = torch.poisson(level * wave.clamp_min(0.1))
    return counts[:, :-1], counts[:, -1]


class Forecaster(torch.nn.Module):  # type: ignore[misc]
    """A recurrent layer over the hours and a linear one for the next."""

    def __init__(self, width: int = 20) -> None:
        super().__init__()
        self.inner, self.head = nn.GRU(1, width, batch_first=True), nn.Linear(width, 1)

    def forward(self, hours: torch.Tensor) -> torch.Tensor:
        """The next value."""
        found: torch.Tensor = self.head(self.inner(hours[..., None])[0][:, -1])
        return found[:, 0]


class Grammar:
    """Sentences of 22 tokens: the first one is the topic, by which each other one follows from that before it."""

    def __init__(self, topics: int = 3, sharp: float = 0.12) -> None:
        self.follow = torch.distributions.Dirichlet(torch.full((topics, 22, 22), sharp)).sample()

    def write(self, count: int, length: int = 18) -> torch.Tensor:
        """So many sentences of this length."""
        topics = torch.randint(0, len(self.follow), (count,))
        rows = [topics, torch.randint(0, 22, (count,))]
        while len(rows) < length:
            rows.append(torch.multinomial(self.follow[topics, rows[-1]], 1)[:, 0])
        return torch.stack(rows, 1)


class Attention(torch.nn.Module):  # type: ignore[misc]
    """One block of attention and a feed-forward part, over tokens and places."""

    def __init__(self, width: int = 32, vocabulary: int = 22, places: int = 40) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(places, width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner = dense((width, 4 * width, width), nn.GELU)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Scores of the tokens that follow."""
        hidden = self.tokens(rows) + self.places(torch.arange(rows.shape[1]))
        query, key, value = self.mixed(self.norms[0](hidden)).chunk(3, -1)
        hidden = hidden + self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True))
        hidden = hidden + self.inner(self.norms[1](hidden))
        scores: torch.Tensor = self.head(self.norms[2](hidden))
        return scores


def token_loss(scores: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Cross entropy of all tokens, in nats."""
    return F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
