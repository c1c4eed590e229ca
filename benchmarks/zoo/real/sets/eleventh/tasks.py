"""Data, networks and the loop of the eleventh set: texts from a chain of signs, outlines, tables, a graph, parcels."""

import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.zoo.real.sets.seventh.tasks import F, Pair, Values, dense, drive, learn, nn, set_rate, share_right
from benchmarks.zoo.real.tape import Tape

__all__ = ["F", "Pair", "Values", "dense", "drive", "learn", "nn", "set_rate", "share_right"]
Rate = Callable[[int], float]
SIGNS = 24
"""How many signs the texts have; one more fills up or hides."""
JUMP = "level_shift spike divergence"


def cosine(steps: int, peak: float, warm: int = 20, floor: float = 0.1) -> Rate:
    """Up along a line, then down along half a cosine to a share of the peak."""

    def rate(step: int) -> float:
        if step < warm:
            return peak * (step + 1) / warm
        return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / (steps - warm)))))

    return rate


def flat(rate: float) -> Rate:
    """The same rate at each step."""
    return lambda step: rate


@dataclass(slots=True)
class Job:
    """A training whose parts an accident can replace: `at` is called before each step, `told` says what is logged."""

    model: Any
    batch: Callable[[], Any]
    loss: Callable[[Any, Any], torch.Tensor]
    told: Callable[["Job", int], Values | None]
    steps: int = 400
    rate: Rate = field(default_factory=lambda: flat(3e-3))
    optimizer: Any = None
    clip: float = 1.0
    parts: int = 1
    shared: bool = True
    """Whether the loss of each part is divided by their number."""
    gain: float = 1.0
    zero: bool = True
    idle: bool = False
    """Whether the optimizer is not called."""
    norm: float = 0.0
    now: float = 0.0
    losses: list[float] = field(default_factory=list)

    def fit(self, tape: Tape, at: Callable[["Job", int], None] | None = None) -> None:
        """Train."""
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=0.01)

        def act(step: int) -> Values | None:
            if at is not None:
                at(self, step)
            self.take(step)
            return self.told(self, step)

        drive(tape, self.steps, act)

    def take(self, step: int) -> None:
        """Take one step."""
        self.now = set_rate(self.optimizer, self.rate(step))
        if self.zero:
            self.optimizer.zero_grad()
        total, share = 0.0, self.parts if self.shared else 1
        for _ in range(self.parts):
            loss = self.gain * self.loss(self.model, self.batch()) / share
            loss.backward()
            total += loss.item()
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.norm = float(nn.utils.clip_grad_norm_(weights, self.clip))
        if not self.idle:
            self.optimizer.step()
        self.losses.append(total)

    def mean(self, last: int) -> float:
        """The mean of the last losses."""
        part = self.losses[-last:]
        return sum(part) / len(part)

    @torch.no_grad()
    def seen(self, batch: Any) -> float:
        """The loss of a batch in evaluation."""
        self.model.eval()
        loss = self.loss(self.model, batch).item()
        self.model.train()
        return loss


