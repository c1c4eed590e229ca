"""Healthy runs that look odd: what a detector must leave in peace."""

import math
import random
from collections.abc import Callable

from benchmarks.zoo.story import Story, add_spans, add_system, around, training

HEALTHY: dict[str, Callable[[random.Random], Story]] = {}


def healthy(make: Callable[[random.Random], Story]) -> Callable[[random.Random], Story]:
    """Register a healthy run under its function's name."""
    HEALTHY[make.__name__] = make
    return make


def replaced_loss(story: Story, make: Callable[[int], float]) -> Story:
    """Give a run another loss."""
    story.curves[story.names["loss"]] = [make(t) for t in range(story.steps)]
    return story


@healthy
def plain(rng: random.Random) -> Story:
    """A run as they should be."""
    return training(rng)


@healthy
def ranks(rng: random.Random) -> Story:
    """Eight ranks."""
    return training(rng, world=8, steps=400)


@healthy
def two_ranks(rng: random.Random) -> Story:
    """Two ranks with losses of their own."""
    story = training(rng, world=2)
    loss = story.curves.pop(story.names["loss"])
    story.own[story.names["loss"]] = [[around(rng, v or 0.0, 0.05) for v in loss] for _ in range(2)]
    return story


@healthy
def twenty_steps(rng: random.Random) -> Story:
    """A run of twenty steps."""
    return training(rng, steps=20)


@healthy
def long_run(rng: random.Random) -> Story:
    """A run of twenty thousand steps."""
    return training(rng, steps=20_000, spans=False)


@healthy
def noisy_batches(rng: random.Random) -> Story:
    """Batches so small that the loss jumps by half each step."""
    story = training(rng)
    return replaced_loss(story, lambda t: around(rng, 2.0 * (0.4 + (1 + t / 30) ** -0.5), 0.35))


@healthy
def heavy_tailed_gradients(rng: random.Random) -> Story:
    """Gradient norms with heavy tails."""
    story = training(rng)
    story.curves[story.names["grad"]] = [0.5 * (1 - rng.random()) ** -0.45 for _ in range(story.steps)]
    return story


@healthy
def heavy_tailed_loss(rng: random.Random) -> Story:
    """A loss of few samples with a heavy tail."""
    story = training(rng)
    return replaced_loss(story, lambda t: (0.5 + (1 + t / 30) ** -0.5) * (1 - rng.random()) ** -0.25)


@healthy
def warm_restarts(rng: random.Random) -> Story:
    """A learning rate with warm restarts, and a loss that follows it."""
    story = training(rng, steps=900)
    every, peak = rng.choice((150, 225, 300)), 1e-3
    story.config["lr"] = peak
    rate = [peak * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * (t % every) / every))) for t in range(900)]
    story.curves[story.names["lr"]] = list(rate)
    return replaced_loss(story, lambda t: around(rng, (1 + (1 + t / 60) ** -0.6) * (1 + 0.25 * rate[t] / peak), 0.02))


