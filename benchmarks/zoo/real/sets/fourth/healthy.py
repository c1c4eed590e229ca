"""Of the fourth set: digits and tables that are learned as they should be."""

import torch

from benchmarks.zoo.real.case import healthy
from benchmarks.zoo.real.journal_tapes import user_run
from benchmarks.zoo.real.sets.fourth.tasks import Digits, Values, batches, perceptron, plainly, table, trained, updated
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn


@healthy("fourth")
def healthy_batch_of_four(tape: Tape) -> None:
    """Four pictures in a batch: the loss is mostly noise."""
    task = Digits(perceptron((64, 64, 64, 10)), size=4)
    plainly(tape, task, task.sgd(0.003), steps=900)


@healthy("fourth")
def healthy_cyclic(tape: Tape) -> None:
    """A triangular schedule, logged every second step."""
    task = Digits(perceptron((64, 64, 64, 10), norm=True))
    optimizer = task.sgd(0.001)
    schedule = torch.optim.lr_scheduler.CyclicLR(optimizer, 0.002, 0.08, step_size_up=66)

    def train(step: int) -> Values:
        loss, right, _ = task.step(optimizer)
        schedule.step()
        return {"train/loss": loss, "train/accuracy": right, "lr": schedule.get_last_lr()[0]}

    trained(tape, 800, train, every=2, scheduler="cyclic")


@healthy("fourth")
def healthy_stopped_early(tape: Tape) -> None:
    """Logged once an epoch with the names of Keras, and stopped after 4 epochs without a better held-out loss."""
    task = Digits(nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Dropout(0.3), nn.Linear(48, 10)))
    optimizer = task.adam(3e-3)
    best, waited = 1e9, 0
    with user_run(tape, patience=4, epochs=30) as run:
        for epoch in range(30):
            seen = [task.step(optimizer) for _ in range(43)]
            loss, right = task.evaluated()
            values = {"loss": torch.stack([each[0] for each in seen]).mean()}
            values["accuracy"] = torch.stack([each[1] for each in seen]).mean()
            run.log({**values, "val_loss": loss, "val_accuracy": right}, step=epoch)
            best, waited = (loss, 0) if loss < best - 1e-4 else (best, waited + 1)
            if waited == 4:
                break


@healthy("fourth")
def healthy_rate_on_plateau(tape: Tape) -> None:
    """ReduceLROnPlateau, with a regression of noisy targets and the Huber loss."""
    torch.manual_seed(44)
    x, y = table()
    y = y + 0.5 * torch.randn(len(y))
    model = perceptron((8, 32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2, factor=0.3, min_lr=1e-5)
    source = batches(x[:1000], y[:1000], size=64)

    def train(step: int) -> Values:
        inputs, targets = next(source)
        loss = F.huber_loss(model(inputs).squeeze(1), targets)
        updated(loss, optimizer)
        return {"train/huber": loss.detach(), "train/loss": loss.detach(), "lr": optimizer.param_groups[0]["lr"]}

    def evaluate() -> Values:
        with torch.no_grad():
            loss = F.huber_loss(model(x[1000:]).squeeze(1), y[1000:]).item()
        schedule.step(loss)
        return {"val/loss": loss}

    trained(tape, 500, train, evaluate, evaluate_every=15)


@healthy("fourth")
def healthy_scaled(tape: Tape) -> None:
    """Half precision with a loss scale that doubles, overflows once in a while, and halves."""
    task = Digits(perceptron((64, 64, 64, 10)))
    optimizer = task.sgd(0.02)
    scale, good, skipped = 2.0**16, 0, 0

    def train(step: int) -> Values:
        nonlocal scale, good, skipped
        x, y = next(task.batches)
        loss = F.cross_entropy(task.model(x), y)
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
            scale = scale * 2 if good % 60 == 0 else scale
        return {"train/loss": loss.detach(), "train/loss_scale": scale, "train/skipped_steps": skipped}

    trained(tape, 500, train, precision="16-mixed")


@healthy("fourth")
def healthy_accumulated(tape: Tape) -> None:
    """Gradients of four small batches are added before each update; clipped; `instrument()`."""
    task = Digits(perceptron((64, 64, 64, 10)), size=8)
    optimizer = task.adam(2e-3)

    def train(step: int) -> Values:
        optimizer.zero_grad()
        losses = []
        for _ in range(4):
            x, y = next(task.batches)
            loss = F.cross_entropy(task.model(x), y) / 4
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        norm = nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
        optimizer.step()
        return {"loss": torch.stack(losses).sum(), "grad_norm": norm}

    trained(tape, 300, train, watched=True, gradient_accumulation_steps=4, max_grad_norm=1.0)


@healthy("fourth")
def healthy_averaged_weights(tape: Tape) -> None:
    """A moving average of the weights is evaluated beside the weights."""
    task = Digits(perceptron((64, 64, 64, 10)))
    optimizer = task.sgd(0.02)
    average = torch.optim.swa_utils.AveragedModel(
        task.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98)
    )

    def train(step: int) -> Values:
        loss, right, _ = task.step(optimizer)
        average.update_parameters(task.model)
        return {"train/loss": loss, "train/acc": right}

    def evaluate() -> Values:
        loss, right = task.evaluated()
        with torch.no_grad():
            scores = average(task.held_x)
        return {"val/loss": loss, "val/acc": right, "val/ema_loss": F.cross_entropy(scores, task.held_y).item()}

    trained(tape, 500, train, evaluate)
