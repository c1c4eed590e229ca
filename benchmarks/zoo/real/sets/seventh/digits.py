"""Digits and prices of the seventh set."""

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.seventh.tasks import (
    F,
    Pair,
    Values,
    dense,
    digits,
    drive,
    learn,
    nn,
    prices,
    reader,
    set_rate,
    share_right,
)
from benchmarks.zoo.real.tape import Tape

JUMP = "level_shift spike divergence accuracy_drop"
Change = Callable[[int, torch.Tensor, torch.Tensor], Pair]
Rate = Callable[[int], float]


def as_given(step: int, pictures: torch.Tensor, labels: torch.Tensor) -> Pair:
    """The batch unchanged."""
    return pictures, labels


def warm_cosine(steps: int, peak: float, warm: int = 30) -> Rate:
    """A rate that rises to its peak and falls along a cosine."""

    def rate(step: int) -> float:
        if step < warm:
            return peak * (step + 1) / warm
        return peak * 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))

    return rate


def read(
    tape: Tape,
    steps: int = 400,
    rate: Rate | None = None,
    change: Change = as_given,
    seen: Change = as_given,
    batch: int = 32,
    every: int = 1,
    smooth: float = 0.0,
    before: Callable[[int, Any], None] = lambda step, model: None,
    few: int = 3000,
) -> None:
    """Read digits with momentum; all of 400 others are looked at every 25 steps."""
    torch.manual_seed(11)
    rate = rate or warm_cosine(steps, 0.1)
    model = reader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    known, others = digits(few), digits(400)
    order = torch.empty(0, dtype=torch.long)

    def act(step: int) -> Values | None:
        nonlocal order
        before(step, model)
        if len(order) < batch:
            order = torch.randperm(few)
        rows, order = order[:batch], order[batch:]
        pictures, labels = change(step, known[0][rows], known[1][rows])
        now = set_rate(optimizer, rate(step))
        scores = model(pictures)
        loss = F.cross_entropy(scores, labels, label_smoothing=smooth)
        norm = learn(optimizer, loss)
        values = {"train/loss": loss, "train/grad_norm": norm, "train/lr": now} if step % every == 0 else {}
        if step % 25 == 24:
            with torch.no_grad():
                given, wanted = seen(step, *others)
                scores = model(given)
            values |= {"eval/loss": F.cross_entropy(scores, wanted), "eval/accuracy": share_right(scores, wanted)}
        return values

    drive(tape, steps, act)


@healthy("seventh")
def healthy_digits_cosine(tape: Tape) -> None:
    """A warm-up and a cosine, with noise and shifts in the data."""
    read(tape)


@healthy("seventh")
def healthy_digits_milestones(tape: Tape) -> None:
    """The rate is divided by ten at two milestones, at each of which the loss falls."""
    read(tape, rate=lambda step: 0.06 * 0.1 ** ((step >= 220) + (step >= 340)), batch=24, few=6000)


@healthy("seventh")
def healthy_digits_warm_restarts(tape: Tape) -> None:
    """The cosine starts again every 150 steps."""
    read(tape, rate=lambda step: 0.002 + 0.1 * 0.5 * (1 + math.cos(math.pi * (step % 130) / 130)), few=6000)


@healthy("seventh")
def healthy_digits_four_of_ten(tape: Tape) -> None:
    """Batches of four with smooth labels, and every tenth step is logged."""
    read(tape, steps=1000, rate=lambda step: 0.012, batch=4, every=10, smooth=0.1, few=6000)


@fault("seventh", JUMP, step=310)
def digits_one_based_shard(tape: Tape) -> None:
    """Labels of the shards from the second machine count from one; those of the first count from zero."""
    read(tape, change=lambda step, x, y: (x, (y + 1) % 10 if step >= 310 else y))


@fault("seventh", JUMP + " lr_schedule exploding_gradients not_finite", step=260, window=30)
def digits_rate_restart(tape: Tape) -> None:
    """After a preemption the scheduler begins anew without warm-up, at the rate for eight times as many processors."""
    usual = warm_cosine(400, 0.1)
    read(tape, rate=lambda step: usual(step) if step < 260 else 0.8 * (1 - (step - 260) / 400))


@fault("seventh", JUMP + " generalization_gap overfit overtraining", step=274, window=30)
def digits_evaluated_inverted(tape: Tape) -> None:
    """A new version of the loader for evaluation gives dark digits on light ground; training is fine."""
    read(tape, seen=lambda step, x, y: (1 - x if step >= 265 else x, y))


