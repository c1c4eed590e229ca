"""Data and networks of the tenth set: sums as text, waves, plates, blobs in a field, pucks on ice."""

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.sets.seventh.tasks import F, Pair, Values, dense, drive, learn, nn, set_rate, share_right

__all__ = ["F", "Pair", "Values", "dense", "drive", "learn", "nn", "set_rate", "share_right"]
Rate = Callable[[int], float]
SIGNS = "0123456789+=;"
"""The signs of the sums; what fills a row up is one more."""
FILL = len(SIGNS)


def cosine(steps: int, peak: float, warm: int = 10, floor: float = 0.0) -> Rate:
    """Up along a line, then down along half a cosine."""

    def rate(step: int) -> float:
        if step < warm:
            return peak * (step + 1) / warm
        return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / (steps - warm))))

    return rate


def stream(seed: int, count: int = 9000, most: int = 30) -> torch.Tensor:
    """Sums one after another, as the signs of one long text."""
    made = torch.Generator().manual_seed(seed)
    pairs = torch.randint(0, most, (count, 2), generator=made).tolist()
    return torch.tensor([SIGNS.index(sign) for a, b in pairs for sign in f"{a}+{b}={a + b};"])


def windows(text: torch.Tensor, count: int, length: int) -> Pair:
    """Pieces of a text from anywhere, and the same one sign later."""
    begins = torch.randint(0, len(text) - length - 1, (count, 1)) + torch.arange(length)
    return text[begins], text[begins + 1]


class Layer(torch.nn.Module):  # type: ignore[misc]
    """Attention to what came before, and a gated network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
        self.look = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The values after the layer."""
        count, length, width = x.shape
        parts = self.look(self.first(x)).view(count, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(count, length, width))
        one, two = self.up(self.second(x)).chunk(2, -1)
        return x + self.down(F.silu(one) * two)


class Reader(torch.nn.Module):  # type: ignore[misc]
    """A small transformer over signs."""

    def __init__(self, width: int = 48, layers: int = 1, longest: int = 96) -> None:
        super().__init__()
        self.signs, self.places = nn.Embedding(FILL + 1, width), nn.Embedding(longest, width)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(layers)))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, FILL + 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The scores of the next sign at each place."""
        x = self.signs(rows) + self.places.weight[: rows.shape[1]]
        return self.head(self.norm(self.layers(x)))


def text_loss(model: Any, pair: Pair) -> torch.Tensor:
    """The loss of the next sign; what is below 0 does not count."""
    return F.cross_entropy(model(pair[0]).flatten(0, 1), pair[1].flatten(), ignore_index=-100)


def waves(count: int, kinds: int = 5, noise: float = 0.6, length: int = 32) -> Pair:
    """Periodic signals of some shapes with any phase, in noise, and which shape each has."""
    labels = torch.randint(0, kinds, (count,))
    t = torch.linspace(0, 12.6, length) * (0.8 + 0.4 * torch.rand(count, 1)) + 6.28 * torch.rand(count, 1)
    shapes = torch.stack([t.sin(), t.sin().sign(), 2 * (t / 6.28).frac() - 1, (2 * t).sin() * t.sin(), t.sin() ** 3])
    rows = shapes[labels, torch.arange(count)]
    return (rows + noise * torch.randn(count, length))[:, None], labels


def wave_net(kinds: int = 5, width: int = 12) -> Any:
    """Two convolutions along time, and a layer that decides."""
    return nn.Sequential(
        nn.Conv1d(1, width, 5, padding=2),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(width, 2 * width, 5, padding=2),
        nn.BatchNorm1d(2 * width),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(2 * width, kinds),
    )


def plates(count: int, kinds: int = 6) -> Pair:
    """Plates of 10 by 10 with a pattern in two colours: stripes, checks, rings, spots; and which it is."""
    labels = torch.randint(0, kinds, (count,))
    x, y = torch.meshgrid(torch.linspace(-1, 1, 10), torch.linspace(-1, 1, 10), indexing="ij")
    x, y = x + 0.3 * torch.randn(count, 1, 1), y + 0.3 * torch.randn(count, 1, 1)
    f = 5 + 2 * torch.rand(count, 1, 1)
    looks = torch.stack(
        [
            (f * x).sin(),
            (f * y).sin(),
            (f * x).sin() * (f * y).sin(),
            (f * (x * x + y * y).sqrt()).sin(),
            (f * (x + y)).sin(),
            (f * x * y).cos(),
        ]
    )
    look = looks[labels, torch.arange(count)]
    picture = torch.stack([look, look * torch.randn(count, 1, 1) * 0.5], 1)
    return picture + 0.8 * torch.randn(count, 2, 10, 10), labels


def plate_net(kinds: int = 6) -> Any:
    """Three convolutions with groups that are normalized, as small residual networks have them."""
    return nn.Sequential(
        nn.Conv2d(2, 12, 3, padding=1),
        nn.GroupNorm(3, 12),
        nn.GELU(),
        nn.Conv2d(12, 20, 3, stride=2, padding=1),
        nn.GroupNorm(4, 20),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(80, kinds),
    )


def blobs(count: int, spread: float = 0.35) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A field with one blob: the picture, its box (place and size), and which of three profiles it has."""
    place, size = 0.2 + 0.6 * torch.rand(count, 2), 0.08 + 0.12 * torch.rand(count, 1)
    kind = torch.randint(0, 3, (count,))
    grid = torch.stack(torch.meshgrid(torch.linspace(0, 1, 12), torch.linspace(0, 1, 12), indexing="ij"), -1)
    far = (grid[None] - place[:, None, None]).norm(dim=-1) / size[:, :, None]
    looks = torch.stack([torch.exp(-far * far), (far < 1).float(), torch.exp(-((far - 1) ** 2) * 6)])
    picture = looks[kind, torch.arange(count)] + spread * torch.randn(count, 12, 12)
    return picture[:, None], torch.cat([place, size, size], 1), kind


