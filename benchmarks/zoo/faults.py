"""Runs with one fault each: of values, of a policy, of time, of ranks, of resources and records."""

import math
import random
from collections.abc import Callable

from benchmarks.zoo.story import Story, Truth, around, reinforcement, training

Made = tuple[Story, Truth]
FAULTS: dict[str, Callable[[random.Random], Made]] = {}


def fault(make: Callable[[random.Random], Made]) -> Callable[[random.Random], Made]:
    """Register a fault under its function's name."""
    FAULTS[make.__name__] = make
    return make


def _middle(rng: random.Random, story: Story, low: float = 0.35, high: float = 0.7) -> int:
    return int(rng.uniform(low, high) * story.steps)


def _scale(story: Story, key: str, at: int, factor: Callable[[int], float], until: int | None = None) -> None:
    curve = story.curves[key]
    for t in range(at, until or story.steps):
        value = curve[t]
        if value is not None:
            curve[t] = value * factor(t - at)


@fault
def nan_loss(rng: random.Random) -> Made:
    """A loss that becomes NaN for good, with its gradient norm."""
    story = training(rng)
    at = _middle(rng, story)
    for key in (story.names["loss"], story.names["grad"]):
        _scale(story, key, at, lambda _: math.nan)
    return story, Truth(("not_finite",), at, 1, (0,), "loss")


@fault
def nan_rank_layer(rng: random.Random) -> Made:
    """A layer of one rank whose gradients are NaN, then its loss."""
    story = training(rng, world=4)
    at, rank, layer = _middle(rng, story), rng.randrange(4), rng.randrange(12)
    loss = story.curves.pop(story.names["loss"])
    story.own[story.names["loss"]] = [[around(rng, v or 0.0, 0.01) for v in loss] for _ in range(4)]
    for each in range(0, 12, 3):
        story.own[f"grad_norm/layers.{each}"] = [[around(rng, 0.3, 0.2) for _ in loss] for _ in range(4)]
    layer -= layer % 3
    for t in range(at, story.steps):
        story.own[f"grad_norm/layers.{layer}"][rank][t] = math.nan
        if t > at:
            story.own[story.names["loss"]][rank][t] = math.nan
    return story, Truth(("not_finite",), at, 1, (rank,), f"layers.{layer}")


@fault
def inf_loss(rng: random.Random) -> Made:
    """A loss that is infinite at one step."""
    story = training(rng)
    at = _middle(rng, story)
    story.curves[story.names["loss"]][at] = math.inf
    return story, Truth(("not_finite",), at, 1, None, "loss")


def _spike(rng: random.Random, story: Story, at: int, times: float, long: int) -> Made:
    _scale(story, story.names["loss"], at, lambda k: 1 + (times - 1) * math.exp(-k / 1.2), min(at + long, story.steps))
    _scale(story, story.names["grad"], at, lambda _: times * 1.5, at + 1)
    return story, Truth(("spike",), at, 2, None, "loss")


@fault
def spike_3x(rng: random.Random) -> Made:
    """A loss of three times the usual for a few steps."""
    story = training(rng)
    return _spike(rng, story, _middle(rng, story), 3.0, rng.choice((1, 3, 6)))


@fault
def spike_100x(rng: random.Random) -> Made:
    """A loss of a hundred times the usual."""
    story = training(rng)
    return _spike(rng, story, _middle(rng, story), 100.0, rng.choice((1, 3, 8)))


@fault
def spike_early(rng: random.Random) -> Made:
    """A spike within the first steps."""
    story = training(rng)
    return _spike(rng, story, rng.randrange(8, 20), rng.uniform(4, 20), 1)