@fault("seventh", "gradient_shift weights_frozen plateau level_shift unused_parameters", step=150, window=40)
def digits_frozen_after_evaluation(tape: Tape) -> None:
    """Drawing features freezes the trunk by `requires_grad`, and does not undo it: only the head learns."""

    def before(step: int, model: Any) -> None:
        if step == 150:
            for part in model[:-1]:
                part.requires_grad_(False)

    read(tape, before=before, rate=lambda step: 0.04, few=6000)


@fault("seventh", "not_learning plateau vanishing_gradients weights_frozen")
def digits_rate_mistyped(tape: Tape) -> None:
    """The rate is read from a file as 1e-6 where 1e-1 was meant."""
    read(tape, rate=lambda step: 1e-6)


@fault("seventh", "not_learning oscillation plateau")
def digits_not_shuffled(tape: Tape) -> None:
    """The folder is read in the order of its classes: it learns which one came last, and nothing else."""
    torch.manual_seed(12)
    pictures, labels = digits(1600)
    order = labels.argsort()

    def change(step: int, x: torch.Tensor, y: torch.Tensor) -> Pair:
        rows = order[(torch.arange(32) + 32 * step) % 1600]
        return pictures[rows], labels[rows]

    read(tape, change=change, rate=lambda step: 0.02)


@fault("seventh", "overfit generalization_gap overtraining not_learning plateau")
def digits_labels_of_others(tape: Tape) -> None:
    """The table of labels was joined by row number after a filter: all are those of other pictures, learnt by heart."""
    torch.manual_seed(13)
    moved = torch.randperm(300)
    pictures, labels = digits(300)
    mixed = labels[moved]

    def change(step: int, x: torch.Tensor, y: torch.Tensor) -> Pair:
        rows = torch.randint(0, 300, (len(x),))
        return pictures[rows], mixed[rows]

    read(tape, change=change, rate=lambda step: 0.04, steps=500, every=2)


def appraise(tape: Tape, epochs: int, rate: float) -> None:
    """Appraise houses, logged once an epoch as Keras does."""
    torch.manual_seed(14)
    model = dense((10, 32, 16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.8)
    known, others = prices(1500), prices(500)

    def act(epoch: int) -> Values:
        total, away = 0.0, 0.0
        for rows in torch.randperm(1500).split(50):
            error = model(known[0][rows])[:, 0] - known[1][rows]
            learn(optimizer, (error**2).mean())
            error = error.detach()
            total, away = total + float((error**2).mean()) / 30, away + float(error.abs().mean()) / 30
        with torch.no_grad():
            error = model(others[0])[:, 0] - others[1]
        return {"loss": total, "mae": away, "val_loss": (error**2).mean(), "val_mae": error.abs().mean()}

    drive(tape, epochs, act)


@healthy("seventh")
def healthy_prices_by_epoch(tape: Tape) -> None:
    """Learnt early and then level; errors have heavy tails."""
    appraise(tape, epochs=50, rate=0.004)


@fault("seventh", "not_learning plateau oscillation divergence")
def prices_rate_too_high(tape: Tape) -> None:
    """The rate of a linear model on a network with momentum: it is hardly better than the mean, and jumps about."""
    appraise(tape, epochs=40, rate=0.5)


def step_prices(tape: Tape, clear: bool = True, steps: int = 500, deep: bool = False) -> None:
    """Appraise houses by Huber's loss with a triangular rate; gradients may not be cleared."""
    torch.manual_seed(15)
    model = dense((10, *[32] * 9, 1), nn.Sigmoid) if deep else dense((10, 32, 32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

    def act(step: int) -> Values:
        given, wanted = prices(24, 2.0)
        rate = set_rate(optimizer, 0.01 + 0.05 * (1 - abs(step % 120 - 60) / 60))
        loss = F.huber_loss(model(given)[:, 0], wanted)
        if clear:
            norm = learn(optimizer, loss)
        else:
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), math.inf)
            optimizer.step()
        values = {"train_loss": loss, "lr": rate, "grad_norm": norm}
        return values | ({"grad_norm/layers.0": model[0].weight.grad.norm()} if deep else {})

    drive(tape, steps, act)


@healthy("seventh")
def healthy_prices_cyclic(tape: Tape) -> None:
    """A triangular rate, small batches, and prices of which some are far off."""
    step_prices(tape)


@fault(
    "seventh", "gradients_not_cleared oscillation norm_growth divergence exploding_gradients not_learning level_shift"
)
def prices_never_cleared(tape: Tape) -> None:
    """`zero_grad()` is called on another model than the one that is trained: gradients add up for ever."""
    step_prices(tape, clear=False)


@fault("seventh", "vanishing_gradients not_learning plateau")
def prices_nine_sigmoids(tape: Tape) -> None:
    """Nine layers with sigmoids and no normalisation: nothing arrives at the first, and only the mean is learnt."""
    step_prices(tape, deep=True, steps=400)
