"""The seventh set's series: demand by the hour, curves that are freed of noise, and what takes too long."""

import io
import math
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.seventh.digits import JUMP
from benchmarks.zoo.real.sets.seventh.tasks import (
    F,
    Forecaster,
    Pair,
    Values,
    demand,
    dense,
    drive,
    learn,
    nn,
    set_rate,
)
from benchmarks.zoo.real.tape import Tape


def scaled(hours: torch.Tensor) -> torch.Tensor:
    """Logarithms of counts, near zero."""
    return (hours + 1).log() - 3


def forecast(
    tape: Tape,
    steps: int = 500,
    change: Callable[[int, torch.Tensor, torch.Tensor], Pair] = lambda step, hours, after: (hours, after),
    clip: Callable[[int], float] = lambda step: 1.0,
    summed: bool = False,
) -> None:
    """Forecast the demand of the next hour, with gradients that are clipped; the loss may be a sum over the batch."""
    torch.manual_seed(21)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    if summed:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    others = demand(200)

    def act(step: int) -> Values:
        hours, after = change(step, *demand(16))
        loss = F.mse_loss(model(scaled(hours)), scaled(after), reduction="sum" if summed else "mean")
        values = {"train_loss": loss, "grad_norm": learn(optimizer, loss, clip(step))}
        if step % 50 == 49:
            with torch.no_grad():
                values["val_loss"] = F.mse_loss(model(scaled(others[0])), scaled(others[1]))
        return values

    drive(tape, steps, act)


@fault("seventh", "not_finite counted_not_finite divergence", step=333, window=5)
def demand_log_of_missing(tape: Tape) -> None:
    """A meter that was read as -1 for "missing" comes in: the logarithm of zero, and all weights are lost."""

    def change(step: int, hours: torch.Tensor, after: torch.Tensor) -> Pair:
        if step >= 333:
            hours[torch.rand(hours.shape) < 0.01] = -1.0
        return hours, after

    forecast(tape, change=change, steps=400)


@fault("seventh", JUMP + " exploding_gradients gradient_shift bad_resume not_finite", step=240, window=40)
def demand_clipping_lost(tape: Tape) -> None:
    """After a restart the plain loop is used, which does not read the setting of clipping that all steps relied on."""
    forecast(tape, clip=lambda step: 1.0 if step < 240 else math.inf, summed=True, steps=400)


def curves(count: int) -> Pair:
    """Curves of 32 points with noise, and the same without it."""
    at = torch.linspace(0, 1, 32)
    turns, phase, height = 1 + 3 * torch.rand(count, 1), torch.rand(count, 1), 0.5 + torch.rand(count, 1)
    clean = height * (2 * math.pi * (turns * at + phase)).sin()
    return clean + 0.4 * torch.randn(count, 32), clean


def denoise(tape: Tape, before: Callable[[int, Any], float | None] | None = None, lost: int = 9999) -> None:
    """Free curves of noise; the share of hidden units that no row of the batch lights is logged."""
    torch.manual_seed(22)
    model = dense((32, 64, 24, 64, 32))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def act(step: int) -> Values:
        if step == lost:
            optimizer.state.clear()
        given, wanted = curves(32)
        set_rate(optimizer, (before(step, model) if before else None) or 2e-3)
        inner = model[:6](given)
        loss = F.mse_loss(model[6:](inner), wanted)
        values = {"loss/train": loss, "grads/global_norm": learn(optimizer, loss)}
        return values | {"units/dead_fraction": (inner <= 0).all(0).float().mean()}

    drive(tape, 450, act)


@healthy("seventh")
def healthy_denoising(tape: Tape) -> None:
    """A few units are dead from the start, as is usual."""
    denoise(tape)


@fault("seventh", JUMP + " bad_resume exploding_gradients gradient_shift absurd_loss", step=300)
def denoising_layer_damaged(tape: Tape) -> None:
    """A bit of the exponent was flipped in a layer when the sharded checkpoint was put together after a restart."""

    def before(step: int, model: Any) -> float | None:
        if step == 300:
            with torch.no_grad():
                model[4].weight[5] *= 64
        return None

    denoise(tape, before=before)


@fault("seventh", JUMP + " bad_resume gradient_shift exploding_gradients", step=320)
def denoising_optimizer_lost(tape: Tape) -> None:
    """Weights alone were saved: Adam begins from nothing after a restart, at a rate that had fallen to a tenth."""
    denoise(tape, lambda step, model: 8e-3 * 0.1 ** (step / 320) if step < 320 else 8e-3, lost=320)


@fault("seventh", "dead_units " + JUMP + " plateau gradient_shift exploding_gradients absurd_loss", step=250)
def denoising_units_die(tape: Tape) -> None:
    """A callback that finds the best rate is left on and tries 1.0 for four steps: most units are dead after that."""
    denoise(tape, before=lambda step, model: 1.0 if 250 <= step < 254 else None)


@fault("seventh", "throughput_loss slow_span memory_creep")
def demand_never_detached(tape: Tape) -> None:
    """The state of a fixed recurrent layer is carried on without `detach()`: each backward pass goes to the start."""
    torch.manual_seed(23)
    cell, head = nn.GRUCell(4, 8), nn.Linear(8, 1)
    optimizer = torch.optim.Adam(head.parameters(), lr=3e-3)
    state = torch.zeros(8, 8)

    def act(step: int) -> Values | None:
        nonlocal state
        given = torch.randn(8, 4)
        with tape.span("forward"):
            state = cell(given, state)
            loss = F.mse_loss(head(state)[:, 0], given.sum(1))
        with tape.span("backward"):
            optimizer.zero_grad()
            loss.backward(retain_graph=True)
            optimizer.step()
        return {"loss": loss} if step % 5 == 0 else None

    drive(tape, 300, act)


def loaded(tape: Tape, wait: Callable[[int], float], steps: int = 300) -> None:
    """Forecast with spans for loading, computing and saving; batches come from a disk that takes a while."""
    torch.manual_seed(24)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)

    def act(step: int) -> Values | None:
        with tape.span("data"):
            time.sleep(wait(step))
            hours, after = demand(16)
        with tape.span("compute"):
            loss = F.mse_loss(model(scaled(hours)), scaled(after))
            learn(optimizer, loss, 1.0)
        if step % 15 == 14:
            with tape.span("checkpoint"):
                torch.save([model.state_dict(), optimizer.state_dict()], io.BytesIO())
        return {"train/loss": loss} if step % 4 == 0 else None

    drive(tape, steps, act)


@healthy("seventh")
def healthy_demand_with_checkpoints(tape: Tape) -> None:
    """Every fifteenth step saves a checkpoint and takes longer."""
    loaded(tape, lambda step: 0.004)


@fault("seventh", "data_stall throughput_loss slow_span input_bound", step=180, window=25)
def demand_cache_full(tape: Tape) -> None:
    """The local cache is full: each batch is read from the network disk from now on, and takes four times as long."""
    loaded(tape, lambda step: 0.006 if step < 180 else 0.03)


@fault("seventh", "data_stall slow_span", step=200, window=5)
def demand_worker_restarts(tape: Tape) -> None:
    """A worker of the loader is killed for its memory and started again: one step waits two seconds for its batch."""
    loaded(tape, lambda step: 2.0 if step == 200 else 0.004)
