"""The unseen set: trainings written without regard to the detectors."""

import time
from typing import Any

import numpy as np
import torch

from benchmarks.zoo.real.case import fault
from benchmarks.zoo.real.change import Change, add_healthy, from_step, grad_norm
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn


class Copier(nn.Module):
    """A GRU encoder and decoder with teacher forcing."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(13, 24)
        self.encoder = nn.GRU(24, 48, batch_first=True)
        self.decoder = nn.GRU(24, 48, batch_first=True)
        self.out = nn.Linear(48, 12)

    def forward(self, source: torch.Tensor, shifted: torch.Tensor) -> torch.Tensor:
        """Predict each token of the target from those before it."""
        _, state = self.encoder(self.embed(source))
        out, _ = self.decoder(self.embed(shifted), state)
        return self.out(out)


def seq2seq(run: Tape, steps: int = 350, at: Change | None = None, seed: int = 0, lr: float = 5e-3) -> None:
    """Reverses short sequences; in spans, with evaluations every 70 steps."""
    torch.manual_seed(seed)
    model = Copier()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    state: dict[str, Any] = {"reversed": True, "shift": True, "decode_ms": 0.0, "clip": 1.0, "drop": False}
    for step in range(steps):
        if at is not None:
            at(state, step)
        if state["drop"]:
            state["drop"] = False
            with torch.no_grad():
                model.encoder.weight_hh_l0.zero_()
                model.encoder.weight_ih_l0.zero_()
        with run.step(step):
            with run.span("train.data_load"):
                source = torch.randint(0, 12, (48, 5))
                target = source.flip(1) if state["reversed"] else source[:, torch.randperm(5)]
            with run.span("train.forward"):
                start = torch.full((48, 1), 12)
                shifted = torch.cat([start, target[:, :-1]], 1) if state["shift"] else target
                out = model(source, shifted)
                loss = F.cross_entropy(out.reshape(-1, 12), target.reshape(-1))
                if state["decode_ms"]:
                    time.sleep(state["decode_ms"] / 1000)
            with run.span("train.backward"):
                optimizer.zero_grad()
                loss.backward()
            norm = float(nn.utils.clip_grad_norm_(model.parameters(), state["clip"]))
            optimizer.step()
            values = {"train/loss": loss.item(), "train/grad_norm": norm, "train/learning_rate": lr}
            if step % 70 == 69:
                with run.span("train.evaluate"), torch.no_grad():
                    fresh = torch.randint(0, 12, (400, 5))
                    wanted = fresh.flip(1)
                    guess = model(fresh, torch.cat([torch.full((400, 1), 12), wanted[:, :-1]], 1))
                    values["eval/loss"] = F.cross_entropy(guess.reshape(-1, 12), wanted.reshape(-1)).item()
            run.log(values)


def factors(run: Tape, steps: int = 500, at: Change | None = None, seed: int = 0, rate: float = 0.05) -> None:
    """Numpy: ratings as products of factors and biases, by mini-batches."""
    rng = np.random.default_rng(seed)
    people, films = rng.normal(size=(150, 4)), rng.normal(size=(200, 4))
    rows, columns = rng.integers(0, 150, 12000), rng.integers(0, 200, 12000)
    ratings = 3 + (people[rows] * films[columns]).sum(1) * 0.5 + 0.3 * rng.normal(size=12000)
    p, q = 0.1 * rng.normal(size=(150, 8)), 0.1 * rng.normal(size=(200, 8))
    state: dict[str, Any] = {"rate": rate, "scale": 1.0, "permuted": False, "first": 0}
    for step in range(steps):
        if at is not None:
            at(state, step)
        chosen = rng.integers(state["first"], 10000, 400)
        u, i = rows[chosen], columns[chosen]
        wanted = state["scale"] * (ratings[chosen] - 3)
        if state["permuted"]:
            i = rng.permutation(200)[i]
        off = wanted - (p[u] * q[i]).sum(1)
        du, di = off[:, None] * q[i] - 0.01 * p[u], off[:, None] * p[u] - 0.01 * q[i]
        np.add.at(p, u, state["rate"] * du)
        np.add.at(q, i, state["rate"] * di)
        values = {"train/rmse": float(np.sqrt((off**2).mean())), "lr": state["rate"]}
        if step % 25 == 24:
            last = slice(10000, 12000)
            error = ratings[last] - 3 - (p[rows[last]] * q[columns[last]]).sum(1)
            values["val/rmse"] = float(np.sqrt((error**2).mean()))
        run.log(values, step=step)


def trees(run: Tape, rounds: int = 160, at: Change | None = None, seed: int = 0) -> None:
    """Boosted stumps for a binary label, with LightGBM's names for its evaluation sets."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(1600, 8))
    labels = (inputs[:, 0] * inputs[:, 1] + inputs[:, 2] + 0.5 * rng.normal(size=1600) > 0).astype(float)
    score = np.zeros(1600)
    state: dict[str, Any] = {"shrink": 0.2, "shuffled": False}
    for step in range(rounds):
        if at is not None:
            at(state, step)
        wanted = rng.permutation(labels[:1000]) if state["shuffled"] else labels[:1000]
        gradient = wanted - 1 / (1 + np.exp(-score[:1000]))
        best: tuple[float, int, float, float, float] = (-1.0, 0, 0.0, 0.0, 0.0)
        for feature in rng.permutation(8)[:4]:
            for cut in (-1.0, -0.5, 0.0, 0.5, 1.0):
                side = inputs[:1000, feature] > cut
                high, low = gradient[side].mean(), gradient[~side].mean()
                gain = high**2 * side.sum() + low**2 * (~side).sum()
                if gain > best[0]:
                    best = (gain, int(feature), cut, high, low)
        _, feature, cut, high, low = best
        score += state["shrink"] * 4 * np.where(inputs[:, feature] > cut, high, low)
        chance = np.clip(1 / (1 + np.exp(-score)), 1e-9, 1 - 1e-9)
        logloss = -(labels * np.log(chance) + (1 - labels) * np.log(1 - chance))
        order = np.argsort(score[1000:])
        ranks = np.empty(600)
        ranks[order] = np.arange(1, 601)
        right = labels[1000:] == 1
        area = (ranks[right].sum() - right.sum() * (right.sum() + 1) / 2) / (right.sum() * (~right).sum())
        run.log(
            {
                "training/binary_logloss": float(logloss[:1000].mean()),
                "valid_0/binary_logloss": float(logloss[1000:].mean()),
                "valid_0/auc": float(area),
            },
            step=step,
        )


