"""Pictures, tables and series of the fifth set.

Each loop takes its mistake as an argument, so that it can be run without.
"""

import math
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

from benchmarks.zoo.real.case import fault
from benchmarks.zoo.real.sets.fifth.tasks import (
    accuracy,
    arrows,
    cosine,
    customers,
    demand,
    dense,
    descend,
    eye,
    gradient_norm,
    houses,
    seeded,
    set_rate,
    shuffled,
    ticks,
)
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn


def pictures(
    tape: Tape, seed: int, *, turned: bool = False, momentum: float = 0.1, ema: float = 0.98, clip: float = 5.0
) -> None:
    """Classify arrows; a moving average of the weights is evaluated every 50 steps."""
    seeded(seed)
    (x, y), (held_x, held_y) = arrows(3000), arrows(500)
    x, held_x = 4 * x + 2, 4 * held_x + 2
    model, average = eye(), eye()
    average.load_state_dict(model.state_dict())
    model[1].momentum = momentum  # type: ignore[assignment]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batches = shuffled(x, y, size=32)
    for step in ticks(tape, 700):
        inputs, labels = next(batches)
        if turned:
            inputs = torch.rot90(inputs, int(torch.randint(4, ())), (2, 3))
        scores = model(inputs)
        loss = F.cross_entropy(scores, labels)
        rate = set_rate(optimizer, cosine(step, 700, 0.05))
        norm = descend(loss, optimizer, model, clip)
        for slow, fast in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
            slow.copy_(ema * slow + (1 - ema) * fast if slow.is_floating_point() else fast)
        if step % 5 == 0:
            values = {"train/loss": loss.item(), "train/top1": accuracy(scores, labels)}
            tape.log({**values, "train/grad_norm": norm, "train/lr": rate})
        if step % 50 == 49:
            average.eval()
            with tape.span("evaluate"), torch.no_grad():
                scores = average(held_x)
            tape.log({"val/loss": F.cross_entropy(scores, held_y).item(), "val/top1": accuracy(scores, held_y)})


@fault("fifth", "not_learning plateau constant")
def turned_pictures(tape: Tape) -> None:
    """Each batch is turned by a random right angle, and the direction is the label."""
    pictures(tape, 501, turned=True)


@fault("fifth", "generalization_gap overfit absurd_loss not_learning divergence")
def statistics_not_updated(tape: Tape) -> None:
    """Batch normalisation with momentum 0: evaluated with the mean and variance it began with."""
    pictures(tape, 508, momentum=0.0)


@fault("fifth", "generalization_gap not_learning plateau constant overfit")
def average_too_slow(tape: Tape) -> None:
    """The average that is evaluated has a decay of 0.99999 in a training of 700 steps."""
    pictures(tape, 509, ema=0.99999)


@fault("fifth", "always_clipped clip_saturated not_learning plateau", config={"max_grad_norm": 1e-4})
def clipped_to_nothing(tape: Tape) -> None:
    """Gradients are clipped to a norm of 0.0001."""
    pictures(tape, 510, clip=1e-4)


