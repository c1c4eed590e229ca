"""Tables, series and graphs of the sixth set, and trainings that lose their time or memory."""

import math
import time
from pathlib import Path

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.sixth.tasks import F, Values, convolutions, descend, fit, layers, nn, normalised, stripes
from benchmarks.zoo.real.tape import Tape


def ranked(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The share of pairs of which the right one has the higher score (AUC)."""
    apart = scores[labels == 1][:, None] - scores[labels == 0][None]
    return (apart > 0).float().mean()


def recommend(tape: Tape, leak: bool = False) -> None:
    """Clicks of 120 users on 80 items; features may count the click that is to be predicted."""
    torch.manual_seed(51)
    users, items = torch.randn(120, 4), torch.randn(80, 4)
    own, wide = nn.Embedding(120, 6), nn.Embedding(80, 6)
    tower = layers(14, 32, 1)
    weights = [each for part in (own, wide, tower) for each in part.parameters()]
    with torch.no_grad():
        for each in (own.weight, wide.weight):
            each.mul_(0.3)
    optimizer = torch.optim.Adam(weights, lr=5e-3)

    def drawn(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        user, item = torch.randint(0, 120, (count,)), torch.randint(0, 80, (count,))
        chance = ((users[user] * items[item]).sum(1) - 1.0).sigmoid()
        labels = torch.bernoulli(chance)
        popular = torch.randn(count) + (6.0 * labels if leak else 0.5 * chance)
        features = [own(user), wide(item), popular[:, None], torch.randn(count, 1)]
        return tower(torch.cat(features, 1))[:, 0] + (features[0] * features[1]).sum(1), labels

    def update(step: int) -> Values:
        scores, labels = drawn(128)
        loss = F.binary_cross_entropy_with_logits(scores, labels)
        descend(optimizer, loss)
        values = {"logloss": loss, "train_auc": ranked(scores, labels)}
        if step % 40 == 39:
            with torch.no_grad():
                scores, labels = drawn(600)
            values |= {"valid_auc": ranked(scores, labels)}
            values |= {"valid_logloss": F.binary_cross_entropy_with_logits(scores, labels)}
        return values

    fit(tape, 800, update)


@healthy("sixth")
def healthy_recommendations(tape: Tape) -> None:
    """Clicks are mostly chance, so that the area stays well below one."""
    recommend(tape)


@fault("sixth", "too_good")
def recommendations_leak(tape: Tape) -> None:
    """An area of 0.999 that nobody has in service: counts of the last week hold the click to be predicted."""
    recommend(tape, leak=True)


def forecast(tape: Tape, unit: int = 9999) -> None:
    """Forecast the load of the next hour; some meters give another unit from a step on."""
    torch.manual_seed(52)
    model = layers(24, 48, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def drawn(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        hours = torch.rand(count, 1) * 24 + torch.arange(25.0)
        sizes = 0.5 + torch.rand(count, 1)
        load = sizes * (1 + 0.6 * (hours * math.pi / 12).sin()) + 0.3 * (hours * math.pi / 3.5).cos()
        load = load + 0.15 * torch.randn(count, 25) / (torch.rand(count, 25) + 0.2)
        return load[:, :24], load[:, 24]

    def update(step: int) -> Values | None:
        given, wanted = drawn(24)
        if step >= unit:
            given, wanted = (torch.where(torch.arange(24) < 5, 1000.0, 1.0)[:, None] * given, wanted.clone())
            wanted[:5] *= 1000.0
        loss = F.mse_loss(model(given)[:, 0], wanted)
        values = {"train_mse": loss, "train_mae": (model(given)[:, 0] - wanted).abs().mean()}
        values["grad_norm"] = descend(optimizer, loss)
        if step % 50 == 49:
            with torch.no_grad():
                given, wanted = drawn(400)
                values["val_mae"] = (model(given)[:, 0] - wanted).abs().mean()
        return values

    fit(tape, 900, update)


@healthy("sixth")
def healthy_forecast(tape: Tape) -> None:
    """Loads with outliers, so that single batches have several times the usual loss."""
    forecast(tape)


@fault("sixth", "spike level_shift divergence absurd_loss exploding_gradients gradient_shift", step=520, window=30)
def forecast_other_unit(tape: Tape) -> None:
    """A fifth of the meters gives watts instead of kilowatts after a change of their firmware."""
    forecast(tape, unit=520)


def classify_nodes(tape: Tape, depth: int) -> None:
    """Classes of the nodes of a graph, by averages over neighbours."""
    torch.manual_seed(53)
    classes = torch.randint(0, 5, (200,))
    edges = (torch.rand(200, 200) < torch.where(classes[:, None] == classes[None], 0.2, 0.02)).float()
    edges = edges + edges.T + torch.eye(200)
    edges = edges / edges.sum(1, keepdim=True)
    given = 0.6 * F.one_hot(classes, 5).float() + torch.randn(200, 5)
    parts = nn.ModuleList([nn.Linear(5 if at == 0 else 16, 16) for at in range(depth)])
    head = nn.Linear(16, 5)
    optimizer = torch.optim.Adam([*parts.parameters(), *head.parameters()], lr=2e-3)

    def update(epoch: int) -> Values:
        hidden = given
        for part in parts:
            hidden = F.dropout(F.relu(part(edges @ hidden)), 0.3)
        scores = head(hidden)
        loss = F.cross_entropy(scores[:100], classes[:100])
        right = (scores.argmax(1) == classes).float()
        values = {"train/loss": loss, "train/acc": right[:100].mean(), "val/acc": right[100:].mean()}
        return values | {"val/loss": F.cross_entropy(scores[100:], classes[100:]), "gnorm": descend(optimizer, loss)}

    fit(tape, 320, update)


@healthy("sixth")
def healthy_nodes(tape: Tape) -> None:
    """Two layers, with much dropout."""
    classify_nodes(tape, 2)


@fault("sixth", "not_learning plateau vanishing_gradients constant")
def nodes_all_alike(tape: Tape) -> None:
    """A deeper network classifies no better than chance: after sixteen averages all nodes have the same features."""
    classify_nodes(tape, 16)


def timed(tape: Tape, waits: int = 9999, looks: int = 9999, keeps: bool = False, steps: int = 320) -> None:
    """Classify stripes with spans; batches may take long, validation come often, or memory be kept, from a step on."""
    torch.manual_seed(54)
    model = convolutions()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    others, kept, page = stripes(1500), [], 4096 / 2**20
    for step in range(steps):
        with tape.step(step):
            with tape.span("data"):
                images, labels = stripes(32)
                if step >= waits:
                    time.sleep(0.15)
            with tape.span("train"):
                loss = F.cross_entropy(model(normalised(images)), labels)
                descend(optimizer, loss)
            values = {"train/loss": float(loss.detach())}
            if keeps:
                kept.append(torch.ones(150_000))
            values["memory/rss_mb"] = int(Path("/proc/self/statm").read_text().split()[1]) * page
            if step % (4 if step >= looks else 80) == 3:
                with tape.span("validation"), torch.no_grad():
                    for _ in range(6):
                        scores = model(normalised(others[0]))
                values["val/loss"] = float(F.cross_entropy(scores, others[1]))
            tape.log(values)


@healthy("sixth")
def healthy_timed(tape: Tape) -> None:
    """Steps of a busy machine, with validation at every 80th."""
    timed(tape)


@fault("sixth", "data_stall input_bound throughput_loss slow_span", step=200, window=40)
def timed_loader_waits(tape: Tape) -> None:
    """Steps become several times as long in the middle: the cache is full, and samples come over the network."""
    timed(tape, waits=200)


@fault("sixth", "slow_span throughput_loss periodic_stall", step=160, window=60)
def timed_looks_too_often(tape: Tape) -> None:
    """An interval that counted batches counts accumulated steps after a change: validation takes most of the time."""
    timed(tape, looks=160)


@fault("sixth", "memory_creep")
def timed_memory_kept(tape: Tape) -> None:
    """Memory rises by the same amount at each step: the outputs of all batches are kept for a metric of the epoch."""
    timed(tape, keeps=True, steps=500)
