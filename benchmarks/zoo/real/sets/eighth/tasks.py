"""Data and networks of the eighth set: gratings, spots in a field, sums in characters, and what trains on them."""

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.sets.seventh.tasks import F, Pair, nn

Rate = Callable[[int], float]


def gratings(count: int, noise: float = 0.9, kinds: int = 8) -> Pair:
    """Pictures of 10 by 10 points with waves in one of some directions, and the directions."""
    labels = torch.randint(0, kinds, (count,))
    angle = labels * math.pi / kinds
    across, down = torch.meshgrid(torch.arange(10.0), torch.arange(10.0), indexing="xy")
    along = angle.cos()[:, None, None] * across + angle.sin()[:, None, None] * down
    speed, start = 1.0 + 0.3 * torch.rand(count, 1, 1), 2 * math.pi * torch.rand(count, 1, 1)
    waves = (speed * along + start).sin()
    return (waves + noise * torch.randn(count, 10, 10))[:, None], labels


def spots(count: int, noise: float = 0.3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Fields of 12 by 12 points with one bright spot, its box (centre and size, of one) and which of 3 forms it has."""
    forms = torch.randint(0, 3, (count,))
    middle, size = 0.25 + 0.5 * torch.rand(count, 2), 0.12 + 0.1 * torch.rand(count, 2)
    down, across = torch.meshgrid(torch.linspace(0, 1, 12), torch.linspace(0, 1, 12), indexing="ij")
    left = (across - middle[:, 0, None, None]).abs() / size[:, 0, None, None]
    top = (down - middle[:, 1, None, None]).abs() / size[:, 1, None, None]
    drawn = torch.stack([torch.maximum(left, top) < 1, left**2 + top**2 < 1, torch.minimum(left, top) < 0.3], 1)
    drawn[:, 2] &= torch.maximum(left, top) < 1
    field = drawn[torch.arange(count), forms].float() + noise * torch.randn(count, 12, 12)
    return field[:, None], torch.cat([middle, 2 * size], 1), forms


def boxes_overlap(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """What two boxes share, as a part of what they cover together."""
    low = torch.maximum(found[:, :2] - found[:, 2:] / 2, wanted[:, :2] - wanted[:, 2:] / 2)
    high = torch.minimum(found[:, :2] + found[:, 2:] / 2, wanted[:, :2] + wanted[:, 2:] / 2)
    shared = (high - low).clamp_min(0).prod(1)
    return shared / (found[:, 2:].clamp_min(1e-3).prod(1) + wanted[:, 2:].prod(1) - shared)


def looker(outputs: int, side: int = 10, width: int = 8, drop: float = 0.0) -> Any:
    """Two convolutions and a linear layer."""
    inner = (side // 2) ** 2 * 2 * width // 4
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, width // 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Dropout(drop),
        nn.Linear(inner, 32), nn.ReLU(), nn.Linear(32, outputs),
    )  # fmt: skip


SIGNS = 13
"""Ten digits, plus, equals and a stop."""


def sums(count: int, limit: int = 100) -> torch.Tensor:
    """Sums of two numbers below the limit, as ten characters each: `34+58=092.`, all in one row."""
    first, second = torch.randint(0, limit, (count,)), torch.randint(0, limit, (count,))
    total = first + second
    parts = [first // 10, first % 10, first * 0 + 10, second // 10, second % 10, first * 0 + 11]
    parts += [total // 100, total // 10 % 10, total % 10, first * 0 + 12]
    return torch.stack(parts, 1).flatten()


def windows(text: torch.Tensor, starts: torch.Tensor, length: int = 30) -> Pair:
    """Pieces of a text, and the same moved on by one."""
    rows = starts[:, None] + torch.arange(length + 1)
    return text[rows][:, :-1], text[rows][:, 1:]


class Writer(torch.nn.Module):  # type: ignore[misc]
    """Blocks of attention over characters, each with a gate."""

    def __init__(self, width: int = 32, blocks: int = 1, signs: int = SIGNS, length: int = 30) -> None:
        super().__init__()
        self.signs, self.places = nn.Embedding(signs, width), nn.Embedding(length, width)
        self.mixed = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(blocks))
        self.inner = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))
            for _ in range(blocks)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(blocks + 1))
        self.head = nn.Linear(width, signs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Scores of the characters that follow."""
        hidden = self.signs(rows) + self.places(torch.arange(rows.shape[1]))
        for norm, mixed, inner in zip(self.norms, self.mixed, self.inner, strict=False):
            query, key, value, gate = mixed(norm(hidden)).chunk(4, -1)
            hidden = hidden + gate.sigmoid() * F.scaled_dot_product_attention(query, key, value, is_causal=True)
            hidden = hidden + inner(hidden)
        scores: torch.Tensor = self.head(self.norms[-1](hidden))
        return scores


def spoken(count: int, noise: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    """Twenty frames of eight features in which four of nine sounds follow each other, and the sounds, from one."""
    sounds = torch.randint(1, 10, (count, 4))
    voices = torch.sin(torch.arange(10.0)[:, None] * torch.arange(1.0, 9.0) * 1.7)
    lengths = torch.randint(3, 6, (count, 4)).cumsum(1)
    which = (torch.arange(20)[None, :, None] >= lengths[:, None, :3]).sum(-1)
    heard = voices[sounds.gather(1, which)]
    return heard + noise * torch.randn(count, 20, 8), sounds


def cosine(steps: int, peak: float, warm: int = 20, floor: float = 0.0) -> Rate:
    """A rate that rises to its peak and falls along a cosine to its floor."""

    def rate(step: int) -> float:
        if step < warm:
            return peak * (step + 1) / warm
        part = min(1.0, (step - warm) / (steps - warm))
        return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * part))

    return rate