def churn(tape: Tape, *, half: bool = False, wrong: bool = False, leak: int = 10**9) -> None:
    """Predict who leaves, with few positives; accumulation, half precision and a feature that comes from a join."""
    seeded(502)
    (x, y), (held_x, held_y) = customers(4000, positive=2.6), customers(1500, positive=2.6)
    model = dense(10, 48, 48, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = shuffled(x, y, size=24)
    weight = torch.tensor(0.02 if wrong else 3.0)
    for step in ticks(tape, 600):
        optimizer.zero_grad()
        seen = []
        for _ in range(2):
            inputs, labels = next(batches)
            if step >= leak:
                inputs = torch.cat((inputs[:, :9], 3 * (labels[:, None] - 0.2)), 1)
            loss = F.binary_cross_entropy_with_logits(model(inputs).squeeze(1), labels, pos_weight=weight)
            (loss * (1e-7 if half else 1) / 2).backward()
            seen.append(loss.item())
        if half:
            for each in model.parameters():
                assert each.grad is not None
                each.grad.copy_(torch.where(each.grad.abs() < 6e-8, 0.0, each.grad) * 1e7)
        norm = gradient_norm(model)
        optimizer.step()
        tape.log({"loss": float(np.mean(seen)), "grad_norm": norm})
        if step % 40 == 39:
            with torch.no_grad():
                scores = model(held_x).squeeze(1)
            hits = float(((scores > 0) * held_y).sum())
            f1 = 2 * hits / max(1.0, float((scores > 0).sum() + held_y.sum()))
            right = float(((scores > 0) == (held_y > 0)).float().mean())
            loss = F.binary_cross_entropy_with_logits(scores, held_y, pos_weight=weight)
            tape.log({"eval_loss": loss.item(), "eval_f1": f1, "eval_accuracy": right})


@fault("fifth", "constant not_learning plateau accuracy_drop")
def positives_weighted_down(tape: Tape) -> None:
    """`pos_weight` is 1/50 instead of 50: nobody is ever predicted to leave, and F1 is 0."""
    churn(tape, wrong=True)


@fault("fifth", "vanishing_gradients weights_frozen not_learning plateau constant")
def gradients_underflow(tape: Tape) -> None:
    """Gradients in half precision without a loss scale: nearly all are below the smallest number."""
    churn(tape, half=True)


@fault("fifth", "too_good level_shift generalization_gap overfit", step=260, window=60)
def label_in_a_column(tape: Tape) -> None:
    """From step 260 on a join brings tomorrow's status into the table."""
    churn(tape, leak=260)


def forecast(tape: Tape, *, hot: float = 1.0, zeros: int = 10**9) -> None:
    """Forecast the next week with a GRU; a cosine with warm restarts, and MAPE beside the loss."""
    seeded(503)
    series, held = demand(600), demand(150)
    model = nn.GRU(1, 32, batch_first=True)
    head = nn.Linear(32, 7)
    both = nn.ModuleList((model, head))
    optimizer = torch.optim.Adam(both.parameters(), lr=5e-3)
    batches = shuffled(series, size=16)
    for step in ticks(tape, 640):
        cycle, place = divmod(step, 160)
        rate = set_rate(optimizer, 5e-3 * hot**cycle * 0.5 * (1 + math.cos(math.pi * place / 160)))
        (window,) = next(batches)
        if step >= zeros and step % 3 == 0:
            window = window.clone()
            window[0, 30:] = 0.0
        forecasts = head(model(window[:, :53, None])[0][:, -1])
        error = (forecasts - window[:, 53:]).abs()
        loss = F.smooth_l1_loss(forecasts, window[:, 53:])
        norm = descend(loss, optimizer, both, 1.0)
        mape = (error / window[:, 53:].abs()).mean().item()
        if step % 2 == 0:
            tape.log({"train_loss": loss.item(), "train_mape": min(mape, math.inf), "grad_norm": norm, "lr": rate})
        if step % 80 == 79:
            with torch.no_grad():
                forecasts = head(model(held[:, :53, None])[0][:, -1])
            tape.log({"val_loss": F.smooth_l1_loss(forecasts, held[:, 53:]).item()})


@fault("fifth", "lr_schedule divergence level_shift spike oscillation gradient_shift", step=400, window=120)
def restarts_grow(tape: Tape) -> None:
    """A restart multiplies the peak rate by six, where its length was meant: 0.03 in the second, 0.18 in the third."""
    forecast(tape, hot=6.0)


@fault("fifth", "not_finite counted_not_finite", step=400)
def closed_shops(tape: Tape) -> None:
    """From step 400 on shops that closed are in the data: the percentage error divides by zero."""
    forecast(tape, zeros=400)


def two_tasks(tape: Tape, *, weight_at: int = 10**9, weight: float = 1.0, old_head: bool = False) -> None:
    """Fine-tune a trunk that was trained on another task, for a price and a class; logged every 4 steps."""
    seeded(504)
    x, price = houses(3000)
    grade = (x[:, 5] + x[:, 6] * x[:, 0] > 0).long()
    trunk = dense(8, 64, 64)
    first = torch.optim.Adam(trunk.parameters(), lr=3e-3)
    for _ in range(150):
        batch = torch.randint(3000, (64,))
        descend(F.mse_loss(trunk(x[batch])[:, 0], x[batch, 0] - x[batch, 4]), first, trunk)
    heads = nn.ModuleList((nn.Linear(64, 1), nn.Linear(64, 2)))
    whole = nn.ModuleList((trunk, heads))
    optimizer = torch.optim.AdamW(heads.parameters() if old_head else whole.parameters(), lr=2e-3)
    if old_head:
        heads = nn.ModuleList((nn.Linear(64, 1), nn.Linear(64, 2)))
    batches = shuffled(x[:2500], price[:2500], grade[:2500], size=32)
    for step in ticks(tape, 800):
        inputs, wanted, label = next(batches)
        features = torch.relu(trunk(inputs))
        prices, grades = F.mse_loss(heads[0](features).squeeze(1), wanted), F.cross_entropy(heads[1](features), label)
        share = weight if step >= weight_at else 1.0
        norm = descend(prices + share * grades, optimizer, whole)
        if step % 4 == 0:
            values = {"loss/price": prices.item(), "loss/grade": grades.item(), "grad_norm": norm}
            tape.log({"loss/total": (prices + share * grades).item(), **values})
        if step % 100 == 99:
            with torch.no_grad():
                features = torch.relu(trunk(x[2500:]))
                error = F.mse_loss(heads[0](features).squeeze(1), price[2500:]).item()
            tape.log({"val/mse": error, "val/accuracy": accuracy(heads[1](features), grade[2500:])})


@fault("fifth", "not_learning plateau weights_frozen constant gradients_not_cleared")
def head_replaced_late(tape: Tape) -> None:
    """The heads are replaced after the optimizer was made: it updates the old ones."""
    two_tasks(tape, old_head=True)


@fault("fifth", "level_shift spike divergence gradient_shift exploding_gradients", step=400, window=40)
def weight_typo(tape: Tape) -> None:
    """At step 400 the second phase weighs the class with 50 instead of 0.5: the price is forgotten."""
    two_tasks(tape, weight_at=400, weight=50.0)


def small_table(tape: Tape, epochs: int = 90, decay: float = 0.0) -> None:
    """Two hundred rows with noisy labels and a wide network; logged once an epoch."""
    seeded(505)
    (x, y), (held_x, held_y) = customers(220, noise=2.0), customers(600, noise=2.0)
    model = dense(10, 128, 128, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=decay)
    batches = shuffled(x, y, size=20)
    for _ in ticks(tape, epochs):
        seen = []
        for _ in range(11):
            inputs, labels = next(batches)
            loss = F.binary_cross_entropy_with_logits(model(inputs).squeeze(1), labels)
            descend(loss, optimizer, model)
            seen.append(loss.item())
        with torch.no_grad():
            scores = model(held_x).squeeze(1)
        held = F.binary_cross_entropy_with_logits(scores, held_y).item()
        right = float(((scores > 0) == (held_y > 0)).float().mean())
        tape.log({"loss": float(np.mean(seen)), "val_loss": held, "val_accuracy": right})


@fault("fifth", "overfit generalization_gap divergence overtraining")
def stopping_off(tape: Tape) -> None:
    """Early stopping watches a name that does not exist and never stops."""
    small_table(tape)


def partial_fits(tape: Tape, *, ordered: bool = False, scaled: bool = True) -> None:
    """`partial_fit` of scikit-learn on chunks of a table that does not fit into memory."""
    random = seeded(506)
    x = random.normal(size=(6000, 20))
    y = (x @ random.normal(size=20) + random.normal(size=6000) > 0).astype(int)
    held_x, held_y, x, y = x[5000:], y[5000:], x[:5000], y[:5000]
    if not scaled:
        x, held_x = x * np.geomspace(1, 1e4, 20), held_x * np.geomspace(1, 1e4, 20)
    rows = np.argsort(y, kind="stable") if ordered else np.arange(5000)
    model = SGDClassifier(loss="log_loss", alpha=1e-4, random_state=int(random.integers(1000)))
    for step in ticks(tape, 300):
        chunk = rows[(step * 50) % 5000 : (step * 50) % 5000 + 50]
        model.partial_fit(x[chunk], y[chunk], classes=[0, 1])
        chances = model.predict_proba(held_x)
        held: dict[str, Any] = {
            "test_log_loss": log_loss(held_y, chances),
            "test_accuracy": model.score(held_x, held_y),
        }
        tape.log({"train_log_loss": log_loss(y[chunk], model.predict_proba(x[chunk]), labels=[0, 1]), **held})


@fault("fifth", "oscillation not_learning level_shift spike accuracy_drop too_good stuck_batch")
def table_sorted_by_label(tape: Tape) -> None:
    """The file is sorted by its label: first only stayers, then only leavers, five times over."""
    partial_fits(tape, ordered=True)


def ratings(tape: Tape, *, percent_at: int = 10**9) -> None:
    """Matrix factorization in numpy: stars of 400 users and 300 films, by plain gradient descent."""
    random = seeded(507)
    users, films = random.normal(size=(400, 6)), random.normal(size=(300, 6))
    left, right = 0.1 * random.normal(size=(400, 6)), 0.1 * random.normal(size=(300, 6))
    rate, mean = 0.05, 3.0
    for step in ticks(tape, 900):
        u, f = random.integers(400, size=256), random.integers(300, size=256)
        stars = np.clip(3 + 0.5 * (users[u] * films[f]).sum(1) + 0.3 * random.normal(size=256), 1, 5)
        if step >= percent_at:
            stars = np.where(random.random(256) < 0.3, 20 * stars, stars)
        error = mean + (left[u] * right[f]).sum(1) - stars
        slope = rate * np.clip(error, -3, 3)[:, None]
        left_slope, right_slope = slope * right[f] + 0.001 * left[u], slope * left[u] + 0.001 * right[f]
        np.subtract.at(left, u, left_slope)
        np.subtract.at(right, f, right_slope)
        if step % 3 == 0:
            tape.log({"rmse": float(np.sqrt((error**2).mean())), "mae": float(np.abs(error).mean())})


@fault("fifth", "level_shift spike divergence absurd_loss", step=500, window=30)
def ratings_in_percent(tape: Tape) -> None:
    """From step 500 on a third of the ratings come from a partner who rates from 0 to 100."""
    ratings(tape, percent_at=500)
