"""The thirteenth set: tables and series; among them two processes that keep more than they should."""

import copy
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.thirteenth.tasks import Learner, Pair, Rate, Values, cosine, dense, drive, in_evaluation
from benchmarks.zoo.real.tape import Tape


def concrete(count: int, noise: float = 0.3) -> Pair:
    """Nine shares of a mixture, and how strong it gets."""
    x = torch.randn(count, 9)
    y = x[:, 0] * x[:, 1] + 1.5 * (2 * x[:, 2]).sin() + x[:, 3].abs() + x[:, 4] - x[:, 5].clamp(min=0)
    return x, y + noise * torch.randn(count)


STAIRS = {"max_epochs": 20, "scheduler": "StepLR", "step_size": 6, "gamma": 0.3, "lr": 4e-3}
LIGHTNING = ("train_loss", "lr-AdamW", "val_loss")
TRAINER = ("loss", "learning_rate", "eval_loss")


def mixtures(
    tape: Tape,
    rate: Callable[[int, int], float],
    seed: int,
    epochs: int = 20,
    names: tuple[str, str, str] = LIGHTNING,
    rows: int = 1920,
    size: int = 64,
    width: int = 64,
    noise: float = 0.3,
    every: int = 5,
) -> None:
    """A regression, logged at every fifth step, and what is held out once an epoch, in the names of a framework."""
    torch.manual_seed(seed)
    x, y = concrete(rows, noise)
    held = concrete(600, noise)
    part, total = rows // size, 0.0
    work = Learner(dense((9, width, width, 1), nn.SiLU), lambda step: rate(step, step // part))

    def act(step: int) -> Values:
        nonlocal total
        seen = torch.randint(0, rows, (size,))
        work.take(step, lambda: F.mse_loss(work.model(x[seen])[:, 0], y[seen]))
        total += work.loss / every
        found: Values = {}
        if step % every == every - 1:
            found, total = {names[0]: total, names[1]: work.now, "grad_norm": work.norm, "epoch": step / part}, 0.0
        if step % part == part - 1:
            found[names[2]] = in_evaluation(work.model, lambda: F.mse_loss(work.model(held[0])[:, 0], held[1]))
        return found

    drive(tape, epochs * part, act)


@healthy("thirteenth", config=STAIRS)
def healthy_mixtures_in_stairs(tape: Tape) -> None:
    """The rate falls to three tenths at every sixth epoch."""
    mixtures(tape, lambda step, epoch: 4e-3 * 0.3 ** (epoch // 6), 1341)


@fault("thirteenth", "lr_schedule lr_zero plateau not_learning", config=STAIRS)
def mixtures_stairs_by_steps(tape: Tape) -> None:
    """The stairs of six epochs are taken at every sixth step: after sixty steps there is no rate left."""
    mixtures(tape, lambda step, epoch: 4e-3 * 0.3 ** (step // 6), 1342)


class Meter(nn.Module):  # type: ignore[misc]
    """A recurrent network that tells the next eight values."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.read, self.out = nn.GRU(1, width, batch_first=True), nn.Linear(width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The values that follow."""
        return self.out(self.read(x[..., None])[1][0])


def power(count: int, tail: float = 0.0) -> torch.Tensor:
    """What meters read over 32 hours: a daily and a short wave of their own, a level, and noise with a heavy tail."""
    hours = torch.arange(32.0)
    phase, level = 6.28 * torch.rand(count, 2, 1), 3 + torch.rand(count, 1)
    waves = (hours * 0.26 + phase[:, 0]).sin() + 0.5 * (hours * 0.8 + phase[:, 1]).sin()
    noise = 0.1 * torch.randn(count, 32)
    if tail:
        noise = noise + tail * (torch.rand(count, 32) < 0.01) * torch.randn(count, 32).exp().clamp(max=5)
    return level + waves + noise


def own_scale(rows: torch.Tensor) -> Pair:
    """What is given and what follows, by the mean and spread of what is given."""
    given = rows[:, :24]
    mean, spread = given.mean(1, keepdim=True), given.std(1, keepdim=True)
    return (given - mean) / spread, (rows[:, 24:] - mean) / spread


def keras(tape: Tape, batch: Callable[[int], torch.Tensor], seed: int, steps: int = 360, waits: int = 0) -> None:
    """Series in the names of Keras' TensorBoard callback; the rate falls after so many epochs of no gain."""
    torch.manual_seed(seed)
    held = own_scale(power(400))
    rates = [8e-3]
    work = Learner(Meter(), lambda step: rates[0])
    total, best, waited = 0.0, 1e9, 0

    def act(step: int) -> Values:
        nonlocal total, best, waited
        given, wanted = own_scale(batch(step))
        work.take(step, lambda: F.mse_loss(work.model(given), wanted))
        total += work.loss / 24
        found: Values = {"batch_loss": work.loss}
        if step % 24 == 23:
            loss = in_evaluation(work.model, lambda: F.mse_loss(work.model(held[0]), held[1]))
            found |= {"epoch_loss": total, "epoch_val_loss": loss, "epoch_learning_rate": rates[0]}
            best, waited, total = (loss, 0, 0.0) if loss < best - 1e-3 else (best, waited + 1, 0.0)
            if waits and waited >= waits:
                rates[0], waited = max(rates[0] * 0.5, 1e-4), 0
        return found

    drive(tape, steps, act)


@healthy("thirteenth", config={"callbacks": ["ReduceLROnPlateau", "TensorBoard"], "optimizer": "adamw", "epochs": 20})
def healthy_meters_with_heavy_tails(tape: Tape) -> None:
    """Now and then a meter jumps, and the loss of that batch is much larger; the rate falls when nothing is gained."""
    keras(tape, lambda step: power(16, 1.5), 1343, 480, waits=2)


@fault(
    "thirteenth",
    "not_finite",
    step=203,
    window=3,
    config={"callbacks": ["TensorBoard"], "optimizer": "adamw", "epochs": 15},
)
def meters_one_stands_still(tape: Tape) -> None:
    """A broken meter reads zero for a day, and its values are divided by a spread of zero."""

    def batch(step: int) -> torch.Tensor:
        rows = power(16)
        if step == 203:
            rows[5] = 0.0
        return rows

    keras(tape, batch, 1344)


@healthy("thirteenth", config={"per_device_train_batch_size": 4, "num_train_epochs": 2, "logging_steps": 10})
def healthy_mixtures_four_at_a_time(tape: Tape) -> None:
    """Batches of four rows, no warm-up, in the names of the HF Trainer."""
    mixtures(tape, lambda step, epoch: 3e-3 * (1 - step / 800), 1345, 2, TRAINER, 1600, 4, every=10)


@fault("thirteenth", "overfit", config={"train_rows": 96, "num_train_epochs": 60, "hidden_size": 128})
def mixtures_learnt_by_heart(tape: Tape) -> None:
    """A wide network and sixty epochs of 96 noisy rows: it knows each of them, and the held-out loss rises."""
    mixtures(tape, lambda step, epoch: 4e-3, 1346, 60, TRAINER, 96, 16, 128, 1.5, every=10)


def resident() -> float:
    """The memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def watched(tape: Tape, keep: Callable[[int, Any, Pair], Values], seed: int, steps: int = 320) -> None:
    """Series in a loop written by hand that prints its memory; `keep` has the model and the batch after each step."""
    torch.manual_seed(seed)
    work = Learner(Meter(32), cosine(6e-3, steps, 10))

    def act(step: int) -> Values:
        given, wanted = own_scale(power(40))
        work.take(step, lambda: F.smooth_l1_loss(work.model(given), wanted))
        found = {"loss": work.loss, "lr": work.now} | keep(step, work.model, (given, wanted))
        return found | {"mem/rss_mb": resident()}

    drive(tape, steps, act)


@healthy("thirteenth", config={"cache_batches": 60, "lr": 6e-3, "batch_size": 40})
def healthy_meters_kept_for_a_while(tape: Tape) -> None:
    """A cache of the last sixty batches in full width fills, and then stays as large as it is."""
    cache: dict[int, torch.Tensor] = {}

    def keep(step: int, model: Any, pair: Pair) -> Values:
        cache[step % 60] = pair[0].repeat(1, 200)
        return {"cached": len(cache)}

    watched(tape, keep, 1347)


@fault("thirteenth", "memory_creep", config={"lr": 6e-3, "batch_size": 40, "val_batch_size": 40})
def meters_losses_kept_whole(tape: Tape) -> None:
    """After each step another batch is validated with gradients on, and its loss kept with all that led to it."""
    seen: list[torch.Tensor] = []

    def keep(step: int, model: Any, pair: Pair) -> Values:
        given, wanted = own_scale(power(40))
        seen.append(F.smooth_l1_loss(model(given), wanted))
        return {"val_loss": seen[-1]}

    watched(tape, keep, 1348)


def by_hand(
    tape: Tape, after: Callable[[Learner, int], Values], seed: int, rate: Rate, parts: int = 1, steps: int = 360
) -> None:
    """A regression in a loop and in names of its own; `after` is called with the learner after each step."""
    torch.manual_seed(seed)
    work = Learner(dense((9, 48, 48, 1), nn.SiLU), rate, clip=10.0)

    def loss() -> torch.Tensor:
        x, y = concrete(96)
        return F.mse_loss(work.model(x)[:, 0], y)

    def act(step: int) -> Values:
        begun = time.perf_counter()
        with tape.span("train.forward_backward"):
            work.take(step, loss, parts)
        size = torch.stack([weight.detach().norm() for weight in work.model.parameters()]).norm()
        found = {"mse": work.loss, "grad_norm": work.norm, "param_norm": size, "lr": work.now} | after(work, step)
        return found | {"it/s": 1 / (time.perf_counter() - begun)}

    drive(tape, steps, act)


@healthy("thirteenth", config={"accumulate": 4, "batch_size": 96, "lr": 1.5e-2, "warmup": 0})
def healthy_mixtures_early_at_the_floor(tape: Tape) -> None:
    """Four parts to a step, no warm-up: after half of the steps the loss is near the noise of what is measured."""
    by_hand(tape, lambda work, step: {}, 1350, cosine(1.5e-2, 360), 4)


@fault(
    "thirteenth",
    "weights_frozen plateau constant gradients_not_cleared",
    step=120,
    window=30,
    config={"batch_size": 96, "lr": 4e-3},
)
def mixtures_by_a_copy(tape: Tape) -> None:
    """At 120 the model is swapped for a copy of it, and the optimizer still has the weights of the old one."""

    def swap(work: Learner, step: int) -> Values:
        if step == 119:
            work.model = copy.deepcopy(work.model)
        return {}

    by_hand(tape, swap, 1351, lambda step: 4e-3)


@fault("thirteenth", "slow_span throughput_loss", config={"logger": "json", "dump_every": 1, "batch_size": 96})
def mixtures_history_written_whole(tape: Tape) -> None:
    """After each step the history of all steps, with that of each weight, is written anew from its begin."""
    history: list[dict[str, Any]] = []

    def dump(work: Learner, step: int) -> Values:
        with tape.span("train.log"):
            weights = {name: [float(w.mean()), float(w.std())] for name, w in work.model.state_dict().items()}
            history.append({"step": step, "loss": work.loss, "weights": weights})
            return {"log_mb": len(json.dumps(history, indent=1)) / 1e6}

    by_hand(tape, dump, 1349, cosine(4e-3, 360, 10))
