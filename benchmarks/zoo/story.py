"""A made-up training run: curves, spans and logs on every rank, from a seed; faults are cut into it."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stepscope.model import names
from stepscope.model.records import Event, Log, Metric, Record, Span

START = 1_700_000_000_000_000_000


class Told(NamedTuple):
    """A record as it arrives: when, from which rank, attempt and host."""

    time: int
    rank: int
    attempt: int
    host: str
    record: Record


@dataclass(slots=True)
class Truth:
    """What must be found: one of these kinds, near this step, on these ranks, about this metric or span."""

    kinds: tuple[str, ...]
    step: int | None = None
    window: int = 10
    ranks: tuple[int, ...] | None = None
    about: str | None = None


@dataclass(slots=True)
class Story:
    """A run in the making."""

    rng: random.Random
    steps: int = 600
    world: int = 1
    per_host: int = 2
    step_seconds: float = 0.25
    names: dict[str, str] = field(default_factory=dict)
    curves: dict[str, list[float | None]] = field(default_factory=dict)
    """Metrics that are the same on all ranks; None where nothing is logged."""
    own: dict[str, list[list[float | None]]] = field(default_factory=dict)
    """Metrics of each rank."""
    spans: dict[str, list[list[float]]] = field(default_factory=dict)
    """Seconds in each span, by rank and step; 0 where there is none."""
    system: dict[str, list[float]] = field(default_factory=dict)
    """Readings every few steps on rank 0."""
    logs: list[tuple[int, int, int, str]] = field(default_factory=list)
    """Step, rank, severity, text."""
    config: dict[str, Any] = field(default_factory=dict)
    rank_config: dict[int, dict[str, Any]] = field(default_factory=dict)
    restarts: dict[int, int] = field(default_factory=dict)
    """At this index a new attempt begins, at that step."""
    offsets: dict[int, float] = field(default_factory=dict)
    """Seconds by which a rank's clock is off."""
    dies: tuple[int, int] | None = None
    """Rank and step at which a process is killed."""
    hangs: tuple[int, int, str] | None = None
    """Rank, step and span in which a rank stays while the others wait."""
    earlier: tuple[float, ...] = ()
    """The median step times of earlier runs, in seconds."""
    relabel: dict[int, int] = field(default_factory=dict)
    """Steps that are recorded under another number."""

    def step_at(self, index: int) -> int:
        """The step that is recorded at an index of the curves."""
        begun = max((at for at in self.restarts if at <= index), default=None)
        step = index if begun is None else self.restarts[begun] + index - begun
        return self.relabel.get(index, step)

    def told(self) -> Iterator[Told]:
        """Tell the run record by record."""
        clock = START
        yield from self._starts(clock, 1)
        attempt = 1
        for at in range(self.steps):
            if at in self.restarts:
                attempt += 1
                clock += 30_000_000_000
                yield from self._starts(clock, attempt)
            if self.hangs is not None and at == self.hangs[1]:
                yield from self._hang(clock, attempt)
                return
            rows = [self._row(rank, at) for rank in range(self.world)]
            longest = max(sum(row.values()) for row in rows)
            for rank, row in enumerate(rows):
                if self.dies is not None and rank == self.dies[0] and at >= self.dies[1]:
                    continue
                yield from self._step(rank, at, clock, row, longest, attempt)
            if self.dies is not None and at >= self.dies[1]:
                return
            yield from self._readings(at, clock + int(longest * 1e9), attempt)
            clock += int((longest + self._link(at)) * 1e9)
        for rank in range(self.world):
            done = Event(clock, None, None, None, None, 9, names.EVENT_FINISHED, {"status": "finished"})
            yield self._as_told(clock, rank, attempt, done)

    def _as_told(self, time: int, rank: int, attempt: int, record: Record) -> Told:
        return Told(time, rank, attempt, f"node{rank // self.per_host}", record)

    def _starts(self, clock: int, attempt: int) -> Iterator[Told]:
        for rank in range(self.world):
            config = {**self.config, **self.rank_config.get(rank, {})}
            attrs = {
                "config": {k: v for k, v in config.items() if not k.startswith("git")},
                "git.commit": config.get("git", "abc"),
            }
            yield self._as_told(
                clock, rank, attempt, Event(clock, None, None, None, None, 9, names.EVENT_STARTED, attrs)
            )

    def _row(self, rank: int, at: int) -> dict[str, float]:
        if not self.spans:
            return {"rest": self.step_seconds}
        return {
            name: rows[rank][at] for name, rows in self.spans.items() if rows[rank][at] > 0 and name != "all_reduce"
        }

    def _link(self, at: int) -> float:
        return self.spans["all_reduce"][0][at] if "all_reduce" in self.spans else 0.0

    def _step(
        self, rank: int, at: int, clock: int, row: dict[str, float], longest: float, attempt: int
    ) -> Iterator[Told]:
        """The spans of a step, innermost first, then its metrics."""
        step = self.step_at(at)
        began = clock + int(self.offsets.get(rank, 0.0) * 1e9)
        root = self.rng.randbytes(8)
        trace, now = self.rng.randbytes(16), began
        told = dict(row)
        if "all_reduce" in self.spans:
            told["all_reduce"] = longest - sum(row.values()) + self._link(at)
        for name, took in told.items():
            if name == "rest":
                continue
            span = Span(now, int(took * 1e9), step, None, trace, self.rng.randbytes(8), root, name)
            now += int(took * 1e9)
            yield self._as_told(now, rank, attempt, span)
        now = max(now, began + int(longest * 1e9))
        if self.spans:
            yield self._as_told(
                now, rank, attempt, Span(began, now - began, step, None, trace, root, None, names.SPAN_STEP)
            )
        values = {key: value for key, curve in self.curves.items() if (value := curve[at]) is not None}
        values |= {key: value for key, rows in self.own.items() if (value := rows[rank][at]) is not None}
        if values:
            yield self._as_told(now, rank, attempt, Metric(now, step, None, None, values))
        for when, who, severity, text in self.logs:
            if when == at and who == rank:
                yield self._as_told(now, rank, attempt, Log(now, step, None, None, None, severity, text))

    def _readings(self, at: int, clock: int, attempt: int) -> Iterator[Told]:
        every = max(self.steps // 120, 1)
        if at % every or not self.system:
            return
        values = {key: readings[min(at // every, len(readings) - 1)] for key, readings in self.system.items()}
        yield self._as_told(clock, 0, attempt, Metric(clock, None, None, "system", values))

    def _hang(self, clock: int, attempt: int) -> Iterator[Told]:
        assert self.hangs is not None
        late, at, inside = self.hangs
        for rank in range(self.world):
            name = inside if rank == late else "all_reduce"
            span = Span(clock + 1_000_000, None, self.step_at(at), None, b"t" * 16, self.rng.randbytes(8), None, name)
            yield self._as_told(clock + 1_000_000_000, rank, attempt, span)


def around(rng: random.Random, value: float, noise: float) -> float:
    """A value with noise of that share."""
    return value * math.exp(rng.gauss(0, noise))


def training(rng: random.Random, steps: int | None = None, world: int = 1, spans: bool | None = None) -> Story:
    """A language model or classifier that learns, with names, noise and size by chance."""
    steps = steps or rng.choice((300, 450, 600, 900, 1500))
    story = Story(
        rng,
        steps=steps,
        world=world,
        per_host=rng.choice((1, 2, 4)) if world > 2 else 1,
        step_seconds=rng.uniform(0.08, 0.8),
    )
    prefix = rng.choice(("", "train/", "trainer/"))
    lr_name = rng.choice(("lr", "learning_rate"))
    story.names = {
        "loss": f"{prefix}{rng.choice(('loss', 'loss', 'loss', 'lm_loss', 'train_loss'))}",
        "lr": f"{prefix}{lr_name}",
        "grad": f"{prefix}grad_norm",
    }
    begin, floor = rng.uniform(2.0, 11.0), rng.uniform(0.1, 0.5)
    power, scale = rng.uniform(0.35, 0.8), rng.uniform(5, 40)
    noise, peak = rng.uniform(0.008, 0.06), 10 ** rng.uniform(-4.5, -2.5)
    story.config = {"lr": peak, "batch_size": rng.choice((16, 32, 256)), "model": "tiny"}
    warm = rng.choice((0, steps // 20))
    story.curves[story.names["loss"]] = [
        around(rng, begin * (floor + (1 - floor) * (1 + t / scale) ** -power), noise) for t in range(steps)
    ]
    story.curves[story.names["lr"]] = [
        peak * min((t + 1) / max(warm, 1), 1.0) * (0.55 + 0.45 * math.cos(math.pi * t / steps)) for t in range(steps)
    ]
    gnoise, glevel = rng.uniform(0.1, 0.45), rng.uniform(0.2, 4.0)
    story.curves[story.names["grad"]] = [
        around(rng, glevel * (0.4 + (1 + t / scale) ** -0.4), gnoise) for t in range(steps)
    ]
    if spans if spans is not None else (world > 1 or rng.random() < 0.6):
        add_spans(story)
    if rng.random() < 0.5:
        add_system(story)
    return story


def add_spans(story: Story) -> None:
    """Spans of a step on every rank, with noise, and a checkpoint or evaluation now and then."""
    rng, steps, world = story.rng, story.steps, story.world
    shares = {
        "train.data_load": rng.uniform(0.02, 0.12),
        "train.forward": 0.3,
        "train.backward": 0.45,
        "train.optimizer_step": 0.1,
    }
    load_noise, noise = rng.uniform(0.1, 0.4), rng.uniform(0.01, 0.05)
    for name, share in shares.items():
        jitter = load_noise if "data" in name else noise
        story.spans[name] = [
            [around(rng, share * story.step_seconds, jitter) for _ in range(steps)] for _ in range(world)
        ]
    if world > 1:
        story.spans["all_reduce"] = [[around(rng, 0.08 * story.step_seconds, noise) for _ in range(steps)]] * world
    if rng.random() < 0.6:
        every, took = rng.choice((50, 100, 150)), rng.uniform(2, 12) * story.step_seconds
        story.spans["train.evaluate"] = [
            [around(rng, took, 0.05) if t and t % every == 0 else 0.0 for t in range(steps)] for _ in range(world)
        ]
    if rng.random() < 0.5:
        every, took = rng.choice((60, 120)), rng.uniform(1, 6) * story.step_seconds
        story.spans["train.checkpoint.save"] = [
            [around(rng, took, 0.1) if t and t % every == 0 else 0.0 for t in range(steps)] for _ in range(world)
        ]


def add_system(story: Story) -> None:
    """Readings of the machine that stay about where they are."""
    rng = story.rng
    used, gpu = rng.uniform(4e9, 60e9), rng.uniform(0.6, 0.97)
    story.system["memory/used_bytes"] = [
        used * (1 + 0.3 * min(i / 5, 1)) * (1 + rng.gauss(0, 0.01)) for i in range(121)
    ]
    story.system["memory/limit_bytes"] = [128e9] * 121
    story.system["disk/free_bytes"] = [rng.uniform(2e11, 2.001e11) for _ in range(121)]
    story.system["gpu/0/utilization"] = [min(max(gpu + rng.gauss(0, 0.05), 0), 1) for _ in range(121)]
    story.system["gpu/0/memory_used_bytes"] = [40e9 * (1 + 0.02 * rng.random()) for _ in range(121)]


def reinforcement(rng: random.Random, steps: int | None = None) -> Story:
    """A PPO or RLHF run that goes well."""
    steps = steps or rng.choice((200, 400, 800))
    story = Story(rng, steps=steps, step_seconds=rng.uniform(0.5, 4.0))
    prefix = rng.choice(("", "train/", "rl/"))
    keys = {
        "kl": rng.choice(("approx_kl", "kl", "kl_divergence")),
        "entropy": "entropy",
        "clip": rng.choice(("clip_fraction", "clipfrac")),
        "ev": "explained_variance",
    }
    story.names = {name: prefix + key for name, key in keys.items()} | {
        "reward": rng.choice(("reward_mean", "mean_return", "ep_rew_mean", "reward")),
        "length": rng.choice(("response_length", "episode_length")),
    }
    kl, wide = rng.uniform(0.004, 0.03), rng.uniform(0.15, 0.5)
    story.curves[story.names["kl"]] = [around(rng, kl, wide) for _ in range(steps)]
    top = rng.uniform(0.6, 4.0)
    story.curves[story.names["entropy"]] = [
        around(rng, top * (0.45 + 0.55 * math.exp(-1.5 * t / steps)), 0.02) for t in range(steps)
    ]
    clip = rng.uniform(0.08, 0.25)
    story.curves[story.names["clip"]] = [min(max(around(rng, clip, 0.2), 0), 1) for _ in range(steps)]
    story.curves[story.names["ev"]] = [
        min(0.9 * (1 - math.exp(-6 * t / steps)) + rng.gauss(0, 0.05), 0.99) for t in range(steps)
    ]
    low, high, spread = rng.uniform(-5, 1), rng.uniform(3, 200), rng.uniform(0.05, 0.2)
    story.curves[story.names["reward"]] = [
        low + (high - low) * (1 - math.exp(-3 * t / steps)) + rng.gauss(0, spread * (high - low)) for t in range(steps)
    ]
    length = rng.uniform(50, 500)
    story.curves[story.names["length"]] = [around(rng, length * (1 + 0.15 * t / steps), 0.05) for t in range(steps)]
    story.curves[prefix + "policy_loss"] = [rng.gauss(-0.01, 0.02) for _ in range(steps)]
    story.curves[prefix + "value_loss"] = [around(rng, 0.5 * (1 + t / steps), 0.3) for t in range(steps)]
    story.curves[prefix + "lr"] = [3e-4 * (1 - t / steps) for t in range(steps)]
    story.config = {"lr": 3e-4, "gamma": 0.99}
    return story
