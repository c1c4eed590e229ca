"""Rows of the ninth set: tables, tastes, series, graphs, worlds, several tasks, and what takes time."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.ninth.tasks import (
    F,
    Rate,
    Values,
    dense,
    drive,
    half_wave,
    learn,
    nn,
    set_rate,
    share_right,
)
from benchmarks.zoo.real.tape import Tape

JUMP = "level_shift spike divergence"
Change = Callable[[int, torch.Tensor], torch.Tensor]


def ranked(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The share of pairs in which the row with the label has the higher score."""
    first, second = scores[labels > 0.5], scores[labels < 0.5]
    return (first[:, None] > second[None]).float().mean()


def customers(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Twelve properties of customers and which of them leave, about one in six."""
    rows = torch.randn(count, 12)
    level = 1.2 * rows[:, 0] - rows[:, 1] * rows[:, 2] + 0.8 * (rows[:, 3].abs() - 1) - 2.2
    return rows, (torch.rand(count) < level.sigmoid()).float()


def judge(
    tape: Tape,
    change: Change = lambda step, rows: rows,
    leak: bool = False,
    few: int = 6000,
    steps: int = 400,
    decay: Callable[[int], float] = lambda step: 0.01,
    width: int = 48,
    rate: Rate | None = None,
    look: int = 25,
    every: int = 5,
    even: bool = True,
) -> None:
    """Tell who leaves, by a network over a table."""
    torch.manual_seed(91)
    between = nn.LayerNorm(width) if even else nn.Identity()
    model = nn.Sequential(nn.Linear(12, width), between, nn.ReLU(), nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    rows, leave = customers(few)
    others, left = customers(600)
    if leak:
        rows[:, 11], others[:, 11] = 3 * leave, 3 * left
    total: list[float] = []

    def act(step: int) -> Values | None:
        set_rate(optimizer, (rate or half_wave(steps, 3e-3, 10, 3e-4))(step))
        for group in optimizer.param_groups:
            group["weight_decay"] = decay(step)
        taken = torch.randint(0, few, (64,))
        loss = F.binary_cross_entropy_with_logits(model(change(step, rows[taken]))[:, 0], leave[taken])
        norm = learn(optimizer, loss)
        total.append(float(loss.detach()))
        found: Values = {}
        if step % every == every - 1:
            found = {"train/logloss": sum(total[-every:]) / every, "train/gradient_norm": norm}
        if step % look == look - 1:
            with torch.no_grad():
                scores = model(others)[:, 0]
            found["valid/logloss"] = F.binary_cross_entropy_with_logits(scores, left)
            found["valid/auc"] = ranked(scores, left)
        return found

    drive(tape, steps, act)


@healthy("ninth")
def healthy_table(tape: Tape) -> None:
    """Who leaves, by mini-batches; what cannot be known keeps the loss far above zero."""
    judge(tape)


@fault("ninth", "too_good")
def table_with_a_date_of_leaving(tape: Tape) -> None:
    """A column was filled in after the customers had left: everything is right at the first look already."""
    judge(tape, leak=True, steps=300)


@fault("ninth", JUMP + " exploding_gradients gradient_shift", step=190)
def table_partition_in_cents(tape: Tape) -> None:
    """From step 190 on one column is read from a partition in cents, a hundred times as large."""

    def change(step: int, rows: torch.Tensor) -> torch.Tensor:
        return torch.cat([rows[:, :3], 100 * rows[:, 3:4], rows[:, 4:]], 1) if step >= 190 else rows

    judge(tape, change, even=False)


@fault("ninth", "overfit overtraining generalization_gap")
def table_of_two_hundred(tape: Tape) -> None:
    """A filter leaves two hundred customers: learnt by heart, while the others are judged worse and worse."""
    judge(tape, few=200, steps=500, width=160, rate=lambda step: 4e-3)


@fault("ninth", JUMP + " plateau", step=230)
def table_decay_of_another_optimizer(tape: Tape) -> None:
    """Resumed with a decay of 40 a step, as it had been for a rate a thousand times lower: weights go to nothing."""
    judge(tape, decay=lambda step: 40.0 if step >= 230 else 0.01, rate=lambda step: 2e-3, steps=360)


def boost(tape: Tape, rounds: int = 90) -> None:
    """Add small trees one after another, each to what is left, in the names of LightGBM."""
    torch.manual_seed(92)
    rows, leave = customers(900)
    others, left = customers(500)
    scores, unseen = torch.full((900,), -1.6), torch.full((500,), -1.6)

    def act(turn: int) -> Values:
        open_ = leave - scores.sigmoid()
        column, best = 0, (-1.0, 0.0)
        for at in torch.randperm(12)[:5].tolist():
            for cut in torch.randn(4).tolist():
                side = rows[:, at] > cut
                gain = float(open_[side].sum() ** 2 / (side.sum() + 1) + open_[~side].sum() ** 2 / ((~side).sum() + 1))
                if gain > best[0]:
                    column, best = at, (gain, cut)
        side, other = rows[:, column] > best[1], others[:, column] > best[1]
        up, down = (6 * open_[part].sum() / (part.sum() + 1) for part in (side, ~side))
        scores.add_(0.15 * torch.where(side, up, down))
        unseen.add_(0.15 * torch.where(other, up, down))
        lost = F.binary_cross_entropy_with_logits
        return {"training's binary_logloss": lost(scores, leave), "valid_1's binary_logloss": lost(unseen, left)}

    drive(tape, rounds, act)


@healthy("ninth")
def healthy_boosting(tape: Tape) -> None:
    """Ninety small trees, of which each adds less than the one before."""
    boost(tape)


def recommend(
    tape: Tape,
    steps: int = 320,
    item: Change = lambda step, items: items,
    against: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda wanted, drawn: drawn,
    day: float = 0.0,
) -> None:
    """Learn what follows what was bought, against drawn items, in the names of RecBole; days may differ."""
    torch.manual_seed(93)
    taste, users = torch.randn(60, 5), torch.randn(400, 5)
    model = nn.ModuleList([nn.Embedding(400, 12), nn.Embedding(60, 12)])
    for part in model:
        nn.init.normal_(part.weight, std=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)

    def act(step: int) -> Values | None:
        who = torch.randint(0, 400, (64,))
        noise = 1 + day * math.sin(2 * math.pi * step / 40)
        wanted = (users[who] @ taste.T + noise * torch.randn(64, 60)).argmax(1)
        drawn = against(wanted, torch.randint(0, 60, (64,)))
        near = [(model[0](who) * model[1](item(step, which))).sum(1) for which in (wanted, drawn)]
        loss = -F.logsigmoid(near[0] - near[1]).mean() + 2e-4 * sum(w.square().sum() for w in model.parameters()) / 64
        learn(optimizer, loss)
        found: Values = {"train/bpr_loss": loss} if step % 2 == 0 else {}
        if step % 40 == 39:
            with torch.no_grad():
                best = (model[0].weight @ model[1].weight.T).topk(10).indices
                found["valid/hit@10"] = (best == (users @ taste.T).argmax(1)[:, None]).any(1).float().mean()
        return found

    drive(tape, steps, act)


@healthy("ninth")
def healthy_tastes_by_the_day(tape: Tape) -> None:
    """Logs are read in order; at weekends people buy other things than usual, and the loss has that rhythm."""
    recommend(tape, day=0.5, steps=400)


@fault("ninth", JUMP, step=200)
def tastes_ids_hashed_anew(tape: Tape) -> None:
    """Items are numbered anew in the catalogue of step 200, and the table of what was learnt is not."""
    order = torch.randperm(60, generator=torch.Generator().manual_seed(5))
    recommend(tape, item=lambda step, items: order[items] if step >= 200 else items)


@fault("ninth", "not_learning plateau constant weights_frozen vanishing_gradients too_good posterior_collapse")
def tastes_against_themselves(tape: Tape) -> None:
    """The drawn items are a view of those that were bought: both sides are always equal, and the loss ln 2."""
    recommend(tape, against=lambda wanted, drawn: wanted, steps=240)


def forecast(
    tape: Tape,
    steps: int = 320,
    change: Change = lambda step, rows: rows,
    floor: float = 0.05,
    flat: bool = False,
    rate: float = 3e-3,
    every: int = 2,
) -> None:
    """Forecast a mean and a spread of power that is used, in the names of GluonTS: minus the logarithm of a density."""
    torch.manual_seed(94)
    model = dense((12, 48, 2), nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)

    def rows(count: int) -> torch.Tensor:
        at = torch.arange(13.0) + 50 * torch.rand(count, 1)
        wave = (2 * math.pi * at / 24).sin() + 0.4 * (2 * math.pi * at / 7).cos()
        return wave if flat else wave + 0.1 * torch.randn(count, 13)

    def act(step: int) -> Values | None:
        taken = change(step, rows(48))
        middle, wide = model(taken[:, :12]).unbind(1)
        spread = F.softplus(wide) + floor if floor else (6 * wide).exp()
        loss = -torch.distributions.Normal(middle, spread, validate_args=False).log_prob(taken[:, 12]).mean()
        norm = learn(optimizer, loss, 10.0 if floor else math.inf)
        found: Values = {"train_loss": loss, "grad_norm": norm} if step % every == 0 else {}
        if step % 50 == 49:
            with torch.no_grad():
                others = rows(200)
                found["mean_wQuantileLoss"] = (model(others[:, :12])[:, 0] - others[:, 12]).abs().mean()
        return found

    drive(tape, steps, act)


@healthy("ninth")
def healthy_power(tape: Tape) -> None:
    """A density: the loss goes below zero and on, in noise that grows as the spread gets small."""
    forecast(tape)


@fault("ninth", "not_finite divergence spike exploding_gradients oscillation level_shift")
def power_spread_without_floor(tape: Tape) -> None:
    """The spread is an exponential without a floor, and data have no noise: it nears zero, and a miss is dear."""
    forecast(tape, floor=0.0, flat=True, rate=2e-2, steps=400, every=1)


@fault("ninth", "not_finite", step=140, window=4)
def power_gap_in_the_meter(tape: Tape) -> None:
    """A meter had a gap, which is NaN in the rows of step 140; all weights are NaN after it."""

    def change(step: int, rows: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.arange(13) == 4, math.nan, rows) if step == 140 else rows

    forecast(tape, change=change, steps=200)


class Reaches(torch.nn.Module):  # type: ignore[misc]
    """Layers that average over neighbours."""

    def __init__(self, layers: int, width: int = 24, kinds: int = 4) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(16, width), nn.Linear(width, kinds)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, given: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        """Scores of the nodes."""
        hidden = self.first(given)
        for layer in self.layers:
            hidden = (near @ layer(hidden)).relu()
        scores: torch.Tensor = self.head(hidden)
        return scores


def reach(tape: Tape, layers: int, steps: int = 240, rate: float = 5e-3) -> None:
    """Tell the groups of people from whom they know; a part of the network is drawn at each step."""
    torch.manual_seed(95)
    group = torch.randint(0, 4, (500,))
    chance = torch.where(group[:, None] == group[None], 0.06, 0.012)
    known = (torch.rand(500, 500) < chance).float()
    known = ((known + known.T) > 0).float() + torch.eye(500)
    given = 0.5 * F.one_hot(group, 16).float() + torch.randn(500, 16)
    model = Reaches(layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)

    def act(step: int) -> Values | None:
        nodes = torch.randperm(400)[:160] if step % 30 != 29 else torch.arange(500)
        near = known[nodes][:, nodes]
        scores = model(given[nodes], near / near.sum(1, keepdim=True))
        if step % 30 == 29:
            with torch.no_grad():
                rest = scores[400:]
            return {"val/ce": F.cross_entropy(rest, group[400:]), "val/acc": share_right(rest, group[400:])}
        loss = F.cross_entropy(scores, group[nodes])
        norm = learn(optimizer, loss)
        return {"train/ce": loss, "train/acc": share_right(scores, group[nodes]), "train/grad": norm}

    drive(tape, steps, act)


@healthy("ninth")
def healthy_neighbours(tape: Tape) -> None:
    """Two layers over drawn parts of a network, which differ."""
    reach(tape, 2)


@fault("ninth", "not_learning vanishing_gradients plateau dead_units constant")
def neighbours_too_far(tape: Tape) -> None:
    """Fourteen layers where two were meant: all nodes look alike, and the loss stays that of guessing."""
    reach(tape, 14)


def dream(tape: Tape, steps: int = 320, weight: Rate = lambda step: 0.05) -> None:
    """Code what is seen and what comes next, as Dreamer logs it; `weight` is that of the divergence."""
    torch.manual_seed(96)
    code, guess = dense((20, 48, 12), nn.SiLU), dense((8, 32, 12), nn.SiLU)
    tell, pay = dense((6, 48, 20), nn.SiLU), dense((6, 24, 1), nn.SiLU)
    optimizer = torch.optim.Adam([w for net in (code, guess, tell, pay) for w in net.parameters()], lr=2e-3)
    seen_by = torch.randn(4, 20)

    def act(step: int) -> Values | None:
        place, push = torch.randn(48, 4), torch.randn(48, 2)
        after = 0.8 * place + 0.3 * torch.cat([push, push], 1)
        middle, wide = code(after @ seen_by).chunk(2, 1)
        prior = guess(torch.cat([place, push, torch.zeros(48, 2)], 1)).chunk(2, 1)
        own = torch.distributions.Normal(middle, F.softplus(wide) + 0.1)
        away = (
            torch.distributions.kl_divergence(own, torch.distributions.Normal(prior[0], F.softplus(prior[1]) + 0.1))
            .sum(1)
            .mean()
        )
        drawn = own.rsample()
        shown = (tell(drawn) - after @ seen_by).square().sum(1).mean()
        worth = (pay(drawn)[:, 0] - after[:, 0].tanh()).square().mean()
        norm = learn(optimizer, shown + worth + weight(step) * away, 100.0)
        values = {"wm/image_loss": shown, "wm/reward_loss": worth, "wm/kl": away, "wm/grad_norm": norm}
        return values if step % 2 == 0 else None

    drive(tape, steps, act)


@healthy("ninth")
def healthy_dreams(tape: Tape) -> None:
    """The divergence rises first and falls later, while pictures and rewards are told better and better."""
    dream(tape)


@fault("ninth", "posterior_collapse level_shift divergence spike", step=160, window=40)
def dreams_of_nothing(tape: Tape) -> None:
    """The divergence is summed over all places since a merge, as if it weighed 200: codes carry nothing any more."""
    dream(tape, weight=lambda step: 200.0 if step >= 160 else 0.05)


def several(tape: Tape, empty: int = 9999, steps: int = 300) -> None:
    """Learn three tasks from the same rows with weights that are learnt too; from a step on one has no rows."""
    torch.manual_seed(97)
    trunk, heads = dense((10, 48, 24)), nn.ModuleList(nn.Linear(24, 1) for _ in range(3))
    doubt = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters(), doubt], lr=2e-3)

    def act(step: int) -> Values | None:
        rows = torch.randn(40, 10)
        wanted = [rows[:, 0] * rows[:, 1], rows[:, 2].abs() + 0.3 * torch.randn(40), rows[:, 3:6].sum(1).sin()]
        hidden = trunk(rows).relu()
        losses = [F.smooth_l1_loss(head(hidden)[:, 0], each) for head, each in zip(heads, wanted, strict=True)]
        if step >= empty:
            losses[1] = 0.0 * losses[1]
        loss = sum((-doubt[at]).exp() * each + 0.5 * doubt[at] for at, each in enumerate(losses))
        learn(optimizer, loss, 5.0)
        values = {f"loss_{name}": each for name, each in zip(("demand", "delay", "angle"), losses, strict=True)}
        return {"loss_total": loss, **values} if step % 3 == 0 else None

    drive(tape, steps, act)


@healthy("ninth")
def healthy_three_tasks(tape: Tape) -> None:
    """Three losses of different size, and a sum that goes below zero as its weights are learnt."""
    several(tape)


@fault("ninth", "constant too_good level_shift spike plateau", step=150, window=40)
def tasks_one_without_rows(tape: Tape) -> None:
    """The table of delays ends at step 150 and is padded: its mask is empty and its loss exactly zero from there."""
    several(tape, empty=150)


def timed(
    tape: Tape,
    load: Callable[[int], float],
    forward: Callable[[int], float] = lambda step: 0.004,
    steps: int = 220,
    repeated: int = 9999,
) -> None:
    """Fit a small regression whose loading and forward pass take time."""
    torch.manual_seed(98)
    model = dense((8, 64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    kept: list[Any] = []
    for step in range(steps):
        with tape.step(step):
            with tape.span("train.data_load"):
                time.sleep(load(step))
                rows = torch.randn(32, 8)
                wanted = (rows[:, :2].prod(1) + rows[:, 2].sin() + 0.2 * torch.randn(32))[:, None]
                if step == repeated:
                    kept[:] = [rows, wanted]
                if kept:
                    rows, wanted = kept
            with tape.span("train.forward"):
                time.sleep(forward(step))
                loss = F.mse_loss(model(rows), wanted)
            with tape.span("train.backward"):
                norm = learn(optimizer, loss)
            if step % 5 == 0:
                tape.log({"mse": float(loss.detach()), "grad_norm": float(norm)})


@healthy("ninth")
def healthy_waits_of_any_length(tape: Tape) -> None:
    """Loading takes from one to six milliseconds, without a rule."""
    lengths = torch.rand(220, generator=torch.Generator().manual_seed(3)).tolist()
    timed(tape, lambda step: 0.001 + 0.005 * lengths[step])


@fault("ninth", "data_stall throughput_loss slow_span input_bound", step=120, window=15)
def waits_for_a_cold_cache(tape: Tape) -> None:
    """The local copy is full at step 120: the rest is read from the bucket, five times as slowly."""
    timed(tape, lambda step: 0.020 if step >= 120 else 0.004)


@fault("ninth", "periodic_stall data_stall slow_span", step=100, window=120)
def waits_for_new_workers(tape: Tape) -> None:
    """Workers are not kept: each pass of 25 batches begins with 150 ms in which they start."""
    timed(tape, lambda step: 0.15 if step % 25 == 0 else 0.002)


@fault("ninth", "throughput_loss slow_span", step=110, window=20)
def waits_for_a_slow_kernel(tape: Tape) -> None:
    """A fused kernel is not found for another shape: the forward pass takes four times as long from step 110 on."""
    timed(tape, lambda step: 0.002, lambda step: 0.016 if step >= 110 else 0.004)


@fault("ninth", "too_good stuck_batch level_shift", step=100, window=50)
def rows_the_same_batch(tape: Tape) -> None:
    """An iterator is made anew at each step since an update, with the same seed: it is always the first batch."""
    timed(tape, lambda step: 0.0, lambda step: 0.0, steps=400, repeated=100)