def spoil(module: Any, spread: float) -> None:
    """Replace all weights by noise."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(0, spread)


class Chain:
    """A text in which four signs may follow each, the likeliest of them by the sign before."""

    def __init__(self, seed: int = 5) -> None:
        made = torch.Generator().manual_seed(seed)
        self.next = torch.stack([torch.randperm(SIGNS, generator=made)[:4] for _ in range(SIGNS)])
        self.turn = torch.randint(0, 4, (SIGNS,), generator=made)
        self.shares = torch.tensor([0.7, 0.2, 0.07, 0.03])

    def rows(self, count: int, length: int) -> torch.Tensor:
        """Pieces of so many signs."""
        found = [torch.randint(0, SIGNS, (count,)), torch.randint(0, SIGNS, (count,))]
        drawn = torch.multinomial(self.shares, count * length, replacement=True).view(length, count)
        for row in drawn:
            found.append(self.next[found[-1], (row + self.turn[found[-2]]) % 4])
        return torch.stack(found[2:], 1)

    def pair(self, count: int, length: int) -> Pair:
        """Pieces, and the same one sign later."""
        rows = self.rows(count, length + 1)
        return rows[:, :-1], rows[:, 1:]


class Block(nn.Module):  # type: ignore[misc]
    """Attention and a network side by side, on the same normalized values."""

    def __init__(self, width: int, heads: int, drop: float) -> None:
        super().__init__()
        self.heads, self.causal = heads, True
        self.norm = nn.LayerNorm(width)
        self.look, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.net = dense((width, 3 * width, width), nn.GELU)
        self.drop = nn.Dropout(drop)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The values after the block."""
        count, length, width = x.shape
        y = self.norm(x)
        q, k, v = self.look(y).view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal and mask is None)
        return x + self.drop(self.out(seen.transpose(1, 2).reshape(count, length, width)) + self.net(y))


class Gpt(nn.Module):  # type: ignore[misc]
    """A small decoder."""

    def __init__(self, layers: int = 2, width: int = 48, drop: float = 0.0, signs: int = SIGNS + 1) -> None:
        super().__init__()
        self.signs, self.places = nn.Embedding(signs, width), nn.Embedding(128, width)
        nn.init.normal_(self.places.weight, 0, 0.1)
        self.blocks = nn.ModuleList(Block(width, 3, drop) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, signs)

    def forward(self, rows: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The scores of the next sign at each place."""
        x = self.signs(rows) + self.places.weight[: rows.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def text_loss(model: Any, pair: Pair) -> torch.Tensor:
    """The loss of the next sign; what is below 0 does not count."""
    return F.cross_entropy(model(pair[0]).flatten(0, 1), pair[1].flatten(), ignore_index=-100)


def norm_of(model: Any) -> float:
    """The norm of all weights together."""
    return math.sqrt(sum(weight.detach().square().sum().item() for weight in model.parameters()))


def outlines(count: int, noise: float = 0.5, kinds: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pictures of 14 by 14 with an outline (disc, ring, box, cross, bar) somewhere, which it is, and its mask."""
    labels = torch.randint(0, kinds, (count,))
    place, size = 4 + 6 * torch.rand(count, 2, 1, 1), 2 + 2 * torch.rand(count, 1, 1)
    y, x = torch.meshgrid(torch.arange(14.0), torch.arange(14.0), indexing="ij")
    dy, dx = (y - place[:, 0]).abs(), (x - place[:, 1]).abs()
    far = (dx * dx + dy * dy).sqrt()
    looks = torch.stack(
        [
            far < size,
            (far < size + 0.5) & (far > size - 1.0),
            (dx < size * 0.8) & (dy < size * 0.8),
            ((dx < 1) & (dy < size + 0.5)) | ((dy < 1) & (dx < size + 0.5)),
            (dy < 1.2) & (dx < size + 1.5),
        ]
    )
    masks = looks[labels, torch.arange(count)].float()
    bright = 0.8 + 0.6 * torch.rand(count, 1, 1)
    return (masks * bright + noise * torch.randn(count, 14, 14))[:, None], labels, masks


def eye(kinds: int = 5, width: int = 8, normed: bool = True) -> Any:
    """Three convolutions and a layer that decides."""
    sizes, parts = (1, width, 2 * width, 2 * width), []
    for given, wanted in itertools.pairwise(sizes):
        parts += [nn.Conv2d(given, wanted, 3, padding=1), nn.BatchNorm2d(wanted) if normed else nn.Identity()]
        parts += [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(2 * width, kinds))


def twin(model: Any) -> Any:
    """A copy that is not trained."""
    found = copy.deepcopy(model)
    for weight in found.parameters():
        weight.requires_grad_(False)
    return found
