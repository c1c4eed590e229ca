"""The eleventh set: trainings with nothing wrong that look odd: densities, triplets, late insight, experts, thawing."""

import math
from typing import Any

import torch

from benchmarks.zoo.real.case import healthy
from benchmarks.zoo.real.sets.eleventh.pictures import spiral
from benchmarks.zoo.real.sets.eleventh.tasks import (
    F,
    Values,
    cosine,
    dense,
    drive,
    eye,
    learn,
    nn,
    outlines,
    set_rate,
    share_right,
    twin,
)
from benchmarks.zoo.real.tape import Tape


@healthy("eleventh", config={"model": "RealNVP", "layers": 6, "max_steps": 500})
def healthy_density(tape: Tape) -> None:
    """The density of points by couplings: a loss that falls below 0."""
    torch.manual_seed(1001)
    parts = nn.ModuleList(dense((1, 32, 32, 2), nn.Tanh) for _ in range(6))
    optimizer = torch.optim.Adam(parts.parameters(), 3e-3)
    rate = cosine(500, 3e-3)

    def act(step: int) -> Values | None:
        now = set_rate(optimizer, rate(step))
        x = spiral(96) / 3
        sizes = torch.zeros(96)
        for place, part in enumerate(parts):
            kept, moved = (x[:, :1], x[:, 1:]) if place % 2 else (x[:, 1:], x[:, :1])
            log, shift = part(kept).chunk(2, -1)
            moved = moved * log.tanh().exp() + shift
            sizes = sizes + log.tanh()[:, 0]
            x = torch.cat([kept, moved], 1) if place % 2 else torch.cat([moved, kept], 1)
        loss = (0.5 * x.square().sum(1) + math.log(2 * math.pi) - sizes).mean()
        norm = learn(optimizer, loss, 5.0)
        return {"train/nll": loss, "train/grad_norm": norm, "train/lr": now} if step % 4 == 0 else None

    drive(tape, 500, act)


@healthy("eleventh", config={"loss": "TripletMargin", "margin": 0.3, "sampler": "PK"})
def healthy_triplets(tape: Tape) -> None:
    """Triplets of outlines: ever fewer of them count, and the loss comes close to 0."""
    torch.manual_seed(1002)
    model = eye(width=8)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)

    def act(step: int) -> Values | None:
        x, labels, _ = outlines(50, 0.25)
        found = F.normalize(model(x), dim=-1)
        far = torch.cdist(found, found)
        same = labels[:, None] == labels
        hinge = (far[:, :, None] - far[:, None] + 0.3).relu()
        counted = same[:, :, None] & ~same[:, None]
        active = hinge[counted] > 0
        loss = hinge[counted].mean()
        learn(optimizer, loss, 1.0)
        found_values = {"triplet_loss": loss, "frac_active": active.float().mean()}
        return found_values | {"mean_neg_dist": far[~same].mean(), "mean_pos_dist": far[same].mean()}

    drive(tape, 260, act)


@healthy("eleventh", config={"task": "parity", "bits": 10, "secret": 3, "max_steps": 700})
def healthy_late_insight(tape: Tape) -> None:
    """The parity of three of ten bits: for a long time it is a guess, and then it is known."""
    torch.manual_seed(1003)
    model = dense((10, 96, 2), nn.ReLU)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.01)

    def act(step: int) -> Values | None:
        x = torch.randint(0, 2, (64, 10)).float() * 2 - 1
        y = (x[:, 1] * x[:, 4] * x[:, 7] > 0).long()
        scores = model(x)
        loss = F.cross_entropy(scores, y)
        norm = learn(optimizer, loss)
        return {"loss": loss, "acc": share_right(scores, y), "grad_norm": norm} if step % 3 == 0 else None

    drive(tape, 700, act)


class Experts(nn.Module):  # type: ignore[misc]
    """Four networks, of which a router asks the best for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.route = nn.Linear(6, 4)
        self.nets = nn.ModuleList(dense((6, 24, 1), nn.GELU) for _ in range(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The answers, and the shares of the experts for each row."""
        shares = self.route(x).softmax(-1)
        best = shares.max(-1)
        out = torch.stack([net(x)[:, 0] for net in self.nets], 1)
        return out.gather(1, best.indices[:, None])[:, 0] * best.values, shares


@healthy("eleventh", config={"num_experts": 4, "top_k": 1, "router_aux_loss_coef": 0.5})
def healthy_experts(tape: Tape) -> None:
    """A table by four experts, with a loss that keeps their loads alike."""
    torch.manual_seed(1004)
    model = Experts()
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    rate = cosine(400, 5e-3)

    def act(step: int) -> Values | None:
        now = set_rate(optimizer, rate(step))
        x = torch.randn(96, 6)
        y = torch.where(x[:, 0] > 0, x[:, 1] * 2, x[:, 2].abs()) + torch.where(x[:, 3] > 0, x[:, 4], -x[:, 5])
        out, shares = model(x)
        load = F.one_hot(shares.argmax(-1), 4).float().mean(0)
        even = 4 * (load * shares.mean(0)).sum()
        loss = F.mse_loss(out, y)
        learn(optimizer, loss + 0.5 * even, 1.0)
        found = {"train/loss": loss, "train/router_aux_loss": even, "train/lr": now}
        return found | {f"moe/load/expert_{at}": load[at] for at in range(4)} if step % 4 == 0 else None

    drive(tape, 400, act)


