"""A two-layer network on two spirals, in numpy: small, real, and quick to train."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any


@dataclass(slots=True)
class Network:
    """Weights of a two-layer classifier and their gradients after `backward`."""

    weights: list[Array]
    gradients: list[Array]
    moments: list[Array]

    @classmethod
    def create(cls, hidden: int, seed: int) -> "Network":
        """Draw initial weights."""
        draw = np.random.default_rng(seed)
        shapes = [(2, hidden), (hidden,), (hidden, 1), (1,)]
        weights = [draw.normal(0, 1, shape) * (shape[0] ** -0.5 if len(shape) > 1 else 0) for shape in shapes]
        return cls(weights, [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights])

    def forward(self, points: Array) -> tuple[Array, Array]:
        """Score points; also return the hidden layer."""
        first, bias, second, offset = self.weights
        hidden = np.tanh(points @ first + bias)
        return (hidden @ second + offset)[:, 0], hidden

    def backward(self, points: Array, hidden: Array, error: Array) -> None:
        """Compute the gradients for an error of the scores."""
        _, _, second, _ = self.weights
        up = error[:, None] / len(points)
        inner = (up @ second.T) * (1 - hidden**2)
        self.gradients = [points.T @ inner, inner.sum(0), hidden.T @ up, up.sum(0)]

    def gradient_norm(self) -> float:
        """The length of the gradient."""
        return float(np.sqrt(sum(float((g**2).sum()) for g in self.gradients)))

    def update(self, rate: float, momentum: float = 0.9) -> None:
        """Take one step downhill."""
        for weight, moment, gradient in zip(self.weights, self.moments, self.gradients, strict=True):
            moment *= momentum
            moment -= rate * gradient
            weight += moment


def loss_of(scores: Array, labels: Array) -> tuple[float, Array]:
    """Mean logistic loss, and its derivative by the scores."""
    shares = 1 / (1 + np.exp(-np.clip(scores, -30, 30)))
    loss = -np.mean(labels * np.log(shares + 1e-12) + (1 - labels) * np.log(1 - shares + 1e-12))
    return float(loss), shares - labels


def spirals(count: int, seed: int) -> tuple[Array, Array]:
    """Draw labelled points from two spirals."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, count)
    angle = np.sqrt(draw.random(count)) * 2.5 * np.pi
    turn = angle + np.pi * labels
    points = np.stack([np.cos(turn), np.sin(turn)], 1) * angle[:, None] / 4 + draw.normal(0, 0.05, (count, 2))
    return points, labels.astype(float)


def batches(points: Array, labels: Array, size: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield random batches for ever."""
    draw = np.random.default_rng(seed)
    while True:
        chosen = draw.integers(0, len(points), size)
        yield points[chosen], labels[chosen]
