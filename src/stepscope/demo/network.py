"""A multi-layer network with Adam and points on two spirals, in numpy, and checkpoints that are replaced atomically."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

Array = Any


class Network:
    """Layers with tanh between them; all weights lie in one vector, so that they can be averaged and saved."""

    def __init__(self, sizes: Sequence[int], seed: int, last_scale: float = 1.0) -> None:
        draw = np.random.default_rng(seed)
        shapes = [shape for rows, columns in pairwise(sizes) for shape in ((rows, columns), (columns,))]
        self.vector = np.zeros(sum(int(np.prod(shape)) for shape in shapes))
        self.gradient = np.zeros_like(self.vector)
        self._weights = _views(self.vector, shapes)
        self._gradients = _views(self.gradient, shapes)
        for weight in self._weights[::2]:
            weight[...] = draw.normal(0, weight.shape[0] ** -0.5, weight.shape)
        self._weights[-2] *= last_scale
        self._inputs: list[Array] = []

    def forward(self, points: Array) -> Array:
        """Compute the outputs, and keep what `backward` needs."""
        self._inputs = [points]
        last = len(self._weights) // 2 - 1
        for layer, (weight, bias) in enumerate(zip(self._weights[::2], self._weights[1::2], strict=True)):
            points = points @ weight + bias
            if layer < last:
                points = np.tanh(points)
                self._inputs.append(points)
        return points

    def backward(self, error: Array) -> None:
        """Compute the gradient from the derivative of the loss by the outputs."""
        for layer in reversed(range(len(self._inputs))):
            seen = self._inputs[layer]
            self._gradients[2 * layer][...] = seen.T @ error
            self._gradients[2 * layer + 1][...] = error.sum(0)
            if layer:
                error = (error @ self._weights[2 * layer].T) * (1 - seen**2)


def _views(vector: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    views, start = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        views.append(vector[start : start + size].reshape(shape))
        start += size
    return views


class Adam:
    """The optimizer: its moments and how many steps it took."""

    def __init__(self, size: int) -> None:
        self.first = np.zeros(size)
        self.second = np.zeros(size)
        self.taken = 0

    def update(self, weights: Array, gradient: Array, rate: float) -> None:
        """Take one step downhill."""
        self.taken += 1
        self.first += 0.1 * (gradient - self.first)
        self.second += 0.001 * (gradient**2 - self.second)
        first, second = self.first / (1 - 0.9**self.taken), self.second / (1 - 0.999**self.taken)
        weights -= rate * first / (np.sqrt(second) + 1e-8)


def clipped(gradient: Array, limit: float) -> tuple[Array, float]:
    """The gradient, no longer than a limit, and how long it was."""
    norm = float(np.sqrt((gradient**2).sum()))
    return (gradient * (limit / norm) if norm > limit else gradient), norm


def loss_of(scores: Array, labels: Array) -> tuple[float, Array]:
    """Mean logistic loss, and its derivative by the scores."""
    flat = scores[:, 0]
    loss = np.mean(np.logaddexp(0, flat) - labels * flat)
    shares = 1 / (1 + np.exp(-np.clip(flat, -500, 500)))
    return float(loss), ((shares - labels) / len(labels))[:, None]


def accuracy_of(scores: Array, labels: Array) -> float:
    """The share of points on the right side."""
    return float(np.mean((scores[:, 0] > 0) == labels))


def spirals(count: int, seed: int) -> tuple[Array, Array]:
    """Draw labelled points from two spirals."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, count)
    angle = np.sqrt(draw.random(count)) * 2.5 * np.pi
    turn = angle + np.pi * labels
    points = np.stack([np.cos(turn), np.sin(turn)], 1) * angle[:, None] / 4 + draw.normal(0, 0.05, (count, 2))
    return points, labels.astype(float)


def save(path: Path, network: Network, adam: Adam, step: int) -> int:
    """Save what a training needs to continue after a step; return the size of the file."""
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        np.savez(file, weights=network.vector, first=adam.first, second=adam.second, taken=adam.taken, step=step)
    os.replace(part, path)
    return path.stat().st_size


def load(path: Path, network: Network, adam: Adam) -> int:
    """Load a checkpoint into a network and its optimizer; return the step to continue with."""
    with np.load(path) as saved:
        network.vector[...] = saved["weights"]
        adam.first[...] = saved["first"]
        adam.second[...] = saved["second"]
        adam.taken = int(saved["taken"])
        return int(saved["step"]) + 1
