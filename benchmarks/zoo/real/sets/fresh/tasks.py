"""Models of the fresh set: two tasks, experts, clicks, a Q-network, a student, tags, pictures."""

import math
import random
import time
from typing import Any

import torch

from benchmarks.zoo.real.change import Change, grad_norm
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn
State = dict[str, Any]


def tasks(run: Tape, steps: int = 400, at: Change | None = None, seed: int = 0, batch: int = 64) -> None:
    """One trunk, a class and a depth of each point; both losses are logged, and weighted by learned uncertainties."""
    torch.manual_seed(seed)
    data = torch.randn(3000, 20)
    teacher = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 8)).requires_grad_(requires_grad=False)
    kinds, depths = teacher(data)[:, :6].argmax(1), 2 * teacher(data)[:, 6:7]
    trunk = nn.Sequential(nn.Linear(20, 64), nn.ReLU())
    kind, depth = nn.Linear(64, 6), nn.Linear(64, 1)
    doubt = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([*trunk.parameters(), *kind.parameters(), *depth.parameters(), doubt], lr=3e-3)
    state: State = {"weight": 1.0}
    for step in range(steps):
        if at is not None:
            at(state, step)
        with run.step(step):
            rows = torch.randint(0, 3000, (batch,))
            hidden = trunk(data[rows])
            of_kind = F.cross_entropy(kind(hidden), kinds[rows])
            of_depth = F.mse_loss(depth(hidden), depths[rows])
            parts = torch.stack([of_kind, state["weight"] * of_depth])
            loss = (parts * (-doubt).exp() + 0.5 * doubt).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log({"loss": loss.item(), "loss_class": of_kind.item(), "loss_depth": of_depth.item()})


def experts(run: Tape, steps: int = 350, at: Change | None = None, seed: int = 0) -> None:
    """A layer of eight experts, one for each token, with a loss that balances them."""
    torch.manual_seed(seed)
    data = torch.randn(4000, 16)
    target = torch.sin(2 * data[:, :4]) + data[:, 4:8].abs()
    router = nn.Linear(16, 8)
    layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4)) for _ in range(8))
    optimizer = torch.optim.Adam([*router.parameters(), *layers.parameters()], lr=4e-3)
    state: State = {"balance": 0.3, "bias": 0.0}
    for step in range(steps):
        if at is not None:
            at(state, step)
        with run.step(step):
            rows = torch.randint(0, 4000, (128,))
            chances = (router(data[rows]) + torch.tensor([state["bias"]] + [0.0] * 7)).softmax(1)
            best, chosen = chances.max(1)
            out = torch.stack([layer(data[rows]) for layer in layers], 1)[torch.arange(128), chosen]
            load = F.one_hot(chosen, 8).float().mean(0)
            balance = 8 * (load * chances.mean(0)).sum()
            loss = F.mse_loss(best[:, None] * out, target[rows])
            optimizer.zero_grad()
            (loss + state["balance"] * balance).backward()
            optimizer.step()
            run.log(
                {
                    "train/loss": loss.item(),
                    "moe/load_balancing_loss": balance.item(),
                    "moe/max_load": load.max().item(),
                    "moe/experts_used": float((load > 0.01).sum()),
                }
            )


def _auc(scores: torch.Tensor, clicked: torch.Tensor) -> float:
    ranks = scores.argsort().argsort().float() + 1
    ones = float(clicked.sum())
    return float((ranks[clicked > 0].sum() - ones * (ones + 1) / 2) / (ones * (len(clicked) - ones)))


def clicks(run: Tape, epochs: int = 30, at: Change | None = None, seed: int = 0, lr: float = 0.02) -> None:
    """Users and items as vectors, clicks from their products; logged once an epoch, with held-out figures."""
    torch.manual_seed(seed)
    users, items = torch.randn(200, 4), torch.randn(300, 4)
    pairs = torch.stack([torch.randint(0, 200, (16000,)), torch.randint(0, 300, (16000,))], 1)
    clicked = torch.bernoulli(torch.sigmoid(1.5 * (users[pairs[:, 0]] * items[pairs[:, 1]]).sum(1)))
    of_user, of_item = nn.Embedding(200, 8), nn.Embedding(300, 8)
    nn.init.normal_(of_user.weight, std=0.3)
    nn.init.normal_(of_item.weight, std=0.3)
    optimizer = torch.optim.AdamW([*of_user.parameters(), *of_item.parameters()], lr=lr, weight_decay=0.5)
    state: State = {"shift": 0, "buckets": 300}

    def score(rows: torch.Tensor) -> torch.Tensor:
        return (of_user(pairs[rows, 0] % state["buckets"]) * of_item(pairs[rows, 1] % state["buckets"])).sum(1)

    for epoch in range(epochs):
        if at is not None:
            at(state, epoch)
        total, parts = 0.0, torch.randperm(14000).split(500)
        with run.step(epoch):
            for rows in parts:
                loss = F.binary_cross_entropy_with_logits(score(rows), clicked[(rows + state["shift"]) % 14000])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() / len(parts)
            with torch.no_grad():
                rest = torch.arange(14000, 16000)
                held_out = score(rest)
                unseen = F.binary_cross_entropy_with_logits(held_out, clicked[rest]).item()
            run.log({"train_loss": total, "val_loss": unseen, "val_auc": _auc(held_out, clicked[rest])}, epoch)