class Pucks:
    """Pucks on ice that are pushed to a mark: continuous or three ways, some of them all at once."""

    def __init__(
        self, count: int, seed: int, longest: int = 25, wind: float = 0.05, near: float = 0.15, edge: float = 3.0
    ) -> None:
        self.count, self.longest, self.wind, self.near, self.edge = count, longest, wind, near, edge
        self.made = torch.Generator().manual_seed(seed)
        self.at, self.speed = torch.zeros(count), torch.zeros(count)
        self.mark, self.age = torch.zeros(count), torch.zeros(count)
        self.won = torch.zeros(count)
        self.begin(torch.ones(count, dtype=torch.bool))

    def begin(self, which: torch.Tensor) -> None:
        """Put some of them back to a place from which they begin."""
        many = int(which.sum())
        self.at[which] = 2 * torch.rand(many, generator=self.made) - 1
        self.mark[which] = 2 * torch.rand(many, generator=self.made) - 1
        self.speed[which], self.age[which], self.won[which] = 0.0, 0.0, 0.0

    def seen(self) -> torch.Tensor:
        """What a policy is told of each."""
        return torch.stack([self.at - self.mark, self.speed, self.at, self.age / self.longest], 1)

    def push(self, force: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Push each; returns the rewards, who is done, and the returns and lengths of those."""
        self.speed = 0.85 * self.speed + 0.12 * force.clamp(-1, 1)
        self.speed += self.wind * torch.randn(self.count, generator=self.made)
        self.at, self.age = self.at + self.speed, self.age + 1
        far = (self.at - self.mark).abs()
        there = (far < self.near) & (self.speed.abs() < 0.1)
        reward = -0.1 * far + 3.0 * there - 2.0 * (self.at.abs() > self.edge)
        self.won += reward
        done = there | (self.age >= self.longest) | (self.at.abs() > self.edge)
        ended = self.won[done].clone(), self.age[done].clone()
        self.begin(done)
        return reward, done, *ended
