"""Healthy runs of reinforcement learning that look odd."""

import math
import random

from benchmarks.zoo.healthy import healthy
from benchmarks.zoo.story import Story, around, reinforcement


@healthy
def ppo(rng: random.Random) -> Story:
    """A PPO that goes well."""
    return reinforcement(rng)


@healthy
def noisy_rewards(rng: random.Random) -> Story:
    """Rewards with heavy tails, NaN until the first episode ends."""
    story = reinforcement(rng)
    story.curves[story.names["reward"]] = [
        math.nan if t < 5 else 10 * (1 - rng.random()) ** -0.4 - 15 for t in range(story.steps)
    ]
    return story


@healthy
def sparse_rewards(rng: random.Random) -> Story:
    """A reward that is zero until the task is found."""
    story = reinforcement(rng, steps=800)
    found = rng.randrange(200, 400)
    story.curves[story.names["reward"]] = [
        0.0 if t < found else min((t - found) / 100, 1.0) + rng.gauss(0, 0.05) for t in range(800)
    ]
    return story


@healthy
def rlhf(rng: random.Random) -> Story:
    """KL to the reference grows slowly, as it does, and answers grow a little."""
    story = reinforcement(rng, steps=800)
    story.curves[story.names["kl"]] = [around(rng, 0.5 + 6 * t / 800, 0.1) for t in range(800)]
    story.curves[story.names["length"]] = [around(rng, 200 * (1 + 0.4 * t / 800), 0.04) for t in range(800)]
    return story


@healthy
def continuous_actions(rng: random.Random) -> Story:
    """An entropy of continuous actions, which goes below zero."""
    story = reinforcement(rng)
    story.curves[story.names["entropy"]] = [
        2.0 - 4.0 * t / story.steps + rng.gauss(0, 0.03) for t in range(story.steps)
    ]
    return story


@healthy
def annealed_entropy(rng: random.Random) -> Story:
    """An entropy that falls all the way, slowly."""
    story = reinforcement(rng, steps=800)
    story.curves[story.names["entropy"]] = [around(rng, 1.6 * math.exp(-4 * t / 800), 0.03) for t in range(800)]
    return story


@healthy
def value_learns_late(rng: random.Random) -> Story:
    """A value function that needs its time."""
    story = reinforcement(rng, steps=800)
    story.curves[story.names["ev"]] = [0.85 / (1 + math.exp(-(t - 150) / 30)) + rng.gauss(0, 0.08) for t in range(800)]
    return story
