"""The fourteenth set: loads of a power grid that are forecast, clicks that are predicted, and what is paid out."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.fourteenth.schedules import Rate, steady
from benchmarks.zoo.real.sets.fourteenth.tasks import Fit, Pair, Values, dense, drive, evaluated
from benchmarks.zoo.real.tape import Tape


def loads(count: int) -> Pair:
    """Two days of hourly loads of a place, scaled, and the twelve hours that follow."""
    hour = torch.arange(60.0) + torch.randint(0, 168, (count, 1))
    daily = (1 + 0.5 * torch.rand(count, 1)) * (hour * 2 * math.pi / 24).sin()
    evening = 0.6 * torch.rand(count, 1) * (hour * 2 * math.pi / 12 + 1).cos()
    weekly = 0.5 * (hour * 2 * math.pi / 168).cos()
    heat = torch.randn(count, 60).cumsum(1) * 0.05
    found = daily + evening + weekly + heat + 0.12 * torch.randn(count, 60)
    return found[:, :48], found[:, 48:]


def one_cycle(steps: int, peak: float) -> Rate:
    """Up to the peak in a third of the steps, and down to almost nothing."""

    def rate(step: int) -> float:
        rises = 0.3 * steps
        if step < rises:
            return peak * (0.04 + 0.96 * (1 - math.cos(math.pi * step / rises)) / 2)
        return peak * (1e-4 + (1 + math.cos(math.pi * (step - rises) / (steps - rises))) / 2)

    return rate


def forecast(tape: Tape, seed: int, rate: Rate, steps: int = 450, size: int = 32) -> None:
    """Loads by a residual network on the scaled past, in the names of neuralforecast, validated every 50 steps."""
    torch.manual_seed(seed)
    held = loads(300)
    model = nn.ModuleList((dense(48, 64, 64, 60), dense(48, 64, 64, 60)))

    def loss(model: Any, pair: Any) -> torch.Tensor:
        past, wanted = pair
        mean = past.mean(1, keepdim=True)
        left, ahead = past - mean, mean.expand(-1, 12)
        for block in model:
            back, more = block(left).split((48, 12), 1)
            left, ahead = left - back, ahead + more
        return (ahead - wanted).abs().mean()

    def seen(fit: Fit) -> Values:
        return {"valid_loss": fit.seen(held), "train_loss_epoch": fit.mean(50)}

    names = ("train_loss_step", "lr-Adam", "grad_norm")
    Fit(model, lambda: loads(size), loss, steps, rate, names, evaluate=seen).run(tape)


NBEATS = {"model": "NBEATS", "loss": "MAE", "max_steps": 450, "scheduler": "OneCycleLR", "max_lr": 0.012, "h": 12}


@healthy("fourteenth", config=NBEATS)
def healthy_loads(tape: Tape) -> None:
    """One cycle of the rate over all steps."""
    forecast(tape, 1601, one_cycle(450, 0.012))


@healthy("fourteenth", config=NBEATS | {"scheduler": "StepLR", "batch_size": 4, "learning_rate": 4e-3})
def healthy_loads_four_at_a_time(tape: Tape) -> None:
    """Batches of four places, and a rate that halves every hundred steps: the loss of each step is noisy."""
    forecast(tape, 1603, lambda step: 4e-3 * 0.5 ** (step // 100), size=4)


@fault("fourteenth", "lr_schedule level_shift spike", step=330, window=25, config=NBEATS | {"total_steps": 450})
def loads_cycle_begun_again(tape: Tape) -> None:
    """At 330 the state of the schedule is lost: the rate jumps to a multiple of its peak, and the loss follows."""
    once = one_cycle(450, 0.012)
    forecast(tape, 1602, lambda step: once(step) if step < 330 else 4 * once(step - 200))


def clicks(count: int) -> Pair:
    """Who sees what where, as numbers of users, items, places and hours, and whether it was clicked."""
    rows = torch.stack([torch.randint(0, most, (count,)) for most in (200, 120, 6, 24)], 1)
    made = torch.Generator().manual_seed(1610)
    users, items = torch.randn(200, 4, generator=made), torch.randn(120, 4, generator=made)
    place, hour = torch.randn(6, generator=made), (torch.arange(24.0) * math.pi / 12).sin()
    score = 0.9 * (users[rows[:, 0]] * items[rows[:, 1]]).sum(1) + 0.8 * place[rows[:, 2]] + 0.5 * hour[rows[:, 3]]
    return rows, (torch.rand(count) < torch.sigmoid(score - 1.2)).float()


class Ranker(nn.Module):  # type: ignore[misc]
    """A factorization machine and a network on the same vectors, after DeepFM."""

    def __init__(self, leaks: bool, width: int = 8) -> None:
        super().__init__()
        self.starts = torch.tensor([0, 200, 320, 326])
        self.vectors, self.ones = nn.Embedding(350, width), nn.Embedding(350, 1)
        nn.init.normal_(self.vectors.weight, 0, 0.05)
        nn.init.zeros_(self.ones.weight)
        self.deep = dense(4 * width + int(leaks), 32, 1)
        self.drop = nn.Dropout(0.2)

    def forward(self, rows: torch.Tensor, more: torch.Tensor | None) -> torch.Tensor:
        """The score of each row."""
        found = self.vectors(rows + self.starts)
        pairs = (found.sum(1).square() - found.square().sum(1)).sum(1) / 2
        deep = self.drop(found.flatten(1))
        deep = deep if more is None else torch.cat((deep, more[:, None]), 1)
        out: torch.Tensor = self.ones(rows + self.starts).sum((1, 2)) + pairs + self.deep(deep)[:, 0]
        return out


def area(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """The area under the curve."""
    rank = scores.argsort().argsort().float() + 1
    ones = float(labels.sum())
    return (float(rank[labels > 0].sum()) - ones * (ones + 1) / 2) / (ones * (len(labels) - ones))


def ranked(tape: Tape, seed: int, epochs: int, leaks: bool = False) -> None:
    """Clicks, another day of them in each epoch, in the names of Keras."""
    torch.manual_seed(seed)
    vx, vy = clicks(2500)
    model = Ranker(leaks)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-4)

    def dwell(labels: torch.Tensor) -> torch.Tensor | None:
        """The seconds on the page that was opened: 0 for those who did not click."""
        return labels * (1 + torch.rand(len(labels))) if leaks else None

    def act(epoch: int) -> Values:
        x, y = clicks(9000)
        total, scores = 0.0, torch.zeros(len(y))
        for rows in torch.randperm(len(y)).split(200):
            out = model(x[rows], dwell(y[rows]))
            loss = F.binary_cross_entropy_with_logits(out, y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows) / len(y)
            scores[rows] = out.detach()
        with evaluated(model):
            seen = model(vx, dwell(vy))
            val = F.binary_cross_entropy_with_logits(seen, vy).item()
        return {
            "loss": total,
            "auc": area(scores, y),
            "val_loss": val,
            "val_auc": area(seen, vy),
            "learning_rate": 3e-3,
        }

    drive(tape, epochs, act)


CTR = {"model": "DeepFM", "optimizer": "adam", "learning_rate": 3e-3, "batch_size": 200, "embedding_dim": 8}


@healthy("fourteenth", config=CTR | {"epochs": 18, "shuffle": False})
def healthy_clicks(tape: Tape) -> None:
    """Clicks that no one can predict well."""
    ranked(tape, 1611, 18)


@fault("fourteenth", "too_good", config=CTR | {"epochs": 18, "dense_features": ["dwell_time"]})
def clicks_known_from_what_followed(tape: Tape) -> None:
    """The time on the page is a column: only who clicked has one, and each click is known from it."""
    ranked(tape, 1612, 18, leaks=True)


@healthy(
    "fourteenth", config={"objective": "tweedie-like", "steps": 300, "lr": 2e-3, "batch_size": 48, "precision": 32}
)
def healthy_payouts(tape: Tape) -> None:
    """What is paid for damages: most batches are alike, and one with a great damage has several times the loss."""
    torch.manual_seed(1621)
    weight = torch.randn(10) * 0.4

    def claims(count: int) -> Pair:
        x = torch.randn(count, 10)
        mean = (x @ weight + 0.4 * x[:, 0] * x[:, 1]).clamp(-2, 2)
        tail = torch.distributions.StudentT(3.0).sample((count,))
        return x, mean + 0.5 * tail

    held = claims(600)

    def loss(model: Any, pair: Any) -> torch.Tensor:
        return F.mse_loss(model(pair[0])[:, 0], pair[1])

    def seen(fit: Fit) -> Values:
        with evaluated(fit.model):
            return {"eval/mae": (fit.model(held[0])[:, 0] - held[1]).abs().mean()}

    names = ("train/loss", "train/lr", "train/grad_norm")
    Fit(dense(10, 48, 48, 1), lambda: claims(48), loss, 300, steady(2e-3), names, evaluate=seen).run(tape)