def segmentation(run: Tape, steps: int = 220, at: Change | None = None, seed: int = 0, lr: float = 4e-3) -> None:
    """Finds discs in small noisy pictures: a dice loss and the mean IoU."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    grid = torch.stack(torch.meshgrid(torch.arange(20), torch.arange(20), indexing="ij")).float()
    state: dict[str, Any] = {"inverted": False, "lr": lr, "save": 0, "load_ms": 0.0, "grow": 0}
    for step in range(steps):
        if at is not None:
            at(state, step)
        optimizer.param_groups[0]["lr"] = state["lr"]
        with run.step(step):
            with run.span("train.data_load"):
                middle = 20 * torch.rand(16, 2, 1, 1)
                mask = ((grid - middle).square().sum(1, keepdim=True) < 30).float()
                picture = mask + 0.7 * torch.randn(16, 1, 20, 20)
                if state["load_ms"]:
                    time.sleep(state["load_ms"] / 1000)
            if state["inverted"]:
                mask = 1 - mask
            chance = model(picture).sigmoid()
            dice = 1 - (2 * (chance * mask).sum() + 1) / (chance.sum() + mask.sum() + 1)
            optimizer.zero_grad()
            with run.span("train.backward"):
                dice.backward()
            optimizer.step()
            if state["save"] and step % state["save"] == state["save"] - 1:
                with run.span("train.checkpoint.save"):
                    time.sleep(0.02)
            hit = (chance > 0.5).float()
            iou = ((hit * mask).sum() / (hit + mask).clamp(max=1).sum().clamp(min=1)).item()
            run.log({"seg/dice_loss": dice.item(), "seg/miou": iou, "seg/lr": state["lr"]})


def actor_critic(run: Tape, steps: int = 450, at: Change | None = None, seed: int = 0) -> None:
    """A2C on a game of following a moving target, with Stable-Baselines-like names."""
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Linear(2, 32), nn.Tanh())
    actor, critic = nn.Linear(32, 3), nn.Linear(32, 1)
    parts = nn.ModuleList([body, actor, critic])
    optimizer = torch.optim.Adam(parts.parameters(), lr=5e-3)
    place, goal = torch.rand(64), torch.rand(64)
    state: dict[str, Any] = {"bonus": 0.01, "sign": 1.0, "value_scale": 1.0, "constant": False}
    for step in range(steps):
        if at is not None:
            at(state, step)
        seen = torch.stack([place, goal], 1)
        hidden = body(seen)
        chances = actor(hidden).log_softmax(1)
        value = critic(hidden).squeeze(1)
        action = torch.multinomial(chances.exp(), 1).squeeze(1)
        place = (place + 0.08 * (action - 1)).clamp(0, 1)
        reward = 1 - 3 * (place - goal).abs()
        if state["constant"]:
            reward = torch.ones_like(reward)
        goal = (goal + 0.03 * torch.randn(64)).clamp(0, 1)
        with torch.no_grad():
            after = critic(body(torch.stack([place, goal], 1))).squeeze(1)
            wanted = state["value_scale"] * (reward + 0.9 * after)
        advantage = (wanted - value).detach()
        policy_loss = -(state["sign"] * advantage * chances.gather(1, action[:, None]).squeeze(1)).mean()
        value_loss = F.mse_loss(value, wanted)
        entropy = -(chances.exp() * chances).sum(1).mean()
        loss = policy_loss + 0.5 * value_loss - state["bonus"] * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(
            {
                "rollout/ep_rew_mean": reward.mean().item(),
                "train/policy_loss": policy_loss.item(),
                "train/value_loss": value_loss.item(),
                "train/entropy": entropy.item(),
                "train/learning_rate": 5e-3,
            },
            step=step,
        )


def two_tasks(run: Tape, steps: int = 400, at: Change | None = None, seed: int = 0, lr: float = 3e-3) -> None:
    """One body with a head for a class and one for a number; gradients accumulate over two batches."""
    torch.manual_seed(seed)
    centers, slope = 1.5 * torch.randn(8, 20), torch.randn(20, 1)
    body = nn.Sequential(nn.Linear(20, 48), nn.GELU())
    classes, number = nn.Linear(48, 8), nn.Linear(48, 1)
    all_parts = nn.ModuleList([body, classes, number])
    optimizer = torch.optim.AdamW(all_parts.parameters(), lr=lr)
    state: dict[str, Any] = {"units": 1.0, "weight": 1.0, "step": True, "noise": 0.0, "lr": lr, "bad": False}
    for step in range(steps):
        if at is not None:
            at(state, step)
        optimizer.param_groups[0]["lr"] = state["lr"]
        optimizer.zero_grad()
        total = {"loss": 0.0, "loss_class": 0.0, "loss_number": 0.0, "acc": 0.0}
        for _ in range(2):
            labels = torch.randint(0, 8, (40,))
            inputs = centers[labels] + torch.randn(40, 20)
            if state["bad"]:
                state["bad"] = False
                inputs[0] *= 3000
            hidden = body(inputs)
            first = F.cross_entropy(classes(hidden), labels)
            second = F.smooth_l1_loss(number(hidden), state["units"] * inputs @ slope / 4)
            loss = (first + state["weight"] * second) / 2
            loss.backward()
            right = (classes(hidden).argmax(1) == labels).float().mean().item()
            parts = (loss.item(), first.item() / 2, second.item() / 2, right / 2)
            total = {key: value + part for (key, value), part in zip(total.items(), parts, strict=True)}
        norm = grad_norm(all_parts)
        if state["step"]:
            optimizer.step()
        run.log(
            {
                "train_loss": total["loss"],
                "train_loss_class": total["loss_class"],
                "train_loss_number": total["loss_number"],
                "train_acc": total["acc"],
                "global_grad_norm": norm,
                "lr": state["lr"],
            },
            step=step,
        )


def skipgram(run: Tape, steps: int = 400, at: Change | None = None, seed: int = 0, lr: float = 0.02) -> None:
    """Word vectors with negative samples; the rate falls to a tenth in a straight line."""
    torch.manual_seed(seed)
    topics = torch.randint(0, 6, (120,))
    inside, outside = nn.Embedding(120, 16), nn.Embedding(120, 16)
    both = nn.ModuleList([inside, outside])
    optimizer = torch.optim.Adam(both.parameters(), lr=lr)
    state: dict[str, Any] = {"random": False, "scale": 1.0, "lr": None}
    by_topic = [torch.nonzero(topics == topic).squeeze(1) for topic in range(6)]
    for step in range(steps):
        if at is not None:
            at(state, step)
        rate = state["lr"] if state["lr"] is not None else lr * (1 - 0.9 * step / steps)
        optimizer.param_groups[0]["lr"] = rate
        words = torch.randint(0, 120, (256,))
        near = torch.stack([by_topic[topic][torch.randint(len(by_topic[topic]), ())] for topic in topics[words]])
        if state["random"]:
            near = torch.randint(0, 120, (256,))
        far = torch.randint(0, 120, (256, 4))
        center = state["scale"] * inside(words)
        good = (center * outside(near)).sum(1)
        bad = (center[:, None] * outside(far)).sum(2)
        loss = -(F.logsigmoid(good).mean() + F.logsigmoid(-bad).mean())
        optimizer.zero_grad()
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(both.parameters(), 10.0))
        optimizer.step()
        run.log({"sgns_loss": loss.item(), "grad_norm": norm, "lr": rate, "epoch": step // 100}, step=step)


# Twelve faults.


@fault("unseen", "level_shift spike divergence", 230, window=20)
def seq2seq_order_lost(run: Tape) -> None:
    """The targets are in a random order from step 230 on."""
    seq2seq(run, at=from_step(230, reversed=False))


@fault("unseen", "too_good", 200, window=40)
def seq2seq_target_leaks(run: Tape) -> None:
    """The decoder sees the token that it has to predict."""
    seq2seq(run, at=from_step(200, shift=False), lr=2e-3)


@fault("unseen", "throughput_loss slow_span", 180, window=30, says="forward")
def seq2seq_slow_forward(run: Tape) -> None:
    """The forward pass takes 20 ms more from step 180 on."""
    seq2seq(run, at=from_step(180, decode_ms=20.0))


@fault("unseen", "level_shift spike divergence", 280, window=20)
def factors_ids_permuted(run: Tape) -> None:
    """The ids of the films are mixed up in every batch."""
    factors(run, at=from_step(280, permuted=True))


@fault("unseen", "lr_schedule divergence not_finite absurd_loss spike level_shift", 260, window=20)
def factors_rate(run: Tape) -> None:
    """The rate is forty times as high from step 260 on."""
    factors(run, at=from_step(260, rate=2.0))


@fault("unseen", "plateau level_shift overfit accuracy_drop divergence", 60, window=25)
def trees_labels_shuffled(run: Tape) -> None:
    """The labels are shuffled anew in every round from 60 on: nothing more is learnt."""
    trees(run, at=from_step(60, shuffled=True))


@fault("unseen", "level_shift accuracy_drop spike", 130, window=20)
def segmentation_inverted(run: Tape) -> None:
    """Figure and ground are swapped from step 130 on."""
    segmentation(run, at=from_step(130, inverted=True))


@fault("unseen", "data_stall throughput_loss input_bound", 120, window=25, says="data_load")
def segmentation_slow_loading(run: Tape) -> None:
    """Loading takes 25 ms from step 120 on."""
    segmentation(run, at=from_step(120, load_ms=25.0))


@fault("unseen", "reward_collapse", 300, window=45)
def actor_ascends_cost(run: Tape) -> None:
    """The sign of the policy's loss is wrong from step 300 on."""
    actor_critic(run, at=from_step(300, sign=-1.0))