@healthy
def curriculum(rng: random.Random) -> Story:
    """Harder data in stages, told by a metric; the loss goes up and falls again."""
    story = training(rng, steps=900)
    story.curves["curriculum_stage"] = [float(t // 300) for t in range(900)]
    return replaced_loss(story, lambda t: around(rng, 1 + 0.5 * (t // 300) + 1.5 * math.exp(-(t % 300) / 60), 0.02))


@healthy
def silent_curriculum(rng: random.Random) -> Story:
    """Harder data in stages, told by nobody."""
    story = training(rng, steps=900)
    return replaced_loss(
        story, lambda t: around(rng, 0.8 + 1.4 * math.exp(-(t % 300) / 80) * (1 if t < 300 else 0.6), 0.02)
    )


@healthy
def longer_sequences(rng: random.Random) -> Story:
    """The sequence length doubles: slower steps, less tokens a second, on purpose."""
    story = training(rng, steps=900, spans=False)
    story.curves["seq_len"] = [512.0 if t < 450 else 1024.0 for t in range(900)]
    story.curves["tokens_per_second"] = [around(rng, 5e4 if t < 450 else 4.2e4, 0.01) for t in range(900)]
    return story


@healthy
def gan(rng: random.Random) -> Story:
    """Generator and discriminator chase each other."""
    story = training(rng, spans=False)
    story.curves.pop(story.names["loss"])
    period = rng.uniform(40, 150)
    story.curves["g_loss"] = [around(rng, 1.5 + math.sin(t / period * 6.28), 0.15) for t in range(story.steps)]
    story.curves["d_loss"] = [around(rng, 1.3 + 0.8 * math.cos(t / period * 6.28), 0.15) for t in range(story.steps)]
    return story


@healthy
def oscillating(rng: random.Random) -> Story:
    """A loss that breathes with the epochs."""
    story, period = training(rng, steps=900), rng.uniform(60, 140)
    return replaced_loss(
        story, lambda t: around(rng, (1 + (1 + t / 50) ** -0.6) * (1 + 0.12 * math.sin(t / period * 6.28)), 0.03)
    )


@healthy
def amp_skips(rng: random.Random) -> Story:
    """Mixed precision that overflows now and then and halves its scale."""
    story, scale = training(rng, steps=900), 65536.0
    scales: list[float | None] = []
    for t in range(900):
        if t < 8 or rng.random() < 0.004:
            scale = max(scale / 2, 256.0)
            story.curves[story.names["grad"]][t] = math.inf
        elif t % 200 == 0:
            scale *= 2
        scales.append(scale)
    story.curves["loss_scale"] = scales
    return story


@healthy
def accumulation(rng: random.Random) -> Story:
    """Gradient accumulation: four losses at each step."""
    story = training(rng, steps=1200, spans=False)
    story.relabel = {t: t // 4 for t in range(1200)}
    return story


@healthy
def sparse_logging(rng: random.Random) -> Story:
    """Values every ten steps."""
    story = training(rng, steps=1500, spans=False)
    for key, curve in story.curves.items():
        story.curves[key] = [v if t % 10 == 0 else None for t, v in enumerate(curve)]
    return story


@healthy
def irregular_logging(rng: random.Random) -> Story:
    """Values whenever an episode happens to end."""
    story = training(rng, steps=1500, spans=False)
    for key, curve in story.curves.items():
        story.curves[key] = [v if rng.random() < 0.15 else None for v in curve]
    return story


@healthy
def restarted_well(rng: random.Random) -> Story:
    """A preempted run that goes on from its checkpoint."""
    story = training(rng)
    at = story.steps // 2
    story.restarts[at] = at - rng.choice((0, 20))
    return story


@healthy
def restarted_often(rng: random.Random) -> Story:
    """A run on spot machines."""
    story = training(rng, steps=900)
    for at in (200, 430, 610, 750):
        story.restarts[at] = at - 60 if at == 430 else at
    return story


@healthy
def slow_first_steps(rng: random.Random) -> Story:
    """Compilation in the first steps."""
    story = training(rng, spans=True)
    for t in range(3):
        story.spans["train.forward"][0][t] *= 60 / (t + 1)
    return story


@healthy
def jittery_loader(rng: random.Random) -> Story:
    """Data loading that varies a lot, always."""
    story = training(rng, spans=True)
    story.spans["train.data_load"][0] = [
        0.05 * story.step_seconds * (1 - rng.random()) ** -0.5 for _ in range(story.steps)
    ]
    return story


def crowded(rng: random.Random) -> Story:
    """Four ranks on a machine with other work: each is held up now and then, for some steps in a row."""
    story = training(rng, steps=400, world=4)
    for rank in range(4):
        left, times = 0, 1.0
        for t in range(400):
            if left == 0 and rng.random() < 0.06:
                left, times = 1 + min(int(rng.expovariate(0.3)), 8), rng.uniform(1.4, 6.0)
            if left:
                left -= 1
                for name in ("train.data_load", "train.forward", "train.backward"):
                    story.spans[name][rank][t] *= 1 + (times - 1) * rng.random()
    return story


@healthy
def crowded_machine(rng: random.Random) -> Story:
    """Ranks that share their cores with other work."""
    return crowded(rng)


@healthy
def epochs(rng: random.Random) -> Story:
    """Each epoch begins with a slow batch, and says so."""
    story = training(rng, steps=900, spans=True)
    story.curves["epoch"] = [float(t // 150) for t in range(900)]
    for t in range(150, 900, 150):
        story.spans["train.data_load"][0][t] = 6 * story.step_seconds
    return story


@healthy
def evaluations_in_throughput(rng: random.Random) -> Story:
    """A throughput by the wall clock, with evaluations in it."""
    story = training(rng, steps=900, spans=False)
    story.curves["samples_per_second"] = [around(rng, 300.0 if t % 50 else 60.0, 0.02) for t in range(900)]
    return story


@healthy
def warming_throughput(rng: random.Random) -> Story:
    """A throughput that rises to its level."""
    story = training(rng, spans=False)
    story.curves["tokens_per_sec"] = [
        around(rng, 9e4 * (1 - 0.4 * math.exp(-t / 30)), 0.015) for t in range(story.steps)
    ]
    return story


@healthy
def noisy_throughput(rng: random.Random) -> Story:
    """A shared machine: the throughput wanders."""
    story, level = training(rng, steps=900, spans=False), 0.0
    values = []
    for _ in range(900):
        level = 0.97 * level + rng.gauss(0, 0.01)
        values.append(around(rng, 2e4 * math.exp(level), 0.05))
    story.curves["throughput"] = list(values)
    return story


@healthy
def rising_validation_noise(rng: random.Random) -> Story:
    """A validation loss that is flat and noisy."""
    story = training(rng, steps=1500)
    story.curves["val/loss"] = [
        around(rng, 1.2 + math.exp(-t / 200), 0.02) if t % 25 == 0 else None for t in range(1500)
    ]
    story.curves["val/accuracy"] = [
        min(0.8 - 0.5 * math.exp(-t / 200) + rng.gauss(0, 0.012), 1.0) if t % 25 == 0 else None for t in range(1500)
    ]
    return story


@healthy
def perfect_accuracy(rng: random.Random) -> Story:
    """An accuracy that reaches one and stays there."""
    story = training(rng)
    story.curves["train/accuracy"] = [
        min(1.0, 0.3 + 0.9 * t / story.steps + rng.gauss(0, 0.02)) for t in range(story.steps)
    ]
    return story


@healthy
def memory_warm_up(rng: random.Random) -> Story:
    """Caches fill in the first third, then memory stays."""
    story = training(rng, steps=900)
    add_system(story)
    story.system["memory/used_bytes"] = [2e10 * (1 + min(i / 40, 1)) * (1 + rng.gauss(0, 0.004)) for i in range(121)]
    return story


@healthy
def memory_sawtooth(rng: random.Random) -> Story:
    """Garbage that is collected now and then."""
    story = training(rng, steps=900)
    add_system(story)
    story.system["memory/used_bytes"] = [2e10 * (1 + 0.4 * ((i % 25) / 25)) for i in range(121)]
    return story


@healthy
def small_gpu_load(rng: random.Random) -> Story:
    """A GPU that is half busy, up and down."""
    story = training(rng, steps=900)
    add_system(story)
    story.system["gpu/0/utilization"] = [min(max(rng.gauss(0.45, 0.2), 0), 1) for _ in range(121)]
    return story


@healthy
def chatty(rng: random.Random) -> Story:
    """A library that warns at every step, from the start."""
    story = training(rng, steps=400)
    story.logs = [(t, 0, 13, f"step {t}: lr scheduler called before optimizer") for t in range(400)]
    return story


@healthy
def settings_of_losses(rng: random.Random) -> Story:
    """Coefficients and scales whose names sound like metrics."""
    story = training(rng)
    story.curves["kl_coef"] = [0.2 * 1.02**t for t in range(story.steps)]
    story.curves["entropy_coef"] = [0.01 * (1 - t / story.steps) for t in range(story.steps)]
    story.curves["loss_scale"] = [2.0 ** (10 + t // 200) for t in range(story.steps)]
    story.curves["loss_weight"] = [1.0 if t < 100 else 5.0 for t in range(story.steps)]
    return story


@healthy
def odd_metrics(rng: random.Random) -> Story:
    """Counters, flags and identifiers among the metrics."""
    story = training(rng)
    story.curves["samples_seen"] = [32.0 * t for t in range(story.steps)]
    story.curves["is_eval"] = [float(t % 50 == 0) for t in range(story.steps)]
    story.curves["bucket"] = [float(rng.randrange(8)) for _ in range(story.steps)]
    story.curves["errors"] = [float(int(4 * (1 - rng.random()) ** -0.5)) for _ in range(story.steps)]
    story.curves["queue_depth"] = [float(int((1 - rng.random()) ** -0.8)) for _ in range(story.steps)]
    return story


@healthy
def uneven_ranks(rng: random.Random) -> Story:
    """Ranks with batches of varying length: who is last changes each step."""
    story = training(rng, world=4, steps=600)
    add_spans(story)
    for rank in range(4):
        story.spans["train.forward"][rank] = [around(rng, 0.3 * story.step_seconds, 0.2) for _ in range(600)]
    return story


@healthy
def as_fast_as_before(rng: random.Random) -> Story:
    """Steps as long as in the earlier runs, which differ a little."""
    story = training(rng, spans=True)
    took = sum(rows[0][5] for name, rows in story.spans.items() if name not in ("train.evaluate", "all_reduce"))
    story.earlier = tuple(around(rng, took, 0.08) for _ in range(6))
    return story
