"""The twelfth set: tables and series in the logs of Lightning and of loops that people write themselves."""

import math
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.twelfth.tasks import (
    Change,
    F,
    Schedule,
    Training,
    Values,
    constant,
    cosine,
    evaluating,
    follow,
    nn,
    run_steps,
    stairs,
)
from benchmarks.zoo.real.tape import Tape

Rows = tuple[torch.Tensor, torch.Tensor]


def customers(count: int) -> Rows:
    """Ten properties of customers in units from cents to seconds of a month, and who leaves."""
    x = torch.randn(count, 10)
    odds = 1.6 * x[:, 0] * x[:, 1] + 1.5 * x[:, 2].abs() - 1.2 * x[:, 3] + x[:, 4] - 1.2
    middle, unit = torch.logspace(0, 5, 10), torch.logspace(-1, 5, 10)
    return x * unit + 3 * middle, (torch.rand(count) < torch.sigmoid(2 * odds)).float()


def churn(tape: Tape, seed: int, scaled: bool = True, epochs: int = 36) -> None:
    """Who leaves, once an epoch, with a learning rate in stairs."""
    torch.manual_seed(seed)
    (x, y), (held_x, held_y) = customers(3600), customers(2000)
    if scaled:
        mean, spread = x.mean(0), x.std(0)
        x, held_x = (x - mean) / spread, (held_x - mean) / spread
    model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=1e-4)
    rate = stairs(3e-3, 12)

    def act(epoch: int) -> Values:
        lr, total, norms = follow(optimizer, rate(epoch)), 0.0, 0.0
        parts = torch.randperm(len(x)).split(160)
        for rows in parts:
            loss = F.binary_cross_entropy_with_logits(model(x[rows])[:, 0], y[rows])
            optimizer.zero_grad()
            loss.backward()
            norms += float(nn.utils.clip_grad_norm_(model.parameters(), math.inf)) / len(parts)
            optimizer.step()
            total += loss.item() / len(parts)
        with tape.span("train.evaluate"), evaluating(model):
            scores = model(held_x)[:, 0]
        found: Values = {"epoch": epoch, "train_loss_epoch": total, "lr-Adam": lr, "grad_2.0_norm_total": norms}
        found["val_loss"] = F.binary_cross_entropy_with_logits(scores, held_y).item()
        found["val_acc"] = ((scores > 0) == (held_y > 0.5)).float().mean().item()
        return found

    run_steps(tape, epochs, act)


CHURN = {"optimizer": "Adam", "lr": 3e-3, "lr_scheduler": "StepLR", "step_size": 12, "gamma": 0.3, "batch_size": 160}


@healthy("twelfth", config=CHURN | {"max_epochs": 36})
def churn_rate_in_stairs(tape: Tape) -> None:
    """A table with a learning rate that falls in stairs, a value once an epoch."""
    churn(tape, 1101)


@fault(
    "twelfth",
    "not_learning plateau constant vanishing_gradients",
    config=CHURN | {"max_epochs": 36},
)
def churn_columns_in_their_own_units(tape: Tape) -> None:
    """The columns are not scaled: the largest saturate the first layer and the loss stays at that of guessing."""
    churn(tape, 1102, scaled=False)


def demand(count: int, length: int = 14) -> Rows:
    """Series with a weekly wave and noise, and the next value."""
    t = torch.arange(length + 1.0) + 7 * torch.rand(count, 1)
    size = 0.5 + torch.rand(count, 1)
    values = size * (2 * math.pi * t / 7).sin() + 0.4 * size * (2 * math.pi * t / 3.5).sin()
    values = values + 0.25 * torch.randn(count, length + 1)
    return values[:, :-1], values[:, -1]


class Recurrent(nn.Module):  # type: ignore[misc]
    """A recurrent network that says the next value."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.read, self.out = nn.GRU(1, width, batch_first=True), nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The next value."""
        _, last = self.read(x[..., None])
        return self.out(last[0])[:, 0]


def square_loss(model: Any, batch: Rows) -> torch.Tensor:
    """The mean of the squared errors."""
    return F.mse_loss(model(batch[0]), batch[1])


def forecast(
    tape: Tape,
    seed: int,
    change: Change | None = None,
    steps: int = 400,
    rate: Schedule | None = None,
    save_every: int = 40,
) -> None:
    """Demand in a loop written by hand, evaluated each fortieth step, with checkpoints."""
    torch.manual_seed(seed)
    held = demand(300)
    place = tempfile.TemporaryDirectory()
    history: list[dict[str, float]] = []

    def report(job: Training, step: int) -> Values:
        found: Values = {"loss": job.train_loss, "lr": job.lr, "grad_norm": job.grad_norm}
        if job.parts.get("history"):
            with torch.no_grad():
                guesses = job.model(job.batch[0])
            rows = zip(job.batch[1].tolist(), guesses.tolist(), strict=True)
            history.extend(
                {"step": step, "wanted": real, "guessed": guess, "error": guess - real} for real, guess in rows
            )
        if step % 40 == 39:
            found["val_loss"] = job.held_out(held)
        if step % save_every == save_every - 1:
            with tape.span("train.checkpoint.save"):
                stored = {"model": job.model.state_dict(), "optimizer": job.optimizer.state_dict(), "history": history}
                torch.save(stored, Path(place.name) / "last.pt")
        return found

    model = Recurrent()
    optimizer = torch.optim.Adam(model.parameters())
    schedule = rate or constant(5e-3)
    Training(tape, model, lambda: demand(48), square_loss, report, optimizer, schedule, clip=1.0).run(steps, change)
    place.cleanup()


@healthy("twelfth", config={"model": "gru", "lr": 5e-3, "batch_size": 48, "checkpoint_every": 40})
def forecast_at_its_floor_early(tape: Tape) -> None:
    """After some sixty steps nothing but the noise is left to explain; it is saved each fortieth step."""
    forecast(tape, 1111)


@fault(
    "twelfth",
    "checkpoint_growth slow_span periodic_stall throughput_loss",
    config={"model": "gru", "lr": 5e-3, "batch_size": 48, "checkpoint_every": 10},
)
def forecast_saves_all_it_ever_guessed(tape: Tape) -> None:
    """Each checkpoint has the guesses of all steps so far: the last takes as long as many steps."""

    def change(job: Training, step: int) -> None:
        job.parts["history"] = True

    forecast(tape, 1112, change, steps=400, save_every=10)


def claims(tape: Tape, seed: int, steps: int = 500) -> None:
    """What a claim will cost, with a tail of very dear ones, by a loss that squares the errors."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1), nn.Flatten(0))

    def draw(count: int = 64) -> Rows:
        x = torch.randn(count, 6)
        mean = 2 * x[:, 0] * x[:, 1] + 2 * x[:, 2] - (2 * x[:, 3]).sin()
        tail = torch.distributions.StudentT(2.5).sample((count,))
        return x, mean + 0.6 * tail

    held = draw(4000)

    def report(job: Training, step: int) -> Values:
        found: Values = {"train/mse": job.train_loss, "train/lr": job.lr, "train/grad_norm": job.grad_norm}
        if step % 50 == 49:
            found["valid/mse"] = job.held_out(held)
        return found

    optimizer = torch.optim.AdamW(model.parameters())
    Training(tape, model, draw, square_loss, report, optimizer, cosine(4e-3, steps, 10), clip=20.0).run(steps)


@healthy("twelfth", config={"objective": "mse", "lr": 4e-3, "batch_size": 64, "clip": 20.0})
def claims_with_dear_ones(tape: Tape) -> None:
    """A loss with a heavy tail: single batches cost many times the median."""
    claims(tape, 1121)
