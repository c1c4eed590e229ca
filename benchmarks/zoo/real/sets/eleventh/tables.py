"""The eleventh set: tables, demand, a graph, recommendations and three processes that train together."""

import itertools
import math
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.eleventh.tasks import JUMP, F, Pair, Values, cosine, dense, drive, learn, nn, set_rate
from benchmarks.zoo.real.tape import Tape

Change = Callable[[int, dict[str, Any]], None]


def area(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """The area under the curve: how often one that is true has the higher score."""
    order = scores.argsort().argsort().float() + 1
    true = labels > 0.5
    ones, zeros = int(true.sum()), int((~true).sum())
    return (float(order[true].sum()) - ones * (ones + 1) / 2) / max(ones * zeros, 1)


def loans(count: int) -> Pair:
    """Twelve properties of loans in their own units, and which of them were not paid back: one in ten."""
    given = torch.randn(count, 12)
    risk = given[:, 0] * given[:, 1] + 1.2 * (given[:, 2] > 0.5) + 0.8 * given[:, 3].abs() - given[:, 4] - 3.6
    units = torch.logspace(-1, 3, 12)
    return given * units, (torch.rand(count) < torch.sigmoid(1.5 * risk)).float()


def defaults(tape: Tape, at: Change | None = None, seed: int = 701, epochs: int = 40) -> None:
    """Loans by a network with weighted cases, once an epoch: train_logloss, valid_auc, valid_ap."""
    torch.manual_seed(seed)
    (x, y), (vx, vy) = loans(2600), loans(1500)
    state: dict[str, Any] = {"mean": x.mean(0), "spread": x.std(0), "y": y, "x": x, "keep": 1.0}
    model = nn.Sequential(nn.Dropout(0.1), dense((12, 48, 48, 1), nn.SiLU))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.05)

    def act(epoch: int) -> Values:
        if at is not None:
            at(epoch, state)
        total = 0.0
        order = torch.randperm(len(x))
        for rows in order.split(200):
            scores = model((state["x"][rows] - state["mean"]) / state["spread"])[:, 0]
            loss = F.binary_cross_entropy_with_logits(scores, state["y"][rows])
            learn(optimizer, loss)
            total += loss.item() * len(rows) / len(x)
        model.eval()
        with torch.no_grad():
            scores = model((vx - state["mean"]) / state["spread"])[:, 0]
            found = {"valid_logloss": F.binary_cross_entropy_with_logits(scores, vy), "valid_auc": area(scores, vy)}
        model.train()
        return {"epoch": epoch, "train_logloss": total} | found

    drive(tape, epochs, act)


@healthy("eleventh", config={"objective": "binary", "metric": "auc", "epochs": 40})
def healthy_loans(tape: Tape) -> None:
    """Loans of which one in ten is not paid back."""
    defaults(tape)


@fault("eleventh", JUMP + " accuracy_drop", step=22, window=3, config={"objective": "binary", "metric": "auc"})
def loans_paid_is_unpaid(tape: Tape) -> None:
    """From epoch 22 on the labels come from an export that counts those that were paid back."""

    def at(epoch: int, state: dict[str, Any]) -> None:
        if epoch == 22:
            state["y"] = 1 - state["y"]

    defaults(tape, at, seed=702)


@fault(
    "eleventh",
    "not_learning constant plateau overfit generalization_gap",
    config={"objective": "binary", "metric": "auc"},
)
def loans_of_other_people(tape: Tape) -> None:
    """The labels belong to other loans than the rows: what is held out is never ordered better than by chance."""

    def at(epoch: int, state: dict[str, Any]) -> None:
        if epoch == 0:
            state["y"] = state["y"][torch.randperm(len(state["y"]))]

    defaults(tape, at, seed=703, epochs=40)


def demand(count: int, length: int = 21) -> Pair:
    """Series with a weekly wave, a trend and noise, and the six values that follow."""
    t = torch.arange(length + 6) + 7 * torch.rand(count, 1)
    level, size = 5 + 3 * torch.rand(count, 1), 1 + torch.rand(count, 1)
    values = level + 0.03 * (torch.rand(count, 1) - 0.5) * t + size * (t * 2 * math.pi / 7).sin()
    values = values + 0.5 * size * (t * 2 * math.pi / 3.5).cos() + 0.35 * torch.randn(count, length + 6)
    return values[:, :length], values[:, length:]


class Forecast(nn.Module):  # type: ignore[misc]
    """A recurrent network over what was, and three quantiles of what comes."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.read, self.out = nn.GRU(1, width, batch_first=True), nn.Linear(width, 18)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The quantiles of the next six values."""
        mean = x.mean(1, keepdim=True)
        _, last = self.read((x - mean)[..., None])
        return self.out(last[0]).view(-1, 6, 3) + mean[..., None]


