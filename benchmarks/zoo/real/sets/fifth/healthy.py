"""Of the fifth set: pictures, tables, series and recommendations that are learned as they should be, with noise."""

import math
import time

import numpy as np
import torch
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

from benchmarks.zoo.real.case import healthy
from benchmarks.zoo.real.sets.fifth.tasks import (
    accuracy,
    arrows,
    customers,
    demand,
    dense,
    descend,
    eye,
    houses,
    seeded,
    set_rate,
    shuffled,
    ticks,
)
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn


@healthy("fifth", config={"batch_size": 8, "label_smoothing": 0.1, "scheduler": "cyclic"})
def healthy_small_batches_mixed(tape: Tape) -> None:
    """Eight pictures in a batch, mixed with one another; smoothed labels, dropout and a triangular rate."""
    seeded(511)
    (x, y), (held_x, held_y) = arrows(3000), arrows(500)
    model = eye(dropout=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    batches = shuffled(x, y, size=8)
    for step in ticks(tape, 1000):
        rate = set_rate(optimizer, 0.001 + 0.019 * (1 - abs((step % 200) / 100 - 1)))
        inputs, labels = next(batches)
        share, other = float(np.random.default_rng(step).beta(0.3, 0.3)), torch.randperm(8)
        scores = model(share * inputs + (1 - share) * inputs[other])
        first = F.cross_entropy(scores, labels, label_smoothing=0.1)
        loss = share * first + (1 - share) * F.cross_entropy(scores, labels[other], label_smoothing=0.1)
        norm = descend(loss, optimizer, model)
        tape.log({"train_loss": loss.item(), "grad_norm": norm, "lr": rate})
        if step % 100 == 99:
            model.eval()
            with tape.span("validate"), torch.no_grad():
                scores = model(held_x)
            model.train()
            tape.log({"val_loss": F.cross_entropy(scores, held_y).item(), "val_acc": accuracy(scores, held_y)})


@healthy("fifth")
def healthy_layers_unfrozen(tape: Tape) -> None:
    """Fine-tuning from other labels: the head alone, then all layers at a third; checkpoints take time."""
    seeded(512)
    (x, y), (held_x, held_y) = arrows(2500), arrows(500)
    model = eye()
    before = torch.optim.Adam(model.parameters(), lr=3e-3)
    for inputs, labels in (next(shuffled(x, (y > 1).long(), size=64)) for _ in range(200)):
        descend(F.cross_entropy(model(inputs), labels), before, model)
    model[-1] = nn.Linear(96, 4)
    body = [each for layer in model[:-1] for each in layer.parameters()]
    groups = [{"params": model[-1].parameters(), "lr": 3e-3}, {"params": body, "lr": 0.0}]
    optimizer = torch.optim.Adam(groups)
    batches = shuffled(x, y, size=16)
    for step in ticks(tape, 600):
        optimizer.param_groups[1]["lr"] = 1e-3 if step >= 150 else 0.0
        inputs, labels = next(batches)
        scores = model(inputs)
        loss = F.cross_entropy(scores, labels)
        descend(loss, optimizer, model)
        if step % 2 == 0:
            tape.log({"loss": loss.item(), "acc": accuracy(scores, labels), "lr/body": optimizer.param_groups[1]["lr"]})
        if step % 120 == 119:
            with tape.span("checkpoint"):
                time.sleep(0.15)
            model.eval()
            with torch.no_grad():
                scores = model(held_x)
            model.train()
            tape.log({"eval/loss": F.cross_entropy(scores, held_y).item(), "eval/acc": accuracy(scores, held_y)})


@healthy("fifth", config={"gradient_accumulation_steps": 4, "max_grad_norm": 1.0, "precision": "bf16"})
def healthy_accumulated_bfloat(tape: Tape) -> None:
    """Four micro-batches of six rows in bfloat16; the norm is often clipped; a rate that falls in stairs."""
    seeded(513)
    x, y = houses(3000, noise=0.5)
    model = dense(8, 96, 96, 1, activation=nn.SiLU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    batches = shuffled(x[:2400], y[:2400], size=6)
    for step in ticks(tape, 700):
        rate = set_rate(optimizer, 3e-3 * 0.3 ** (step // 250))
        optimizer.zero_grad()
        losses = []
        for _ in range(4):
            inputs, wanted = next(batches)
            with torch.autocast("cpu", torch.bfloat16):
                loss = (model(inputs).squeeze(1).float() - wanted).square().mean()
            (loss / 4).backward()
            losses.append(loss.item())
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 5 == 0:
            tape.log({"train/mse": float(np.mean(losses)), "train/grad_norm": norm.item(), "train/lr": rate})
        if step % 70 == 69:
            with torch.no_grad():
                tape.log({"val/mse": F.mse_loss(model(x[2400:]).squeeze(1), y[2400:]).item()})


@healthy("fifth", config={"patience": 6})
def healthy_stopped_in_time(tape: Tape) -> None:
    """A small table with noisy labels, dropout and decay; stops when the held-out loss is not better for 6 epochs."""
    seeded(514)
    (x, y), (held_x, held_y) = customers(700, noise=0.8), customers(500, noise=0.8)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    batches = shuffled(x, y, size=28)
    best, waited = math.inf, 0
    for _ in ticks(tape, 60):
        seen = []
        for _ in range(25):
            inputs, labels = next(batches)
            loss = F.binary_cross_entropy_with_logits(model(inputs).squeeze(1), labels)
            descend(loss, optimizer, model)
            seen.append(loss.item())
        model.eval()
        with torch.no_grad():
            scores = model(held_x).squeeze(1)
        model.train()
        held = F.binary_cross_entropy_with_logits(scores, held_y).item()
        right = float(((scores > 0) == (held_y > 0)).float().mean())
        tape.log({"loss": float(np.mean(seen)), "val_loss": held, "val_accuracy": right})
        best, waited = (held, 0) if held < best else (best, waited + 1)
        if waited >= 6:
            break


@healthy("fifth", config={"curriculum": "horizon 1..7"})
def healthy_longer_horizon(tape: Tape) -> None:
    """A forecast of a GRU: the horizon grows by a day every 60 steps, and with it the error."""
    seeded(515)
    series, held = demand(600), demand(150)
    model, head = nn.GRU(1, 32, batch_first=True), nn.Linear(32, 7)
    both = nn.ModuleList((model, head))
    optimizer = torch.optim.Adam(both.parameters(), lr=3e-3)
    batches = shuffled(series, size=12)
    for step in ticks(tape, 700):
        days = min(7, 1 + step // 60)
        (window,) = next(batches)
        forecasts = head(model(window[:, :53, None])[0][:, -1])
        loss = F.mse_loss(forecasts[:, :days], window[:, 53 : 53 + days])
        norm = descend(loss, optimizer, both, 1.0)
        if step % 2 == 0:
            tape.log({"train_loss": loss.item(), "grad_norm": norm, "curriculum/days": days})
        if step % 70 == 69:
            with tape.span("evaluate"), torch.no_grad():
                forecasts = head(model(held[:, :53, None])[0][:, -1])
            tape.log({"val_mse_7d": F.mse_loss(forecasts, held[:, 53:]).item()})


@healthy("fifth")
def healthy_weights_of_tasks_ramped(tape: Tape) -> None:
    """A price and a class; the weight of the class rises from 0.1 to 1 between steps 200 and 400."""
    seeded(516)
    x, price = houses(3000)
    grade = (x[:, 5] + x[:, 6] * x[:, 0] > 0).long()
    trunk, heads = dense(8, 64, 64), nn.ModuleList((nn.Linear(64, 1), nn.Linear(64, 2)))
    whole = nn.ModuleList((trunk, heads))
    optimizer = torch.optim.AdamW(whole.parameters(), lr=2e-3)
    batches = shuffled(x[:2500], price[:2500], grade[:2500], size=16)
    for step in ticks(tape, 800):
        share = 0.1 + 0.9 * min(1.0, max(0.0, (step - 200) / 200))
        inputs, wanted, label = next(batches)
        features = torch.relu(trunk(inputs))
        prices, grades = F.mse_loss(heads[0](features).squeeze(1), wanted), F.cross_entropy(heads[1](features), label)
        total = prices + share * grades
        descend(total, optimizer, whole)
        tape.log({"loss": total.item(), "loss_price": prices.item(), "loss_grade": grades.item(), "w_grade": share})
        if step % 90 == 89:
            with torch.no_grad():
                features = torch.relu(trunk(x[2500:]))
                error = F.mse_loss(heads[0](features).squeeze(1), price[2500:]).item()
            tape.log({"val_mse": error, "val_acc": accuracy(heads[1](features), grade[2500:])})


@healthy("fifth")
def healthy_chunks(tape: Tape) -> None:
    """`partial_fit` of scikit-learn on chunks of 40 rows, with the accuracy on each chunk before it is learned."""
    random = seeded(517)
    x = random.normal(size=(9000, 15))
    y = (x @ random.normal(size=15) + 1.5 * random.normal(size=9000) > 0).astype(int)
    seed = int(random.integers(1000))
    model = SGDClassifier(loss="log_loss", alpha=1e-2, learning_rate="invscaling", eta0=0.05, random_state=seed)
    model.partial_fit(x[:40], y[:40], classes=[0, 1])
    for step in ticks(tape, 200):
        chunk = slice(40 + 40 * step, 80 + 40 * step)
        before = model.score(x[chunk], y[chunk])
        model.partial_fit(x[chunk], y[chunk])
        tape.log({"progressive_accuracy": before})
        if step % 10 == 9:
            tape.log({"holdout_log_loss": log_loss(y[8100:], model.predict_proba(x[8100:]))})


@healthy("fifth")
def healthy_recommendations(tape: Tape) -> None:
    """Implicit feedback with sampled negatives (BPR); recall among the first ten every 100 steps."""
    random = seeded(518)
    users, items = torch.randn(300, 8), torch.randn(500, 8)
    liked = (users @ items.T + torch.randn(300, 500)).topk(40).indices
    seen, held = liked[:, torch.randperm(40)].split((32, 8), 1)
    left, right = nn.Embedding(300, 24), nn.Embedding(500, 24)
    for table in (left, right):
        nn.init.normal_(table.weight, std=0.1)
    both = nn.ModuleList((left, right))
    optimizer = torch.optim.Adam(both.parameters(), lr=5e-3, weight_decay=1e-5)
    for step in ticks(tape, 900):
        user = torch.as_tensor(random.integers(300, size=128))
        item, other = seen[user, torch.randint(32, (128,))], torch.randint(500, (128,))
        margin = (left(user) * (right(item) - right(other))).sum(1)
        loss = F.softplus(-margin).mean()
        descend(loss, optimizer, both)
        if step % 4 == 0:
            tape.log({"bpr_loss": loss.item(), "pairwise_accuracy": float((margin > 0).float().mean())})
        if step % 100 == 99:
            with torch.no_grad():
                scores = (left.weight @ right.weight.T).scatter(1, seen, -1e9)
            first = scores.topk(10).indices
            hits = (first[:, :, None] == held[:, None]).any(2).float().mean()
            tape.log({"recall@10": 10 / 8 * hits.item()})
