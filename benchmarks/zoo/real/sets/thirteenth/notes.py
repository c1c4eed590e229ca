"""Notes from a harbour and a kitchen, and a small language model that writes such notes."""

import functools
import random
import string
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.zoo.real.sets.thirteenth.tasks import Pair, dense

LETTERS = " .:," + string.digits + string.ascii_lowercase
PAD = len(LETTERS)
WORDS = {
    "harbour": (
        "grey old small loaded late empty northern heavy",
        "ferry trawler barge tanker pilot crane tug buoy anchor captain",
        "enters leaves passes waits at signals repairs follows unloads near",
        "the quay the lock pier four the bridge the outer basin dock nine",
    ),
    "kitchen": (
        "warm fresh salted thin sweet bitter young frozen",
        "onion dough broth pepper lemon butter carrot apple bean fennel",
        "rests in goes into boils in cools beside melts in is cut over",
        "the pan a bowl the oven a jar the sieve two cups",
    ),
}
"""Adjectives, nouns, and what things do where, of two kinds of notes."""


@functools.cache
def text(kind: str, sentences: int = 2500) -> Pair:
    """Notes as signs: what is trained on, and what is held out."""
    made = random.Random(len(kind))
    adjectives, nouns, verbs, places = (part.split() for part in WORDS[kind])

    def likely(words: list[str]) -> str:
        return words[min(int(made.expovariate(0.4)), len(words) - 1)]

    lines = (
        f"{made.randrange(1, 29)}: the {likely(adjectives)} {likely(nouns)} {likely(verbs)} {likely(places)}, "
        f"{made.randrange(100)} {likely(nouns)}s. "
        for _ in range(sentences)
    )
    signs = torch.tensor([LETTERS.index(sign) for line in lines for sign in line])
    return signs[: -len(signs) // 8], signs[-len(signs) // 8 :]


def crops(signs: torch.Tensor, count: int, length: int) -> Pair:
    """Pieces of a text, and the same one sign later."""
    starts = torch.randint(0, len(signs) - length - 1, (count, 1))
    rows = signs[starts + torch.arange(length + 1)]
    return rows[:, :-1], rows[:, 1:]


class Layer(nn.Module):  # type: ignore[misc]
    """Causal attention, then a network, each on normalized values."""

    def __init__(self, width: int, heads: int, drop: float) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.look, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.net = dense((width, 4 * width, width), nn.GELU)
        self.drop = nn.Dropout(drop)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The values after the layer."""
        count, length, width = x.shape
        q, k, v = self.look(self.before(x)).view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(seen.transpose(1, 2).reshape(count, length, width)))
        return x + self.drop(self.net(self.after(x)))


class Writer(nn.Module):  # type: ignore[misc]
    """A small language model."""

    def __init__(self, layers: int = 2, width: int = 36, drop: float = 0.0) -> None:
        super().__init__()
        self.signs, self.places = nn.Embedding(PAD + 1, width), nn.Embedding(96, width)
        self.layers = nn.Sequential(*(Layer(width, 4, drop) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, PAD + 1)
        for table, spread in ((self.signs, 0.2), (self.places, 0.05)):
            nn.init.normal_(table.weight, 0, spread)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The scores of the next sign at each place."""
        return self.head(self.norm(self.layers(self.signs(rows) + self.places.weight[: rows.shape[1]])))


def next_sign(model: Any, pair: Pair) -> torch.Tensor:
    """The loss of the next sign; padding does not count."""
    return F.cross_entropy(model(pair[0]).flatten(0, 1), pair[1].flatten(), ignore_index=PAD)