@fault
def slow_divergence(rng: random.Random) -> Made:
    """A loss that turns and rises slowly."""
    story = training(rng)
    at = _middle(rng, story, 0.3, 0.5)
    rate = rng.uniform(0.4, 1.5) / story.steps * 2
    _scale(story, story.names["loss"], at, lambda k: math.exp(rate * k))
    return story, Truth(("divergence", "level_shift"), at, story.steps // 5, None, "loss")


@fault
def plateau(rng: random.Random) -> Made:
    """A loss that falls steeply and stops at once."""
    story = training(rng)
    key, at = story.names["loss"], _middle(rng, story, 0.25, 0.4)
    begin, rate, noise = rng.uniform(3, 10), rng.uniform(1.2, 2.2) / story.steps * 2.5, rng.uniform(0.008, 0.04)
    story.curves[key] = [around(rng, begin * math.exp(-rate * min(t, at)), noise) for t in range(story.steps)]
    return story, Truth(("plateau",), at, story.steps // 6, None, "loss")


@fault
def not_learning(rng: random.Random) -> Made:
    """A loss that stays at the logarithm of the number of classes."""
    story = training(rng)
    classes = rng.choice((10, 100, 1000, 32000, 50257))
    story.config["vocab_size" if classes > 1000 else "num_classes"] = classes
    noise = rng.uniform(0.002, 0.015)
    story.curves[story.names["loss"]] = [around(rng, math.log(classes), noise) for _ in range(story.steps)]
    return story, Truth(("not_learning",), None, 0, None, "loss")


@fault
def dead_constant(rng: random.Random) -> Made:
    """A loss that becomes exactly constant."""
    story = training(rng)
    at = _middle(rng, story)
    curve = story.curves[story.names["loss"]]
    curve[at:] = [curve[at]] * (story.steps - at)
    return story, Truth(("constant",), at, 2, None, "loss")


@fault
def vanishing_gradients(rng: random.Random) -> Made:
    """A gradient norm that falls to nothing."""
    story = training(rng)
    at, fall = _middle(rng, story), rng.uniform(0.3, 1.0)
    _scale(story, story.names["grad"], at, lambda k: max(math.exp(-fall * k), 1e-7))
    return story, Truth(("vanishing_gradients",), at, 40, None, "grad")


@fault
def exploding_gradients(rng: random.Random) -> Made:
    """A gradient norm that grows and grows."""
    story = training(rng)
    at, rise = _middle(rng, story), rng.uniform(0.08, 0.3)
    _scale(story, story.names["grad"], at, lambda k: math.exp(min(rise * k, 14)))
    _scale(story, story.names["loss"], at + 10, lambda k: math.exp(min(rise * k / 4, 2)))
    return story, Truth(("exploding_gradients", "spike", "divergence"), at, 40, None, None)


@fault
def lr_zero(rng: random.Random) -> Made:
    """A learning rate that is zero from the middle on."""
    story = training(rng)
    at = _middle(rng, story)
    _scale(story, story.names["lr"], at, lambda _: 0.0)
    return story, Truth(("lr_zero",), at, 2, None, story.names["lr"])


@fault
def lr_jump(rng: random.Random) -> Made:
    """A learning rate that jumps far above its peak."""
    story = training(rng)
    at = _middle(rng, story)
    peak = story.config["lr"]
    times = rng.uniform(5, 30)
    for t in range(at, story.steps):
        story.curves[story.names["lr"]][t] = peak * times
    _scale(story, story.names["loss"], at + 3, lambda k: 1 + min(k / 20, 1.5))
    return story, Truth(("lr_schedule",), at, 2, None, story.names["lr"])


@fault
def lr_not_scheduled(rng: random.Random) -> Made:
    """A learning rate that never moves though a cosine was configured."""
    story = training(rng)
    story.config |= {"lr_scheduler": "cosine", "max_steps": story.steps}
    story.curves[story.names["lr"]] = [story.config["lr"]] * story.steps
    return story, Truth(("lr_schedule",), None, 0, None, story.names["lr"])


@fault
def level_shift(rng: random.Random) -> Made:
    """A loss that goes up by a third at once and stays."""
    story = training(rng)
    at, times = _middle(rng, story), rng.uniform(1.3, 1.8)
    _scale(story, story.names["loss"], at, lambda _: times)
    return story, Truth(("level_shift", "spike"), at, 20, None, "loss")


@fault
def accuracy_drop(rng: random.Random) -> Made:
    """A validation accuracy that drops and stays down."""
    story = training(rng, steps=rng.choice((900, 1500)))
    every, key = rng.choice((15, 25)), rng.choice(("val/accuracy", "eval/acc"))
    at = _middle(rng, story, 0.55, 0.75)
    top, noise = rng.uniform(0.6, 0.95), rng.uniform(0.003, 0.012)
    fall = rng.uniform(0.1, 0.3)
    story.curves[key] = [
        top * (1 - math.exp(-8 * t / story.steps)) + rng.gauss(0, noise) - (fall if t >= at else 0)
        if t % every == 0
        else None
        for t in range(story.steps)
    ]
    return story, Truth(("accuracy_drop",), at, 3 * every, None, "acc")


@fault
def overfit(rng: random.Random) -> Made:
    """A validation loss that rises while the loss of training falls."""
    story = training(rng, steps=rng.choice((900, 1500)))
    every, at = rng.choice((20, 30)), _middle(rng, story, 0.3, 0.5)
    begin, noise, rate = rng.uniform(2, 5), rng.uniform(0.003, 0.015), rng.uniform(0.3, 0.8) / story.steps
    begin_t = rng.uniform(2, 5)
    story.curves[story.names["loss"]] = [
        around(rng, begin_t * math.exp(-2.5 * t / story.steps), 0.02) for t in range(story.steps)
    ]
    curve = [
        begin * (0.5 + 0.5 * math.exp(-4 * min(t, at) / at)) * math.exp(rate * max(t - at, 0))
        for t in range(story.steps)
    ]
    story.curves["val/loss"] = [around(rng, curve[t], noise) if t % every == 0 else None for t in range(story.steps)]
    return story, Truth(("overfit",), at, story.steps // 6, None, "val")


@fault
def bad_resume(rng: random.Random) -> Made:
    """A restart after which the loss is far above where it was."""
    story = training(rng)
    at = _middle(rng, story)
    story.restarts[at] = at - rng.choice((0, 10, 25))
    times = rng.uniform(1.6, 3.0)
    _scale(story, story.names["loss"], at, lambda k: 1 + (times - 1) * math.exp(-k / 120))
    return story, Truth(("bad_resume",), story.restarts[at], 15, None, "loss")


@fault
def scaler_collapse(rng: random.Random) -> Made:
    """A loss scale that is halved until nothing is left."""
    story = training(rng)
    at = _middle(rng, story)
    story.curves["loss_scale"] = [
        65536.0 if t < at else max(65536.0 / 2 ** ((t - at) // 2), 1e-4) for t in range(story.steps)
    ]
    for t in range(at, story.steps):
        story.curves[story.names["grad"]][t] = math.inf
    return story, Truth(("scaler_collapse", "not_finite"), at, 10, None, None)


@fault
def kl_blowup(rng: random.Random) -> Made:
    """A KL that rises tenfold and more."""
    story = reinforcement(rng)
    at = _middle(rng, story)
    times = rng.uniform(12, 60)
    _scale(story, story.names["kl"], at, lambda k: 1 + times * min(k / 4, 1))
    return story, Truth(("kl_blowup",), at, 10, None, "kl")


@fault
def kl_around_zero(rng: random.Random) -> Made:
    """An estimate of KL around zero that blows up."""
    story = reinforcement(rng)
    at = _middle(rng, story)
    wide = rng.uniform(0.001, 0.005)
    story.curves[story.names["kl"]] = [
        rng.gauss(0, wide) if t < at else rng.uniform(0.2, 0.8) for t in range(story.steps)
    ]
    return story, Truth(("kl_blowup",), at, 5, None, "kl")


@fault
def entropy_collapse(rng: random.Random) -> Made:
    """An entropy that collapses within a few steps."""
    story = reinforcement(rng)
    at, fast = _middle(rng, story), rng.uniform(4, 12)
    _scale(story, story.names["entropy"], at, lambda k: max(math.exp(-k / fast), 0.01))
    return story, Truth(("entropy_collapse",), at, 25, None, "entropy")


@fault
def clip_saturated(rng: random.Random) -> Made:
    """Most updates are clipped."""
    story = reinforcement(rng)
    at, level = _middle(rng, story), rng.uniform(0.6, 0.9)
    for t in range(at, story.steps):
        story.curves[story.names["clip"]][t] = min(around(rng, level, 0.05), 1.0)
    return story, Truth(("clip_saturated",), at, 10, None, "clip")


@fault
def clip_zero(rng: random.Random) -> Made:
    """No update is clipped any more."""
    story = reinforcement(rng)
    at = _middle(rng, story)
    _scale(story, story.names["clip"], at, lambda _: 0.0)
    return story, Truth(("clip_zero",), at, 10, None, "clip")


@fault
def value_function_lost(rng: random.Random) -> Made:
    """A value function that stops explaining returns."""
    story = reinforcement(rng)
    at = _middle(rng, story)
    for t in range(at, story.steps):
        story.curves[story.names["ev"]][t] = rng.gauss(-0.1, 0.08)
    return story, Truth(("value_function",), at, 40, None, "explained")


@fault
def reward_hacking(rng: random.Random) -> Made:
    """Reward, length and KL rise together from some step on."""
    story = reinforcement(rng, steps=800)
    at = _middle(rng, story, 0.4, 0.6)
    longer, farther = rng.uniform(1.5, 4) / 400, rng.uniform(5, 15) / 400
    _scale(story, story.names["length"], at, lambda k: 1 + longer * k)
    _scale(story, story.names["kl"], at, lambda k: 1 + farther * k)
    values = story.curves[story.names["reward"]]
    wide = max(v for v in values if v is not None) - min(v for v in values if v is not None)
    for t in range(at, story.steps):
        values[t] = (values[t] or 0.0) + wide * (t - at) / 200
    return story, Truth(("reward_hacking",), at, 150, None, None)


@fault
def dead_environment(rng: random.Random) -> Made:
    """A reward that becomes exactly constant."""
    story = reinforcement(rng)
    at = _middle(rng, story)
    curve = story.curves[story.names["reward"]]
    curve[at:] = [rng.choice((0.0, -1.0, curve[at]))] * (story.steps - at)
    return story, Truth(("dead_environment",), at, 5, None, None)


@fault
def retry_storm(rng: random.Random) -> Made:
    """Warnings of retries, many a second."""
    story = training(rng)
    at = _middle(rng, story)
    text = rng.choice(
        (
            "retrying request {} after timeout",
            "HTTP 503 from reward model, retry {}",
            "connection reset by peer, backing off {} s",
        )
    )
    story.logs = [(at + i // 12, 0, 13, text.format(i)) for i in range(80)]
    return story, Truth(("retry_storm",), at, 10)