QUANTILES = torch.tensor([0.1, 0.5, 0.9])


def pinball(given: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """The loss of quantiles."""
    off = wanted[..., None] - given
    return torch.maximum(QUANTILES * off, (QUANTILES - 1) * off).mean()


def forecast(
    tape: Tape,
    at: Change | None = None,
    seed: int = 711,
    steps: int = 420,
    rate: float = 8e-3,
    clip: float = 1.0,
    slow: Callable[[int], float] = lambda step: 0.0,
) -> None:
    """Demand by a recurrent network, in the names of pytorch-forecasting: a step every second, an epoch at sixty."""
    torch.manual_seed(seed)
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    schedule = cosine(steps, rate, 10)
    state: dict[str, Any] = {"batch": lambda: demand(32), "seen": lambda pair: pair, "rate": schedule}
    held = demand(300)
    smooth = {"loss": 0.0}

    def act(step: int) -> Values | None:
        if at is not None:
            at(step, state)
        now = set_rate(optimizer, state["rate"](step))
        with tape.span("train.data_load"):
            given, wanted = state["batch"]()
            time.sleep(slow(step))
        loss = pinball(model(given), wanted)
        norm = learn(optimizer, loss, clip)
        smooth["loss"] += loss.item()
        found: Values = {}
        if step % 2 == 0:
            found |= {"train_loss_step": loss.item(), "grad_norm": norm, "lr-Adam": now}
        if step % 60 == 59:
            with torch.no_grad():
                given, wanted = state["seen"](held)
                out = model(given)
                found |= {"val_loss": pinball(out, wanted), "val_MAE": (out[..., 1] - wanted).abs().mean()}
            found |= {"train_loss_epoch": smooth["loss"] / 60, "epoch": step // 60}
            smooth["loss"] = 0.0
        return found

    drive(tape, steps, act)


@healthy("eleventh", config={"loss": "QuantileLoss", "max_epochs": 7, "gradient_clip_val": 1.0})
def healthy_demand(tape: Tape) -> None:
    """Quantiles of demand."""
    forecast(tape)


@healthy("eleventh", config={"loss": "QuantileLoss", "save_every": 70, "precision": 32})
def healthy_demand_loaded_unevenly(tape: Tape) -> None:
    """A loader that takes between 1 and 5 ms, and 20 at the begin of each epoch."""
    made = torch.Generator().manual_seed(3)
    forecast(
        tape,
        seed=712,
        slow=lambda step: 0.02 if step % 60 == 0 else 0.001 + 0.004 * float(torch.rand(1, generator=made)),
    )


@fault("eleventh", "not_finite", step=260, window=2, config={"loss": "QuantileLoss"})
def demand_with_a_gap(tape: Tape) -> None:
    """A store that was closed has no values in the batch at 260."""

    def at(step: int, state: dict[str, Any]) -> None:
        if step == 260:

            def batch() -> Pair:
                given, wanted = demand(32)
                given[4, 10:14] = math.nan
                return given, wanted

            state["batch"] = batch

    forecast(tape, at, seed=713)


@fault("eleventh", JUMP + " gradient_shift exploding_gradients", step=240, window=8, config={"loss": "QuantileLoss"})
def demand_in_dozens(tape: Tape) -> None:
    """From 240 on the wanted values are in dozens, and those before in pieces."""

    def at(step: int, state: dict[str, Any]) -> None:
        if step == 240:

            def batch() -> Pair:
                given, wanted = demand(32)
                return given, wanted / 12

            state["batch"] = batch

    forecast(tape, at, seed=714)


@fault("eleventh", "overfit generalization_gap not_learning", config={"loss": "QuantileLoss", "max_epochs": 7})
def demand_held_out_turned_around(tape: Tape) -> None:
    """The series that are held out run backwards: the training gets better, and what is held out never does."""

    def at(step: int, state: dict[str, Any]) -> None:
        state["seen"] = lambda pair: (pair[0].flip(1), pair[1].flip(0))

    forecast(tape, at, seed=715)


@fault("eleventh", "lr_zero lr_schedule plateau", step=150, window=50, config={"max_steps": 420, "lr": 8e-3})
def demand_rate_gone(tape: Tape) -> None:
    """The decay counts batches as epochs: the rate is 0 from 130 on."""

    def at(step: int, state: dict[str, Any]) -> None:
        state["rate"] = lambda step: 4e-4 * max(0.0, 1 - step / 130)

    forecast(tape, at, seed=716)


class Graph(nn.Module):  # type: ignore[misc]
    """Layers that take the mean over neighbours."""

    def __init__(self, layers: int = 2, width: int = 32, drop: float = 0.5) -> None:
        super().__init__()
        sizes = (16, *(width,) * (layers - 1), 6)
        self.layers = nn.ModuleList(nn.Linear(one, two) for one, two in itertools.pairwise(sizes))
        self.drop = nn.Dropout(drop)

    def forward(self, x: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        """The scores of each node."""
        for place, layer in enumerate(self.layers):
            x = near @ layer(self.drop(x))
            if place + 1 < len(self.layers):
                x = x.relu()
        return x


def papers(count: int = 500, inside: float = 0.03, outside: float = 0.004) -> tuple[torch.Tensor, ...]:
    """Papers that cite each other within six fields more often than across, with noisy words."""
    fields = torch.randint(0, 6, (count,))
    chance = torch.where(fields[:, None] == fields, inside, outside)
    edges = (torch.rand(count, count) < chance).float()
    edges = ((edges + edges.T + torch.eye(count)) > 0).float()
    near = edges / edges.sum(1, keepdim=True)
    words = torch.randn(6, 16)[fields] * 0.7 + 1.2 * torch.randn(count, 16)
    return words, near, fields


def cited(
    tape: Tape, at: Change | None = None, seed: int = 721, epochs: int = 160, known: int = 120, **graph: Any
) -> None:
    """Fields of papers, the whole graph at each epoch, in the names of the examples of PyG."""
    torch.manual_seed(seed)
    words, near, fields = papers()
    state: dict[str, Any] = {"fields": fields, "words": words, "model": Graph(**graph), "decay": 5e-4}
    optimizer = torch.optim.Adam(state["model"].parameters(), 0.01, weight_decay=5e-4)

    def act(epoch: int) -> Values:
        if at is not None:
            at(epoch, state)
        model = state["model"]
        out = model(state["words"], near)
        loss = F.cross_entropy(out[:known], state["fields"][:known])
        learn(optimizer, loss)
        model.eval()
        with torch.no_grad():
            out = model(words, near)
            right = (out.argmax(-1) == fields).float()
            val_loss = F.cross_entropy(out[known:320], fields[known:320])
        model.train()
        found = {"Loss": loss.item(), "Train": right[:known].mean(), "Val": right[known:320].mean()}
        return found | {"Test": right[320:].mean(), "val_loss": val_loss}

    drive(tape, epochs, act)


@healthy("eleventh", config={"dataset": "papers", "num_classes": 6, "hidden_channels": 32, "epochs": 160})
def healthy_papers(tape: Tape) -> None:
    """Fields of papers from their words and citations."""
    cited(tape)


@fault("eleventh", "not_learning constant plateau", config={"num_classes": 6, "num_layers": 24, "epochs": 160})
def papers_smoothed_away(tape: Tape) -> None:
    """Twenty-four layers of means make all papers alike: the loss stays at that of guessing."""
    cited(tape, seed=722, layers=24, drop=0.0)


class Towers(nn.Module):  # type: ignore[misc]
    """A vector for each user and each item."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(300, width), nn.Embedding(200, width)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, 0, 0.1)


def clicks(tape: Tape, at: Change | None = None, seed: int = 731, epochs: int = 45, rate: float = 0.01) -> None:
    """Who clicks on what, by pairs of a click and none; each epoch the loss, Recall@10 and NDCG@10, as RecBole has."""
    torch.manual_seed(seed)
    tastes, kinds = torch.randn(300, 5), torch.randn(200, 5)
    likes = tastes @ kinds.T + 0.8 * torch.randn(300, 200)
    order = likes.argsort(1, descending=True)[:, :30]
    order = order.gather(1, torch.rand(300, 30).argsort(1))
    known, wanted = order[:, :20], order[:, 20:]
    model = Towers()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    state: dict[str, Any] = {"sign": 1.0, "model": model, "order": torch.arange(200)}

    def act(epoch: int) -> Values:
        if at is not None:
            at(epoch, state)
        total = 0.0
        for _ in range(12):
            users = torch.randint(0, 300, (500,))
            good = state["order"][known[users, torch.randint(0, 20, (500,))]]
            bad = torch.randint(0, 200, (500,))
            of = model.users(users)
            margin = (of * (model.items(good) - model.items(bad))).sum(1)
            loss = -F.logsigmoid(state["sign"] * margin).mean()
            loss = loss + 2e-3 * (of.square().sum(1) + model.items(good).square().sum(1)).mean()
            learn(optimizer, loss)
            total += loss.item() / 12
        with torch.no_grad():
            scores = model.users.weight @ model.items.weight.T
            scores.scatter_(1, known, -1e9)
            best = scores.topk(10).indices
            hits = (best[:, :, None] == wanted[:, None]).any(2).float()
            gains = hits / torch.log2(torch.arange(10) + 2.0)
            ideal = (1 / torch.log2(torch.arange(10) + 2.0)).sum()
        return {
            "train_loss": total,
            "valid/recall@10": hits.sum(1).mean() / 10,
            "valid/ndcg@10": (gains.sum(1) / ideal).mean(),
        }

    drive(tape, epochs, act)


@healthy("eleventh", config={"model": "BPR", "epochs": 24, "topk": 10})
def healthy_clicks(tape: Tape) -> None:
    """Recommendations by pairs."""
    clicks(tape, epochs=24)


@fault("eleventh", JUMP + " accuracy_drop", step=25, window=3, config={"model": "BPR", "epochs": 45, "topk": 10})
def clicks_on_renumbered_items(tape: Tape) -> None:
    """From epoch 25 on the clicks come with the numbers of a new catalogue."""

    def at(epoch: int, state: dict[str, Any]) -> None:
        if epoch == 25:
            state["order"] = torch.randperm(200)

    clicks(tape, at, seed=732)


def together(
    tape: Tape,
    step_of: Callable[[int, int, Any, torch.optim.Optimizer], Values],
    steps: int = 260,
    seed: int = 741,
) -> None:
    """Three processes that train one network over gloo; the first of them tells what all had."""
    place = tempfile.mktemp()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

    def process(rank: int, tape: Tape) -> None:
        dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=3)
        torch.manual_seed(seed)
        model = dense((8, 48, 48, 1), nn.Tanh)
        optimizer = torch.optim.Adam(model.parameters(), 4e-3)
        made = torch.Generator().manual_seed(seed + 10 * rank)
        torch.random.default_generator.set_state(made.get_state())

        def act(step: int) -> Values:
            own = step_of(rank, step, model, optimizer)
            row = torch.tensor(list(own.values()), dtype=torch.float64)
            rows = [torch.zeros_like(row) for _ in range(3)]
            dist.all_gather(rows, row)
            found = {f"{name}/rank{each}": rows[each][at] for each in range(3) for at, name in enumerate(own)}
            return found

        drive(tape, steps, act)
        dist.destroy_process_group()

    others = []
    for rank in (1, 2):
        child = os.fork()
        if child == 0:
            try:
                process(rank, Tape())
            finally:
                os._exit(0)
        others.append(child)
    process(0, tape)
    for child in others:
        os.waitpid(child, 0)
    if os.path.exists(place):
        os.remove(place)


def surface(count: int) -> Pair:
    """Eight properties of a thing, and how strong it is."""
    x = torch.rand(count, 8) * 2 - 1
    y = 2 * x[:, 0] * x[:, 1] + (3 * x[:, 2]).sin() + x[:, 3:6].square().sum(1) + 0.1 * torch.randn(count)
    return x, y


def averaged(
    rank: int,
    step: int,
    model: Any,
    optimizer: torch.optim.Optimizer,
    joined: bool = True,
    share: float = 3.0,
    mixed: bool = False,
) -> Values:
    """A step with the mean of the gradients of all; the loss of each, the norm of the mean and a sum of its weights."""
    x, y = surface(32)
    y = y.flip(0) if mixed else y
    loss = F.mse_loss(model(x)[:, 0], y)
    optimizer.zero_grad()
    loss.backward()
    for weight in model.parameters():
        given = weight.grad.clone()
        dist.all_reduce(given)
        if joined:
            weight.grad.copy_(given / share)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    optimizer.step()
    total = sum(weight.double().sum() for weight in model.parameters())
    return {"loss": loss.item(), "grad_norm": norm, "param_checksum": float(total.detach())}


@healthy("eleventh", config={"world_size": 3, "backend": "gloo"})
def healthy_three_processes(tape: Tape) -> None:
    """Three processes with the mean of their gradients."""
    together(tape, averaged)


@fault("eleventh", "replicas_differ desync", step=120, window=10, config={"world_size": 3, "backend": "gloo"})
def processes_one_goes_its_own_way(tape: Tape) -> None:
    """From 120 on the third process takes its own gradients: the checksums are no longer the same."""
    together(
        tape,
        lambda rank, step, model, optimizer: averaged(rank, step, model, optimizer, not (rank == 2 and step >= 120)),
        seed=742,
    )


@fault("eleventh", "gradient_shift exploding_gradients level_shift", step=130, window=15, config={"world_size": 3})
def processes_gradients_times_nine(tape: Tape) -> None:
    """From 130 on the gradients are multiplied by the number of processes, not divided by it."""
    together(
        tape,
        lambda rank, step, model, optimizer: averaged(rank, step, model, optimizer, share=3.0 if step < 130 else 1 / 3),
        seed=743,
    )


@fault("eleventh", JUMP, step=140, window=10, says="rank1", config={"world_size": 3})
def processes_shard_of_one_spoilt(tape: Tape) -> None:
    """From 140 on the labels of the second process belong to other rows."""

    together(
        tape,
        lambda rank, step, model, optimizer: averaged(rank, step, model, optimizer, mixed=rank == 1 and step >= 140),
        seed=744,
    )
