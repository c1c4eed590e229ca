"""Digits and tables of the fourth set."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.zoo.real.case import fault
from benchmarks.zoo.real.sets.fourth.tasks import (
    Digits,
    Values,
    batches,
    convolutions,
    perceptron,
    plainly,
    table,
    trained,
    updated,
)
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn


@fault("fourth", "not_learning divergence absurd_loss exploding_gradients oscillation")
def rate_ten_times(tape: Tape) -> None:
    """Adam with a rate of 0.3: "my loss stays at 2.3"."""
    task = Digits()
    plainly(tape, task, task.adam(0.3))


@fault("fourth", "not_learning plateau absurd_loss")
def softmax_twice(tape: Tape) -> None:
    """A softmax layer before CrossEntropyLoss: "my loss does not go below 1.46"."""
    task = Digits(convolutions(nn.Softmax(1)))
    plainly(tape, task, task.adam(2e-3))


@fault("fourth", "not_learning overfit")
def labels_misaligned(tape: Tape) -> None:
    """The pictures are shuffled, the labels are not."""
    task = Digits()
    task.x = task.x[torch.randperm(len(task.x))]
    task.batches = batches(task.x, task.y)
    plainly(tape, task, task.adam(1e-3), steps=700)


@fault("fourth", "oscillation not_learning level_shift spike stuck_batch")
def never_shuffled(tape: Tape) -> None:
    """The data are sorted by class and the loader does not shuffle."""
    task = Digits()
    order = task.y.argsort(stable=True)
    task.batches = batches(task.x[order], task.y[order], shuffle=False)
    plainly(tape, task, task.sgd(0.02), steps=600)


@fault("fourth", "lr_zero lr_schedule plateau")
def scheduled_each_batch(tape: Tape) -> None:
    """ExponentialLR(gamma=0.9) is stepped with every batch instead of every epoch."""
    task = Digits()
    optimizer = task.sgd(0.05)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

    def train(step: int) -> Values:
        loss, right, _ = task.step(optimizer)
        schedule.step()
        return {"train_loss": loss, "train_acc": right, "lr-SGD": schedule.get_last_lr()[0]}

    trained(tape, 450, train, every=5, lr=0.05)


@fault("fourth", "not_learning plateau vanishing_gradients norm_growth divergence update_ratio constant")
def decay_far_too_high(tape: Tape) -> None:
    """AdamW with a weight decay of 50, taken over from another optimizer."""
    task = Digits()
    plainly(tape, task, task.adam(3e-3, weight_decay=50.0), weight_decay=50.0)


@fault(
    "fourth", "gradients_not_cleared exploding_gradients divergence gradient_shift oscillation absurd_loss not_learning"
)
def never_cleared(tape: Tape) -> None:
    """`zero_grad` is forgotten; the norm of the gradients is logged by hand."""
    task = Digits()
    optimizer = task.sgd(0.01)

    def train(step: int) -> Values:
        x, y = next(task.batches)
        loss = F.cross_entropy(task.model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.stack([each.grad.norm() for each in task.model.parameters() if each.grad is not None]).norm()
        optimizer.step()
        return {"loss": loss.detach(), "grad_norm": norm}

    trained(tape, 400, train, lr=0.01)


@fault("fourth", "generalization_gap overfit not_learning accuracy_drop absurd_loss divergence")
def held_out_not_normalised(tape: Tape) -> None:
    """The transform that normalises is applied to the training set only."""
    task = Digits()
    task.x = (task.x - 0.3) / 0.05
    task.batches = batches(task.x, task.y)
    plainly(tape, task, task.adam(1e-3), steps=600)


@fault("fourth", "level_shift accuracy_drop", step=440, window=60)
def held_out_replaced(tape: Tape) -> None:
    """The held-out set is exported again with other label numbers during training."""
    task = Digits()
    optimizer = task.adam(1e-3)
    epoch = itertools.count()

    def train(step: int) -> Values:
        loss, right, _ = task.step(optimizer)
        return {"loss": loss, "accuracy": right}

    def evaluate() -> Values:
        labels = task.held_y if next(epoch) < 9 else (task.held_y + (task.held_y > 4).long()) % 10
        loss, right = task.evaluated(y=labels)
        return {"val_loss": loss, "val_accuracy": right}

    trained(tape, 800, train, evaluate)


@fault("fourth", "stuck_batch too_good overfit")
def first_batch_only(tape: Tape) -> None:
    """`next(iter(loader))` in the loop, without shuffling: the same 32 pictures for ever."""
    task = Digits()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(task.x, task.y), batch_size=32)

    def same() -> Iterator[Any]:
        while True:
            yield next(iter(loader))

    task.batches = same()
    plainly(tape, task, task.adam(1e-3), steps=500, watched=True)


@fault("fourth", "input_bound data_stall slow_span gpu_idle")
def slow_samples(tape: Tape) -> None:
    """Each sample is decoded in the main process, which takes longer than the training."""
    task = Digits()

    class Decoded(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(task.x)

        def __getitem__(self, at: int) -> Any:
            time.sleep(0.002)
            return task.x[at], task.y[at]

    def forever() -> Iterator[Any]:
        while True:
            yield from torch.utils.data.DataLoader(Decoded(), batch_size=16, shuffle=True, drop_last=True)

    task.batches = forever()
    plainly(tape, task, task.adam(1e-3), steps=200, watched=True)


@fault("fourth", "memory_creep")
def losses_kept(tape: Tape) -> None:
    """Everything is kept in a list for a plot at the end; the user logs the memory of the process."""
    task = Digits(perceptron((64, 64, 64, 10)))
    optimizer = task.adam(1e-3)
    kept: list[Any] = []

    def train(step: int) -> Values:
        loss, _, _ = task.step(optimizer)
        kept.append(np.full(150_000, step, dtype=np.float64))
        return {"loss": loss, "process/rss_mb": _resident_mb()}

    trained(tape, 400, train)


def _resident_mb() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 1e6


@fault("fourth", "not_learning plateau constant")
def targets_broadcast(tape: Tape) -> None:
    """Predictions of shape (32, 1) against targets of shape (32,): every prediction against every target."""
    torch.manual_seed(42)
    x, y = table()
    model = perceptron((8, 64, 64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    source = batches(x[:1000], y[:1000])

    def train(step: int) -> Values:
        inputs, targets = next(source)
        loss = (model(inputs) - targets).square().mean()
        updated(loss, optimizer)
        return {"train_loss": loss.detach()}

    def evaluate() -> Values:
        with torch.no_grad():
            return {"val_loss": (model(x[1000:]) - y[1000:]).square().mean()}

    trained(tape, 700, train, evaluate, lr=2e-3)


@fault("fourth", "not_finite divergence exploding_gradients absurd_loss")
def inputs_not_scaled(tape: Tape) -> None:
    """A column in thousands, and targets in dollars: SGD diverges at once."""
    torch.manual_seed(43)
    x, y = table()
    x, y = x * torch.tensor([1000.0, 1, 50, 1, 1, 1, 300, 1]), y * 1e5
    model = perceptron((8, 64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    source = batches(x, y)

    def train(step: int) -> Values:
        inputs, targets = next(source)
        loss = F.mse_loss(model(inputs).squeeze(1), targets)
        updated(loss, optimizer)
        return {"loss": loss.detach(), "mae": loss.detach().sqrt()}

    trained(tape, 150, train, lr=0.01)


@fault("fourth", "scaler_collapse skipped_steps not_finite counted_not_finite", step=200)
def scale_collapses(tape: Tape) -> None:
    """Half precision: from step 200 on the pictures come in 0..65535, gradients overflow and every step is skipped."""
    task = Digits(perceptron((64, 64, 64, 10)))
    optimizer = task.sgd(0.02)
    scale, good, skipped = 2.0**14, 0, 0

    def train(step: int) -> Values:
        nonlocal scale, good, skipped
        x, y = next(task.batches)
        loss = F.cross_entropy(task.model(x * (65535.0 if step >= 200 else 1.0)), y)
        optimizer.zero_grad()
        (loss * scale).backward()  # type: ignore[no-untyped-call]
        gradients = [each.grad for each in task.model.parameters() if each.grad is not None]
        if any(not each.half().isfinite().all() for each in gradients):
            scale, good, skipped = scale / 2, 0, skipped + 1
        else:
            for each in gradients:
                each.div_(scale)
            optimizer.step()
            good += 1
            scale = scale * 2 if good % 100 == 0 else scale
        return {"train/loss": loss.detach(), "train/loss_scale": scale, "train/skipped_steps": skipped}

    trained(tape, 400, train, precision="16-mixed")
