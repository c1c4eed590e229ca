"""Data and networks of the ninth set: chains of permuted tokens, sounds, shapes in a field, and what trains on them."""

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.sets.seventh.tasks import F, Pair, Values, dense, drive, learn, nn, set_rate, share_right

__all__ = ["F", "Pair", "Values", "dense", "drive", "learn", "nn", "set_rate", "share_right"]
Rate = Callable[[int], float]
TOKENS = 26
"""Tokens of the chains: twenty that are permuted, and six with a meaning of their own."""


def falling(steps: int, peak: float, warm: int = 15, floor: float = 0.0) -> Rate:
    """A rate that rises to its peak and falls along a line to its floor."""

    def rate(step: int) -> float:
        if step < warm:
            return peak * (step + 1) / warm
        return max(floor, peak * (steps - step) / (steps - warm))

    return rate


def half_wave(steps: int, peak: float, warm: int = 0, floor: float = 0.0) -> Rate:
    """A rate that rises to its peak and falls along half a cosine to its floor."""

    def rate(step: int) -> float:
        if step < warm:
            return peak * (step + 1) / warm
        return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / (steps - warm))))

    return rate


class Chains:
    """Rows in which each token follows from the last one by one of some permutations, or by chance now and then."""

    def __init__(self, seed: int, kinds: int = 2, sure: float = 0.85) -> None:
        made = torch.Generator().manual_seed(seed)
        self.orders = torch.stack([torch.randperm(20, generator=made) for _ in range(kinds)])
        self.sure = sure

    def write(self, count: int, length: int = 16) -> torch.Tensor:
        """So many rows; the first token tells which permutation rules."""
        kind = torch.randint(0, len(self.orders), (count,))
        rows = [kind + 20, torch.randint(0, 20, (count,))]
        while len(rows) < length:
            follows = self.orders[kind, rows[-1]]
            rows.append(torch.where(torch.rand(count) < self.sure, follows, torch.randint(0, 20, (count,))))
        return torch.stack(rows, 1)


class Adapted(torch.nn.Module):  # type: ignore[misc]
    """A linear layer that stays, and two thin ones beside it that learn."""

    def __init__(self, inner: Any, rank: int, scale: float = 2.0) -> None:
        super().__init__()
        self.inner, self.scale = inner, scale
        self.down = nn.Parameter(torch.randn(rank, inner.in_features) / math.sqrt(inner.in_features))
        self.up = nn.Parameter(torch.zeros(inner.out_features, rank))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """What the layer says and what was learnt on top."""
        found: torch.Tensor = self.inner(given) + self.scale * given @ self.down.T @ self.up.T
        return found

    def merge(self) -> None:
        """Write what was learnt into the layer."""
        with torch.no_grad():
            self.inner.weight += self.scale * self.up @ self.down


class Speaks(torch.nn.Module):  # type: ignore[misc]
    """Blocks of attention with two heads over tokens, whose feed-forward parts may be replaced."""

    def __init__(self, width: int = 32, blocks: int = 1, tokens: int = TOKENS, places: int = 32) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(places, width)
        self.mixed = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(blocks))
        self.inner = nn.ModuleList(dense((width, 3 * width, width), nn.SiLU) for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * blocks + 1))
        self.head = nn.Linear(width, tokens)

    def features(self, rows: torch.Tensor) -> torch.Tensor:
        """What is known at each place."""
        hidden = self.tokens(rows) + self.places(torch.arange(rows.shape[1]))
        for at, (mixed, inner) in enumerate(zip(self.mixed, self.inner, strict=True)):
            parts = mixed(self.norms[2 * at](hidden)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(*parts, is_causal=True)
            hidden = hidden + seen.transpose(1, 2).flatten(2)
            hidden = hidden + inner(self.norms[2 * at + 1](hidden))
        found: torch.Tensor = self.norms[-1](hidden)
        return found

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Scores of the tokens that follow."""
        found: torch.Tensor = self.head(self.features(rows))
        return found


def next_loss(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the tokens that follow, where these are no less than 0."""
    return F.cross_entropy(scores[:, :-1].flatten(0, 1), rows[:, 1:].flatten(), ignore_index=-100)


def shapes(count: int, noise: float = 0.25) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Fields of 12 by 12 points with a bar or a ring, which it is, its points, and its box by centre and size."""
    kind = torch.randint(0, 2, (count,))
    middle, size = 3.5 + 5 * torch.rand(count, 2), 1.5 + 1.5 * torch.rand(count, 2)
    down, across = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    left = (across - middle[:, 0, None, None]) / size[:, 0, None, None]
    top = (down - middle[:, 1, None, None]) / size[:, 1, None, None]
    far = left**2 + top**2
    points = torch.where(kind[:, None, None] == 0, (left.abs() < 1) & (top.abs() < 1), (far < 1.2) & (far > 0.2))
    field = points.float() + noise * torch.randn(count, 12, 12)
    return field[:, None], kind, points.float(), torch.cat([middle, 2 * size], 1) / 12


def mixture(count: int) -> torch.Tensor:
    """Points along a spiral."""
    turn = 1 + 2.5 * torch.rand(count) * math.pi
    return torch.stack([turn.cos(), turn.sin()], 1) * turn[:, None] / 5 + 0.05 * torch.randn(count, 2)
