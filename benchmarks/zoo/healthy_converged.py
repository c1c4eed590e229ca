"""Healthy trainings that have learnt all there is."""

import math
import random

from benchmarks.zoo.healthy import healthy, replaced_loss
from benchmarks.zoo.story import Story, around, training


@healthy
def converged(rng: random.Random) -> Story:
    """A fine-tuning that has little left to learn."""
    story, level = training(rng), rng.uniform(0.2, 1.5)
    return replaced_loss(story, lambda t: around(rng, level * (0.9 + 0.1 * math.exp(-t / 40)), 0.05))


@healthy
def fast_fall(rng: random.Random) -> Story:
    """A loss that falls by half in the first steps and slowly after."""
    story = training(rng)
    return replaced_loss(story, lambda t: around(rng, 0.4 + 8 * math.exp(-t / 6), 0.03))


@healthy
def to_zero(rng: random.Random) -> Story:
    """A toy that learns all there is: loss and gradients go to nothing."""
    story = training(rng)
    story.curves[story.names["grad"]] = [
        around(rng, 2 * math.exp(-12 * t / story.steps) + 1e-6, 0.3) for t in range(story.steps)
    ]
    return replaced_loss(story, lambda t: around(rng, 2.3 * math.exp(-12 * t / story.steps) + 1e-5, 0.1))


@healthy
def noise_floor(rng: random.Random) -> Story:
    """A regression whose error falls exponentially until only the noise of the data is left."""
    story = training(rng)
    begin, floor, rate = rng.uniform(0.5, 20), 10 ** rng.uniform(-4, -2), rng.uniform(12, 60) / story.steps
    noise = rng.uniform(0.03, 0.2)
    return replaced_loss(story, lambda t: around(rng, begin * (math.exp(-rate * t) + floor), noise))
