"""Texts of the fourteenth set, and the decoder that reads them."""

import copy
import functools
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.real.sets.fourteenth.tasks import Pair, clipped, evaluated

VOCABULARY = 32
"""Signs of the texts; 0 pads."""


class Verses:
    """Lines in one of several metres: the metre says which sign most likely follows, the line does not name it."""

    def __init__(self, metres: int = 5, sure: float = 0.78, seed: int = 1400) -> None:
        made = torch.Generator().manual_seed(seed)
        self.after = torch.stack([1 + torch.randperm(VOCABULARY - 1, generator=made) for _ in range(metres)])
        self.often = 1.0 / torch.arange(1, VOCABULARY)
        self.sure = sure
        self.kept: dict[tuple[int, int], list[torch.Tensor]] = {}

    def lines(self, count: int, length: int) -> torch.Tensor:
        """So many lines, one sign longer than wanted; those of many calls are made at once."""
        kept = self.kept.setdefault((count, length), [])
        if not kept:
            kept.extend(self._made(24 * count, length).split(count))
        return kept.pop()

    def _made(self, count: int, length: int) -> torch.Tensor:
        metre = torch.randint(0, len(self.after), (count,))
        signs = [torch.randint(1, VOCABULARY, (count,))]
        stray = 1 + torch.multinomial(self.often, count * length, replacement=True).view(length, count)
        for row in stray:
            follows = self.after[metre, signs[-1] - 1]
            signs.append(torch.where(torch.rand(count) < self.sure, follows, row))
        return torch.stack(signs, 1)

    def pair(self, count: int, length: int) -> Pair:
        """Lines, and the sign that follows at each place."""
        lines = self.lines(count, length)
        return lines[:, :-1], lines[:, 1:].clone()


class Decoder(nn.Module):  # type: ignore[misc]
    """A small transformer that predicts the next sign."""

    def __init__(self, width: int = 40, layers: int = 1, drop: float = 0.0) -> None:
        super().__init__()
        self.signs, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(64, width)
        nn.init.normal_(self.signs.weight, 0, 0.3)
        nn.init.normal_(self.places.weight, 0, 0.1)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 3 * width, drop, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The scores of the next sign at each place."""
        length = rows.shape[1]
        mask = torch.full((length, length), -math.inf).triu(1)
        x = self.signs(rows) + self.places.weight[:length]
        for block in self.blocks:
            x = block(x, src_mask=mask)
        return self.head(self.norm(x))


def next_sign(model: Any, pair: Pair) -> torch.Tensor:
    """The loss of the next sign; what is below 0 does not count."""
    return F.cross_entropy(model(pair[0]).flatten(0, 1), pair[1].flatten(), ignore_index=-100)


def share_right(model: Any, pair: Pair) -> float:
    """How many of the signs that count are the most likely ones."""
    with evaluated(model):
        best = model(pair[0]).argmax(-1)
    counts = pair[1] >= 0
    return float((best[counts] == pair[1][counts]).float().mean())


def trained() -> tuple[Decoder, Verses]:
    """A decoder that knows the verses, as a start for fine-tuning."""
    return copy.deepcopy(_trained()), Verses()


@functools.cache
def _trained() -> Decoder:
    torch.manual_seed(1460)
    verses, model = Verses(), Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), 6e-3, fused=True)
    for _ in range(160):
        optimizer.zero_grad()
        next_sign(model, verses.pair(16, 24)).backward()
        clipped(model, 1.0)
        optimizer.step()
    return model
