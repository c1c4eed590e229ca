"""Loops without torch: numpy and what resembles scikit-learn."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.tape import Tape


class Logistic:
    """Logistic regression by stochastic gradients; a fault changes it at a step."""

    def __init__(self, lr: float = 0.1, batch: int = 50, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        truth = self.rng.normal(size=30)
        self.inputs = self.rng.normal(size=(3000, 30))
        self.labels = (self.inputs @ truth + self.rng.normal(size=3000) > 0).astype(float)
        self.weights = np.zeros(30)
        self.lr, self.batch, self.scale = lr, batch, 1.0

    def fit(self, run: Tape, steps: int = 400, at: Callable[[Any, int], None] | None = None) -> None:
        """Train."""
        for step in range(steps):
            if at is not None:
                at(self, step)
            chosen = self.rng.integers(0, 3000, self.batch)
            inputs, labels = self.scale * self.inputs[chosen], self.labels[chosen]
            guess = 1 / (1 + np.exp(-np.clip(inputs @ self.weights, -500, 500)))
            loss = -np.mean(labels * np.log(guess + 1e-12) + (1 - labels) * np.log(1 - guess + 1e-12))
            gradient = inputs.T @ (guess - labels) / self.batch
            self.weights -= self.lr * gradient
            right = np.mean((guess > 0.5) == labels)
            norm = float(np.linalg.norm(gradient))
            run.log({"log_loss": float(loss), "accuracy": float(right), "grad_norm": norm, "lr": self.lr}, step=step)


class Boosting:
    """Stumps that fit what is left, one a step."""

    def __init__(self, seed: int = 0, count: int = 400) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs = self.rng.normal(size=(2 * count, 6))
        self.targets = np.sin(self.inputs[:, 0]) + self.inputs[:, 1] ** 2 / 2 + 0.3 * self.rng.normal(size=2 * count)
        self.guess, self.count, self.rate = np.zeros(2 * count), count, 0.3

    def fit(self, run: Tape, steps: int = 150, at: Callable[[Any, int], None] | None = None) -> None:
        """Train."""
        for step in range(steps):
            if at is not None:
                at(self, step)
            left = (self.targets - self.guess)[: self.count]
            best = (math.inf, 0, 0.0, 0.0, 0.0)
            for feature in range(6):
                for cut in (-1.0, -0.4, 0.0, 0.4, 1.0):
                    side = self.inputs[: self.count, feature] > cut
                    high, low = left[side].mean(), left[~side].mean()
                    best = min(best, (float(((left - np.where(side, high, low)) ** 2).sum()), feature, cut, high, low))
            side = self.inputs[:, best[1]] > best[2]
            self.guess += self.rate * np.where(side, best[3], best[4])
            error = (self.targets - self.guess) ** 2
            run.log({"train-rmse": float(error[: self.count].mean() ** 0.5)}, step=step)
            run.log({"validation-rmse": float(error[self.count :].mean() ** 0.5)}, step=step)


@healthy("plain")
def logistic(run: Tape) -> None:
    """Falls to the noise of its labels."""
    Logistic().fit(run)


@healthy("plain")
def logistic_of_ten(run: Tape) -> None:
    """Ten examples a step, a decaying rate."""

    def at(fit: Logistic, step: int) -> None:
        fit.lr = 0.5 / math.sqrt(1 + step)

    Logistic(batch=10, seed=1).fit(run, 600, at)


@healthy("plain")
def boosting(run: Tape) -> None:
    """Both errors fall and stay."""
    Boosting().fit(run)


@healthy("plain")
def matrix_factors(run: Tape) -> None:
    """Alternating least squares: falls fast, then hardly."""
    rng = np.random.default_rng(3)
    matrix = rng.normal(size=(40, 4)) @ rng.normal(size=(4, 30)) + 0.1 * rng.normal(size=(40, 30))
    left, right = rng.normal(size=(40, 4)), rng.normal(size=(4, 30))
    for step in range(120):
        left = matrix @ right.T @ np.linalg.inv(right @ right.T + 0.1 * np.eye(4))
        right = np.linalg.inv(left.T @ left + 0.1 * np.eye(4)) @ left.T @ matrix
        run.log({"loss": float(((matrix - left @ right) ** 2).mean())}, step=step)


@healthy("plain")
def clusters(run: Tape) -> None:
    """Mini-batch k-means: inertia of each batch."""
    rng = np.random.default_rng(4)
    points = rng.normal(size=(2000, 3)) + 3 * rng.integers(0, 3, (2000, 1))
    centers, counts = points[:8].copy(), np.ones(8)
    for step in range(300):
        batch = points[rng.integers(0, 2000, 60)]
        distance = ((batch[:, None] - centers) ** 2).sum(2)
        nearest = distance.argmin(1)
        for at, point in zip(nearest, batch, strict=True):
            counts[at] += 1
            centers[at] += (point - centers[at]) / counts[at]
        run.log({"inertia": float(distance.min(1).mean()), "loss": float(distance.min(1).mean())}, step=step)


@fault("plain", "level_shift", 240)
def features_scaled(run: Tape) -> None:
    """From step 240 on the inputs are a fiftieth of what they were: they are scaled twice."""

    def at(fit: Logistic, step: int) -> None:
        fit.scale = 0.02 if step >= 240 else 1.0

    Logistic(seed=2).fit(run, 400, at)


@fault("plain", "level_shift accuracy_drop", 230)
def labels_flipped(run: Tape) -> None:
    """From step 230 on labels are drawn at random."""

    def at(fit: Logistic, step: int) -> None:
        if step >= 230:
            fit.labels = fit.rng.integers(0, 2, 3000).astype(float)

    Logistic(seed=3).fit(run, 400, at)


@fault("plain", "overfit", window=150)
def boosting_overfits(run: Tape) -> None:
    """Forty examples and a rate of 1: the held-out error rises."""
    boosting = Boosting(seed=1, count=40)
    boosting.rate = 1.0
    boosting.fit(run, 150)


@fault("plain", "not_finite", 150, window=2)
def infinite(run: Tape) -> None:
    """A weight overflows."""

    def at(fit: Logistic, step: int) -> None:
        if step == 150:
            fit.weights[0] = math.nan

    Logistic(seed=5).fit(run, 250, at)


@fault("plain", "lr_zero", 200)
def schedule_ended(run: Tape) -> None:
    """The rate is 0 from step 200 on."""

    def at(fit: Logistic, step: int) -> None:
        fit.lr = 0.0 if step >= 200 else 0.1

    Logistic(seed=6).fit(run, 350, at)


@healthy("plain")
def steps_that_wait(run: Tape) -> None:
    """Every twentieth step writes a checkpoint in a span."""
    rng = np.random.default_rng(7)
    weights = rng.normal(size=(60, 60))
    for step in range(200):
        with run.step(step):
            with run.span("train.forward"):
                for _ in range(20):
                    weights = weights - 0.01 * (weights @ weights.T @ weights) / 600
            if step % 20 == 19:
                with run.span("train.checkpoint.save"):
                    time.sleep(0.02)
            run.log({"loss": float((weights**2).mean())})