def q_learning(run: Tape, episodes: int = 240, at: Change | None = None, seed: int = 0, floor: float = 0.05) -> None:
    """A Q-network with a replay buffer walks a line of nine cells to its right end; logged by episode."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    model, target = (nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 2)) for _ in range(2))
    target.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    buffer: list[tuple[int, int, float, int, bool]] = []
    state: State = {"epsilon": 1.0, "gamma": 0.95, "follow": True}
    cells = torch.eye(9)
    for episode in range(episodes):
        if at is not None:
            at(state, episode)
        state["epsilon"] = max(floor, state["epsilon"] * 0.97)
        place, total, length, losses, values = 3, 0.0, 0, [0.0], [0.0]
        with run.step(episode):
            for _ in range(40):
                with torch.no_grad():
                    known = model(cells[place])
                act = rng.randrange(2) if rng.random() < state["epsilon"] else int(known.argmax())
                act = 1 - act if rng.random() < 0.1 else act
                after = max(0, min(8, place + (1 if act else -1)))
                reward, done = (10.0, True) if after == 8 else (-1.0, False) if after == 0 else (-0.1, False)
                buffer.append((place, act, reward, after, done))
                place, total, length = after, total + reward, length + 1
                if len(buffer) > 64 and len(buffer) % 3 == 0:
                    batch = rng.sample(buffer[-3000:], 32)
                    here, acts, rewards, there, ends = (torch.tensor(each) for each in zip(*batch, strict=True))
                    with torch.no_grad():
                        best = (target if state["follow"] else model)(cells[there]).max(1).values
                    wanted = rewards.float() + state["gamma"] * best * (~ends).float()
                    mine = model(cells[here]).gather(1, acts[:, None])[:, 0]
                    loss = F.mse_loss(mine, wanted)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
                    values.append(mine.mean().item())
                if done:
                    break
            if episode % 5 == 0:
                target.load_state_dict(model.state_dict())
            run.log(
                {
                    "episode_return": total,
                    "episode_length": float(length),
                    "td_loss": sum(losses) / len(losses),
                    "q_values": sum(values) / len(values),
                    "epsilon": min(1.0, state["epsilon"]),
                }
            )


def student(run: Tape, steps: int = 350, at: Change | None = None, seed: int = 0, lr: float = 3e-3) -> None:
    """A small network learns from a large one at a temperature; one-cycle schedule, half precision's loss scale."""
    torch.manual_seed(seed)
    centers = 1.2 * torch.randn(10, 20)
    labels = torch.randint(0, 10, (3000,))
    data = centers[labels] + torch.randn(3000, 20)
    teacher = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(teacher.parameters(), lr=5e-3)
    for _ in range(120):
        rows = torch.randint(0, 2500, (64,))
        optimizer.zero_grad()
        F.cross_entropy(teacher(data[rows]), labels[rows]).backward()
        optimizer.step()
    model = nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Linear(24, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    state: State = {"temperature": 4.0, "huge": 0.0, "decay": 0.0}
    scale, good = 2.0**16, 0
    for step in range(steps):
        if at is not None:
            at(state, step)
        rise = min(1.0, (step + 1) / 100)
        rate = lr * (rise if step < 100 else 0.5 * (1 + math.cos(math.pi * (step - 100) / (steps - 100))))
        for group in optimizer.param_groups:
            group.update(lr=rate, weight_decay=state["decay"])
        with run.step(step):
            rows = torch.randint(0, 2500, (64,))
            with torch.no_grad():
                wanted = (teacher(data[rows]) / 4.0).softmax(1)
            out = model(data[rows])
            kd = F.kl_div((out / 4.0).log_softmax(1), wanted, reduction="batchmean") * state["temperature"] ** 2
            ce = F.cross_entropy(out, labels[rows])
            optimizer.zero_grad()
            (0.7 * kd + 0.3 * ce).backward()
            norm = grad_norm(model)
            over = norm * scale * (1 + state["huge"]) > 65504 * 20
            scale, good = (scale / 2, 0) if over else (scale * 2, 0) if good >= 60 else (scale, good + 1)
            if not over:
                optimizer.step()
            values = {"train/loss": 0.7 * kd.item() + 0.3 * ce.item(), "train/kd_loss": kd.item(), "train/lr": rate}
            run.log(values | {"amp/loss_scale": scale, "amp/skipped": float(over)})
            if step % 35 == 34:
                with torch.no_grad():
                    right = (model(data[2500:]).argmax(1) == labels[2500:]).float().mean().item()
                run.log({"val/accuracy": right})


def tags(
    run: Tape, steps: int = 350, at: Change | None = None, seed: int = 0, schedule: str = "cosine", lr: float = 4e-3
) -> None:
    """Tags the words of padded sentences with a bidirectional GRU; padding does not count."""
    torch.manual_seed(seed)
    embed, rnn, out = nn.Embedding(60, 24), nn.GRU(24, 32, batch_first=True, bidirectional=True), nn.Linear(64, 12)
    weights = [*embed.parameters(), *rnn.parameters(), *out.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=lr)
    tag_of = torch.randint(0, 6, (60,))
    state: State = {"ignore": 0, "twice": False, "load_ms": 0.0, "every": 0}
    for step in range(steps):
        if at is not None:
            at(state, step)
        progress = step * (2 if state["twice"] else 1) / steps
        rate = lr * (0.5 * (1 + math.cos(math.pi * progress)) if schedule == "cosine" else 0.9 ** (step // 60))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with run.step(step):
            with run.span("train.data_load"):
                words = torch.randint(1, 60, (16, 12))
                lengths = torch.randint(3, 13, (16,))
                words[torch.arange(12)[None] >= lengths[:, None]] = 0
                wanted = (tag_of[words] + (words.roll(1, 1) < 20)) % 6 + 1
                wanted = torch.where(words > 0, torch.where(torch.rand(16, 12) < 0.05, 1, wanted), 0)
                if state["every"] and step > 100 and (step * 7919) % state["every"] == 0:
                    time.sleep(state["load_ms"] / 1000)
            with run.span("train.forward"):
                scores = out(rnn(embed(words))[0])
                loss = F.cross_entropy(scores.transpose(1, 2), wanted, ignore_index=state["ignore"])
            with run.span("train.backward"):
                optimizer.zero_grad()
                loss.backward()
            norm = float(nn.utils.clip_grad_norm_(weights, 5.0))
            optimizer.step()
            run.log({"loss": loss.item(), "grad_norm": norm, "learning_rate": rate})


def pictures(
    run: Tape, epochs: int = 24, at: Change | None = None, seed: int = 0, batch: int = 50, every: int = 4
) -> None:
    """Convolutions with batch norm on small pictures; Keras-like figures at the end of each epoch."""
    torch.manual_seed(seed)
    labels = torch.randint(0, 6, (1400,))
    shapes = (torch.rand(6, 1, 10, 10) < 0.35).float()
    data = shapes[labels] + torch.randn(1400, 1, 10, 10) * 2.2 + 2.0
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3), nn.BatchNorm2d(12), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(12 * 36, 6)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    state: State = {"sorted": False, "momentum": 0.1, "decay": 1e-4}
    step = 0
    for epoch in range(epochs):
        if at is not None:
            at(state, epoch)
        for layer in model:
            if isinstance(layer, nn.BatchNorm2d):
                layer.momentum = state["momentum"]
        for group in optimizer.param_groups:
            group["weight_decay"] = state["decay"]
        order = labels[:1000].argsort() if state["sorted"] else torch.randperm(1000)
        total = right = 0.0
        for rows in order.split(batch):
            with run.step(step):
                out = model(data[rows])
                loss = F.cross_entropy(out, labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(rows) / 1000
                right += float((out.argmax(1) == labels[rows]).float().sum()) / 1000
                if step % every == 0:
                    run.log({"batch_loss": loss.item()})
            step += 1
        model.eval()
        with torch.no_grad():
            out = model(data[1000:])
        model.train()
        held_out = {
            "val_loss": F.cross_entropy(out, labels[1000:]).item(),
            "val_accuracy": (out.argmax(1) == labels[1000:]).float().mean().item(),
        }
        run.log({"epoch": float(epoch), "loss": total, "accuracy": right} | held_out)