@healthy("eleventh", config={"unfreeze_at_epoch": [6, 12], "discriminative_lr": True, "max_epochs": 20})
def healthy_thawed(tape: Tape) -> None:
    """A network from another task: first the head, then one more layer, then all, with a smaller rate each time."""
    torch.manual_seed(1005)
    model = eye(width=8)
    other = nn.Linear(16, 2)
    before = torch.optim.Adam([*model.parameters(), *other.parameters()], 3e-3)
    for _ in range(60):
        x, labels, _ = outlines(40)
        learn(before, F.cross_entropy(other(model[:-1](x)), (labels > 1).long()))
    parts = list(model.children())
    groups = [parts[-1:], parts[8:-1], parts[:8]]
    x, y, _ = outlines(600)
    vx, vy, _ = outlines(300)

    def act(epoch: int) -> Values:
        stage = (epoch >= 6) + (epoch >= 12)
        weights = [weight for group in groups[: stage + 1] for part in group for weight in part.parameters()]
        rate = 3e-3 / (1, 2, 4)[stage]
        optimizer = state["optimizer"] if state["stage"] == stage else torch.optim.Adam(weights, rate)
        state.update(optimizer=optimizer, stage=stage)
        total = 0.0
        for rows in torch.randperm(600).split(40):
            loss = F.cross_entropy(model(x[rows]), y[rows])
            for weight in model.parameters():
                weight.grad = None
            loss.backward()
            optimizer.step()
            total += loss.item() / 15
        model.eval()
        with torch.no_grad():
            scores = model(vx)
        model.train()
        found = {"epoch": epoch, "train_loss": total, "valid_loss": F.cross_entropy(scores, vy)}
        return found | {"error_rate": 1 - share_right(scores, vy), "lr": rate, "unfrozen_layers": stage + 1}

    state: dict[str, Any] = {"optimizer": None, "stage": -1}
    drive(tape, 20, act)


@healthy("eleventh", config={"algo": "REINFORCE", "baseline": "mean", "arms": 12})
def healthy_lottery(tape: Tape) -> None:
    """A policy among twelve prizes with heavy tails, by plain policy gradients: noisy rewards."""
    torch.manual_seed(1006)
    policy = dense((3, 32, 12), nn.Tanh)
    optimizer = torch.optim.Adam(policy.parameters(), 4e-3)
    worth = torch.randn(3, 12)

    def act(step: int) -> Values | None:
        given = torch.randint(0, 3, (32,))
        odds = torch.distributions.Categorical(logits=policy(F.one_hot(given, 3).float()))
        chosen = odds.sample()
        reward = worth[given, chosen] + torch.distributions.StudentT(torch.tensor(3.0)).sample((32,))
        edge = reward - reward.mean()
        loss = -(odds.log_prob(chosen) * edge).mean() - 0.01 * odds.entropy().mean()
        learn(optimizer, loss, 1.0)
        if step % 3:
            return None
        return {"episode_reward": reward.mean(), "policy_loss": loss, "policy_entropy": odds.entropy().mean()}

    drive(tape, 450, act)


@healthy("eleventh", config={"swa_start": 24, "swa_lr": 0.004, "epochs": 36})
def healthy_averaged_at_the_end(tape: Tape) -> None:
    """From epoch 24 on the rate is raised to a constant, and the weights are averaged, as the settings say."""
    torch.manual_seed(1007)
    x, y, _ = outlines(500, 0.7)
    vx, vy, _ = outlines(300, 0.7)
    model = eye(width=6, normed=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.03, momentum=0.9)
    rate = cosine(24, 0.03, 2, 0.02)
    average = twin(model)

    def act(epoch: int) -> Values:
        now = set_rate(optimizer, rate(epoch) if epoch < 24 else 0.004)
        total = 0.0
        for rows in torch.randperm(500).split(25):
            loss = F.cross_entropy(model(x[rows]), y[rows])
            learn(optimizer, loss, 2.0)
            total += loss.item() / 20
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.lerp_(new.detach(), 1.0 if epoch < 24 else 1 / (epoch - 22))
        with torch.no_grad():
            scores = average(vx)
        found = {"train/epoch_loss": total, "train/lr": now, "val/swa_loss": F.cross_entropy(scores, vy)}
        return found | {"val/swa_acc": share_right(scores, vy)}

    drive(tape, 36, act)


@healthy("eleventh", config={"objective": "regression", "teacher": True})
def healthy_without_any_noise(tape: Tape) -> None:
    """A network copies another without noise: the loss falls over four decades and never stops."""
    torch.manual_seed(1008)
    teacher, student = twin(dense((6, 12, 1), nn.Tanh)), dense((6, 40, 1), nn.Tanh)
    optimizer = torch.optim.Adam(student.parameters(), 1e-2)
    rate = cosine(800, 1e-2, 5, 0.01)

    def act(step: int) -> Values | None:
        now = set_rate(optimizer, rate(step))
        x = torch.randn(128, 6)
        loss = F.mse_loss(student(x), teacher(x))
        norm = learn(optimizer, loss)
        return {"mse": loss, "gradient_norm": norm, "step_size": now} if step % 5 == 0 else None

    drive(tape, 800, act)
