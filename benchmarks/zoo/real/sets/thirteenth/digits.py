"""Pictures of seven-segment digits, and a small network that reads them."""

import functools
from typing import Any

import torch
from torch import nn

from benchmarks.zoo.real.sets.thirteenth.tasks import Pair

SEGMENTS = ("abcfed", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")
"""The lit segments of each digit."""


@functools.cache
def _faces() -> torch.Tensor:
    faces = torch.zeros(10, 9, 6)
    rows, low, high = slice(0, 5), slice(0, 1), slice(5, 6)
    bars = {
        "a": (low, slice(0, 6)),
        "g": (slice(4, 5), slice(0, 6)),
        "d": (slice(8, 9), slice(0, 6)),
        "f": (rows, low),
        "b": (rows, high),
        "e": (slice(4, 9), low),
        "c": (slice(4, 9), high),
    }
    for face, lit in zip(faces, SEGMENTS, strict=True):
        for name in lit:
            face[bars[name]] = 1.0
    return faces


def digits(count: int, noise: float = 0.4) -> Pair:
    """Pictures of 14 by 14 with a seven-segment digit somewhere, and which it is."""
    labels = torch.randint(0, 10, (count,))
    pictures = torch.zeros(count, 14, 14)
    places = torch.randint(0, 5, (count, 2)).tolist()
    for picture, label, (down, right) in zip(pictures, labels.tolist(), places, strict=True):
        picture[down : down + 9, right : right + 6] = _faces()[label]
    pictures *= 0.7 + 0.6 * torch.rand(count, 1, 1)
    return (pictures + noise * torch.randn(count, 14, 14))[:, None], labels


def sight(normed: bool = True, width: int = 12) -> Any:
    """Two convolutions and two layers that decide."""
    parts: list[Any] = []
    for given, wanted in ((1, width), (width, 2 * width)):
        parts += [nn.Conv2d(given, wanted, 3, padding=1), nn.BatchNorm2d(wanted) if normed else nn.Identity()]
        parts += [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(18 * width, 32), nn.ReLU(), nn.Linear(32, 10))