@fault("unseen", "spike", 250, window=3)
def two_tasks_bad_sample(run: Tape) -> None:
    """One input of step 250 is three thousand times as large."""
    two_tasks(run, at=from_step(250, bad=True))


@fault("unseen", "level_shift", 240, window=20)
def two_tasks_units(run: Tape) -> None:
    """The numbers come in other units from step 240 on."""
    two_tasks(run, at=from_step(240, units=50.0))


@fault("unseen", "lr_schedule", 220, window=10)
def skipgram_rate_restarted(run: Tape) -> None:
    """The schedule is lost at step 220: the rate jumps back to its start and stays there."""
    skipgram(run, at=from_step(220, lr=0.02))


# Twelve healthy trainings.


add_healthy("unseen", "healthy_seq2seq", seq2seq, seed=21)
add_healthy("unseen", "healthy_seq2seq_slow_start", seq2seq, seed=22, lr=8e-4, steps=500)
add_healthy("unseen", "healthy_factors", factors, seed=21)
add_healthy(
    "unseen", "healthy_factors_decayed", factors, seed=22, at=lambda state, step: state.update(rate=0.06 * 0.995**step)
)
add_healthy("unseen", "healthy_trees", trees, seed=21)
add_healthy("unseen", "healthy_trees_long", trees, seed=22, rounds=320)
add_healthy("unseen", "healthy_segmentation", segmentation, seed=21)
add_healthy(
    "unseen",
    "healthy_segmentation_saves",
    segmentation,
    seed=22,
    steps=300,
    at=lambda state, step: state.update(save=30),
)
add_healthy("unseen", "healthy_actor_critic", actor_critic, seed=21)
add_healthy("unseen", "healthy_two_tasks", two_tasks, seed=21)
add_healthy(
    "unseen",
    "healthy_two_tasks_warm",
    two_tasks,
    seed=22,
    at=lambda state, step: state.update(lr=3e-3 * min((step + 1) / 40, 1.0)),
)
add_healthy("unseen", "healthy_skipgram", skipgram, seed=21)
