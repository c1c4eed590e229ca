"""Tables, series, graphs, words and formulas: trainings by epochs and by steps, in the names of several trainers."""

import copy
import math
import time

import torch

from benchmarks.zoo.real.case import healthy
from benchmarks.zoo.real.sets.fifteenth.tasks import (
    F,
    Means,
    Pair,
    Told,
    Values,
    cosine,
    dense,
    drive,
    eye,
    fit,
    judged,
    line,
    nn,
    right,
    stripes,
    update,
)
from benchmarks.zoo.real.tape import Tape


def houses(count: int, noise: float = 0.3) -> Pair:
    """Twelve properties, and a price."""
    x = torch.randn(count, 12)
    price = x[:, 0] * x[:, 1] + (2 * x[:, 2]).sin() + 0.5 * x[:, 3:7].sum(1) + x[:, 7].abs()
    return x, price + noise * torch.randn(count)


@healthy(
    "fifteenth", {"optimizer": "adam", "epochs": 60, "callbacks": ["ReduceLROnPlateau", "EarlyStopping"], "patience": 8}
)
def keras_stopped_early(tape: Tape) -> None:
    """The rate halves where the held-out loss stands, and the training stops where that no longer helps."""
    torch.manual_seed(1531)
    train, test = houses(1920), houses(800)
    model = dense(12, 48, 24, 1, drop=0.05)
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=1e-4)
    rate, best, waited = 4e-3, math.inf, 0
    for epoch in range(60):
        with tape.step(epoch):
            means = Means()
            for part in torch.randperm(1920).view(-1, 64):
                out = model(train[0][part])[:, 0]
                loss = F.mse_loss(out, train[1][part])
                update(optimizer, loss, 1e9, rate)
                means.add(loss=loss.detach(), mae=(out - train[1][part]).abs().mean().detach())
            model.eval()
            with torch.no_grad():
                off = model(test[0])[:, 0] - test[1]
            model.train()
            seen = float(off.square().mean())
            tape.log({**means.take()[0], "val_loss": seen, "val_mae": float(off.abs().mean()), "learning_rate": rate})
        best, waited = (seen, 0) if seen < best - 1e-3 else (best, waited + 1)
        if waited and waited % 3 == 0:
            rate /= 2
        if waited == 8:
            break


@healthy(
    "fifteenth",
    {"optimizer": "adam", "class_weight": {"0": 0.52, "1": 12.5}, "metrics": ["AUC", "Precision", "Recall"]},
)
def keras_rare_frauds(tape: Tape) -> None:
    """Four in a hundred are frauds and weigh more: precision stays low, as it must, and the rest climbs."""
    torch.manual_seed(1532)
    axis, model = F.normalize(torch.randn(10), dim=0), dense(10, 16, 1)
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=1e-3)

    def data(count: int) -> Pair:
        rare = (torch.rand(count) < 0.04).float()
        return torch.randn(count, 10) + rare[:, None] * axis * 2.6, rare

    train, test = data(6000), data(3000)

    def told(scores: torch.Tensor, rare: torch.Tensor) -> dict[str, float]:
        place, good = scores.argsort().argsort().float() + 1, rare.sum()
        auc = ((place * rare).sum() - good * (good + 1) / 2) / (good * (len(rare) - good))
        hits = ((scores > 0) * rare).sum()
        loss = F.binary_cross_entropy_with_logits(scores, rare, weight=0.52 + 11.98 * rare)
        shares = {"precision": hits / (scores > 0).sum().clamp(min=1), "recall": hits / good}
        return {key: float(value) for key, value in {"loss": loss, "auc": auc, **shares}.items()}

    def act(epoch: int) -> Values:
        for part in torch.randperm(6000).view(-1, 120):
            scores, rare = model(train[0][part])[:, 0], train[1][part]
            update(optimizer, F.binary_cross_entropy_with_logits(scores, rare, weight=0.52 + 11.98 * rare), 1e9, 5e-4)
        with torch.no_grad():
            own, other = told(model(train[0])[:, 0], train[1]), told(model(test[0])[:, 0], test[1])
        return {**own, **{f"val_{key}": value for key, value in other.items()}}

    drive(tape, 30, act)


@healthy(
    "fifteenth",
    {"resume_from_checkpoint": "checkpoint-300", "max_steps": 600, "learning_rate": 3e-3, "logging_steps": 10},
)
def trainer_resumed(tape: Tape) -> None:
    """Goes on from step 300 with the state of its optimizer and the rate of that step."""
    torch.manual_seed(1533)
    train, test, model = houses(5000), houses(800), dense(12, 64, 64, 1, act=nn.GELU)
    optimizer, rate, means = torch.optim.AdamW(model.parameters(), weight_decay=0.01), line(600, 3e-3, 30), Means()

    def learn(step: int) -> None:
        part = torch.randint(0, 5000, (32,))
        loss = F.smooth_l1_loss(model(train[0][part])[:, 0], train[1][part])
        means.add(grad_norm=update(optimizer, loss, 1.0, rate(step)), loss=loss.detach())

    for step in range(300):
        learn(step)
    means.take()

    def act(step: int) -> Values | None:
        learn(step)
        found: Values = {}
        if step % 10 == 9:
            found = {**means.take()[0], "learning_rate": rate(step), "epoch": (step + 1) * 32 / 5000}
        if step % 100 == 99:
            begun = time.perf_counter()
            with torch.no_grad(), tape.span("evaluate"):
                found["eval_loss"] = F.smooth_l1_loss(model(test[0])[:, 0], test[1])
            found["eval_runtime"] = time.perf_counter() - begun
        return found

    drive(tape, 300, act, start=300)


@healthy(
    "fifteenth", {"problem": "damped oscillator", "optimizer": "Adam", "lr": 5e-3, "decay": 0.996, "lambda_ic": 5.0}
)
def physics_of_a_spring(tape: Tape) -> None:
    """A network that fits an equation and how it begins: the loss falls through several decades."""
    torch.manual_seed(1534)
    model = dense(1, 24, 24, 1, act=nn.Tanh)

    def loss_of(step: int) -> Told:
        t = torch.rand(48, 1, requires_grad=True) * 2
        x = model(t)
        (v,) = torch.autograd.grad(x.sum(), t, create_graph=True)
        (a,) = torch.autograd.grad(v.sum(), t, create_graph=True)
        begin = torch.zeros(1, 1, requires_grad=True)
        x0 = model(begin)
        (v0,) = torch.autograd.grad(x0.sum(), begin, create_graph=True)
        inner, edge = (a + 0.4 * v + 4 * x).square().mean(), (x0 - 1).square().mean() + v0.square().mean()
        return inner + 5 * edge, {"loss_pde": inner, "loss_ic": edge}

    def check() -> Values:
        grid, speed = torch.linspace(0, 2, 60)[:, None], math.sqrt(4 - 0.04)
        true = (-0.2 * grid).exp() * ((speed * grid).cos() + 0.2 / speed * (speed * grid).sin())
        return {"rel_l2": (model(grid) - true).norm() / true.norm()}

    optimizer = torch.optim.Adam(model.parameters())
    fit(tape, optimizer, loss_of, 900, lambda step: 5e-3 * 0.996**step, "loss lr grad_norm", 10.0, check=check)


class Coupling(nn.Module):  # type: ignore[misc]
    """Moves and stretches one half of the values by what the other half says."""

    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.turned, self.net = turned, dense(2, 32, 4, act=nn.Tanh)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The values after it, and the logarithm of the volume."""
        one, two = x.chunk(2, 1)[:: -1 if self.turned else 1]
        move, stretch = self.net(one).chunk(2, 1)
        two = two * (1.5 * stretch.tanh()).exp() + move
        return torch.cat([two, one] if self.turned else [one, two], 1), (1.5 * stretch.tanh()).sum(1)


@healthy("fifteenth", {"model": "realnvp", "couplings": 6, "lr": 2e-3, "dims": 4})
def flow_below_zero(tape: Tape) -> None:
    """A density on thin curves: the negative log likelihood goes through zero and on."""
    torch.manual_seed(1535)
    parts = nn.ModuleList(Coupling(bool(at % 2)) for at in range(6))

    def nll(count: int) -> torch.Tensor:
        t = torch.randn(count)
        x = torch.stack([0.6 * t, 0.3 * t * t - 0.3, (1.5 * t).sin() * 0.5, 0.2 * torch.randn(count)], 1)
        x, volume = x + 0.06 * torch.randn(count, 4), torch.zeros(count)
        for part in parts:
            x, more = part(x)
            volume = volume + more
        return (0.5 * x.square().sum(1) + 4 * 0.919 - volume).mean()

    optimizer, names = torch.optim.Adam(parts.parameters()), "train/nll train/lr train/grad_norm"
    rate = cosine(450, 2e-3, 0, 0.02)
    fit(tape, optimizer, lambda step: (nll(128), {}), 450, rate, names, 5.0, check=lambda: {"val/nll": nll(2000)})


@healthy("fifteenth", {"tasks": ["price", "kind", "age"], "weighting": "uncertainty", "lr": 4e-3})
def three_tasks_that_weigh_themselves(tape: Tape) -> None:
    """Three tasks of which each has a weight that is learned."""
    torch.manual_seed(1536)
    body, heads = dense(12, 64, 48), nn.ModuleList([nn.Linear(48, 1), nn.Linear(48, 4), nn.Linear(48, 1)])
    weights, axes = nn.Parameter(torch.zeros(3)), torch.randn(4, 12)

    def loss_of(step: int) -> Told:
        x, price = houses(48, 0.1)
        kind = (x @ axes.T + 0.5 * torch.randn(48, 4)).argmax(1)
        age = 0.3 * x[:, 8] * x[:, 9] + 0.1 * torch.randn(48)
        y = body(x).relu()
        a, b, c = (head(y) for head in heads)
        parts = torch.stack([F.mse_loss(a[:, 0], price), F.cross_entropy(b, kind), F.mse_loss(c[:, 0], age)])
        found: Values = {"acc/kind": right(b, kind)}
        for name, part, weight in zip(("price", "kind", "age"), parts, weights, strict=True):
            found |= {f"loss/{name}": part, f"weight/{name}": (-weight).exp()}
        return ((-weights).exp() * parts + 0.5 * weights).sum(), found

    optimizer = torch.optim.Adam([*body.parameters(), *heads.parameters(), weights])
    fit(tape, optimizer, loss_of, 420, line(420, 4e-3, 20), "total_loss - -", 5.0)


@healthy("fifteenth", {"model": "DeepAR-like", "distr_output": "StudentT", "context_length": 12, "lr": 2e-3})
def lightning_series_with_jumps(tape: Tape) -> None:
    """Series with rare jumps: a loss with a tail to one side, also at its end."""
    torch.manual_seed(1537)
    model = dense(12, 48, 32, 2)

    def loss_of(count: int) -> torch.Tensor:
        t = torch.arange(13) + 24 * torch.rand(count, 1)
        x = (t * 6.283 / 12).sin() * (0.5 + torch.rand(count, 1)) + 0.15 * torch.randn(count, 13)
        x = x + (torch.rand(count, 13) < 0.004) * 4 * torch.randn(count, 13)
        middle, spread = model(x[:, :12]).chunk(2, 1)
        off = (x[:, 12:] - middle) / (F.softplus(spread) + 0.02)
        return (2.5 * (1 + off.square() / 4).log() + (F.softplus(spread) + 0.02).log() + 0.98).mean()

    optimizer, names = torch.optim.Adam(model.parameters()), "train_loss - grad_2.0_norm_total"
    steps = (lambda step: (loss_of(32), {"epoch": step // 250}), 500, lambda step: 2e-3)
    fit(tape, optimizer, *steps, names, 10.0, check=lambda: {"val_loss": loss_of(6000)})


@healthy("fifteenth", {"model": "GCN", "hidden": 16, "dropout": 0.5, "weight_decay": 5e-4, "lr": 0.01, "epochs": 80})
def graph_all_at_once(tape: Tape) -> None:
    """All nodes of a graph in each step, half of the values dropped: a training loss above the one held out."""
    torch.manual_seed(1539)
    labels = torch.randint(0, 5, (500,))
    same = labels[:, None] == labels
    edges = (torch.rand(500, 500) < torch.where(same, 0.03, 0.004)).float()
    edges = ((edges + edges.T) > 0).float().fill_diagonal_(1)
    scale = edges.sum(1).rsqrt()
    edges = (scale[:, None] * edges * scale).to_sparse()
    x = F.one_hot(labels, 5).float() @ torch.randn(5, 24) + 2.5 * torch.randn(500, 24)
    one, two, drop = nn.Linear(24, 16), nn.Linear(16, 5), nn.Dropout(0.5)
    optimizer = torch.optim.Adam([*one.parameters(), *two.parameters()], 0.01, weight_decay=5e-4)
    turns = torch.randperm(500)
    train, val, test = turns[:250], turns[250:350], turns[350:]

    def model() -> torch.Tensor:
        return torch.sparse.mm(edges, two(drop(torch.sparse.mm(edges, one(drop(x))).relu())))

    def act(epoch: int) -> Values:
        drop.train()
        loss = F.cross_entropy(model()[train], labels[train])
        update(optimizer, loss)
        drop.eval()
        with torch.no_grad():
            scores = model()
        found = {"Loss/train": loss, "Loss/val": F.cross_entropy(scores[val], labels[val])}
        parts = {"train": train, "val": val, "test": test}
        return found | {f"Acc/{name}": right(scores[part], labels[part]) for name, part in parts.items()}

    drive(tape, 80, act)


@healthy("fifteenth", {"model": "linear probe", "steps": 30, "lr": 0.05})
def thirty_steps(tape: Tape) -> None:
    """A linear layer on the values of a good network: thirty steps and done."""
    torch.manual_seed(1540)
    body = eye()
    first = torch.optim.AdamW(body.parameters(), 5e-3)
    for _ in range(120):
        x, labels = stripes(32)
        update(first, F.cross_entropy(body(x), labels))
    body[-1] = nn.Identity()
    body.eval()
    head = nn.Linear(16, 6)

    def loss_of(step: int) -> Told:
        x, labels = stripes(64, noise=0.9)
        with torch.no_grad():
            x = body(x)
        scores = head(x)
        return F.cross_entropy(scores, labels), {"accuracy": right(scores, labels)}

    fit(tape, torch.optim.AdamW(head.parameters()), loss_of, 30, lambda step: 0.05, "loss lr grad_norm")


@healthy(
    "fifteenth", {"scheduler": "CyclicLR", "mode": "triangular2", "base_lr": 1e-3, "max_lr": 0.06, "step_size_up": 60}
)
def triangles_on_wrong_labels(tape: Tape) -> None:
    """A rate that goes up and down in triangles that halve, on labels of which a quarter are wrong."""
    torch.manual_seed(1541)
    test, model = stripes(500, wrong=0.25), eye(normed=False)

    def loss_of(step: int) -> Told:
        x, labels = stripes(24, wrong=0.25)
        scores = model(x)
        return F.cross_entropy(scores, labels), {"acc": right(scores, labels)}

    def check() -> Values:
        seen, exact = judged(model, test)
        return {"test_loss": seen, "test_acc": exact}

    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, nesterov=True)
    rate = lambda step: 1e-3 + 0.059 * (1 - abs(step % 120 / 60 - 1)) / 2 ** (step // 120)  # noqa: E731
    fit(tape, optimizer, loss_of, 480, rate, "loss lr grad_norm", 2.0, check=check, check_every=60)


@healthy("fifteenth", {"model": "conv1d keywords", "accumulate_grad_batches": 4, "batch_size": 8, "lr": 3e-3})
def sounds_gathered_by_four(tape: Tape) -> None:
    """Sounds of many lengths; each loss is of a small batch, and the weights move with each fourth."""
    torch.manual_seed(1542)
    model = nn.Sequential(
        *(nn.Conv1d(1, 12, 9, stride=3), nn.ReLU(), nn.Conv1d(12, 24, 5, stride=2), nn.ReLU()),
        *(nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(24, 5)),
    )
    optimizer, rate = torch.optim.AdamW(model.parameters()), cosine(600, 3e-3, 40, 0.05)

    def batch(count: int) -> Pair:
        length, labels = int(torch.randint(50, 130, (1,))), torch.randint(0, 5, (count,))
        begin, tone = 30 * torch.rand(count, 1), 0.25 + 0.22 * labels[:, None] + 0.03 * torch.randn(count, 1)
        t = torch.arange(float(length)) - begin
        wave = (tone * t).sin() * (-((t - 12) ** 2) / 120).exp()
        return (1.5 * wave + 0.35 * torch.randn(count, length))[:, None], labels

    def act(step: int) -> Values:
        x, labels = batch(8)
        loss = F.cross_entropy(model(x), labels)
        (loss / 4).backward()
        found = {"train_loss": loss, "learning_rate": rate(step), "global_step": step // 4, "audio_frames": x.shape[2]}
        if step % 4 == 3:
            found["grad_norm"] = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.param_groups[0]["lr"] = rate(step)
            optimizer.step()
            optimizer.zero_grad()
        if step % 100 == 99:
            seen = [judged(model, batch(100)) for _ in range(4)]
            found |= {"val_loss": sum(each[0] for each in seen) / 4, "val_acc": sum(each[1] for each in seen) / 4}
        return found

    drive(tape, 600, act)


@healthy(
    "fifteenth", {"schedule": "CosineAnnealingWarmRestarts", "T_0": 80, "T_mult": 2, "lr": 0.01, "optimizer": "RAdam"}
)
def restarts_that_get_longer(tape: Tape) -> None:
    """Warm restarts after 80 and 240 steps: the loss is a little higher after each, then lower than before."""
    torch.manual_seed(1543)
    model, test = dense(12, 64, 64, 1, act=nn.SiLU), houses(800, 0.2)

    def rate(step: int) -> float:
        begin, length = (0, 80) if step < 80 else (80, 160) if step < 240 else (240, 320)
        return cosine(length, 0.01, 0, 0.01)(step - begin)

    def loss_of(step: int) -> Told:
        x, price = houses(64, 0.2)
        return F.mse_loss(model(x)[:, 0], price), {"train/cycle": (step >= 80) + (step >= 240)}

    def check() -> Values:
        return {"val/loss": F.mse_loss(model(test[0])[:, 0], test[1])}

    optimizer, names = torch.optim.RAdam(model.parameters()), "train/loss train/lr train/grad_norm"
    fit(tape, optimizer, loss_of, 560, rate, names, 5.0, check=check, check_every=40)


@healthy("fifteenth", {"model": "skipgram", "dim": 16, "negative": 5, "alpha": 0.05, "min_alpha": 0.0001})
def neighbours_of_words(tape: Tape) -> None:
    """Words and those beside them against drawn ones: only a loss and a rate, each tenth step."""
    torch.manual_seed(1544)
    follows = torch.stack([torch.randperm(100)[:6] for _ in range(100)])
    inner, outer = nn.Embedding(100, 16), nn.Embedding(100, 16)
    nn.init.uniform_(inner.weight, -0.5, 0.5)
    nn.init.zeros_(outer.weight)

    def loss_of(step: int) -> Told:
        word = torch.randint(0, 100, (128,))
        beside, other = follows[word, torch.randint(0, 6, (128,))], torch.randint(0, 100, (128, 5))
        of = inner(word)[:, :, None]
        good, bad = (outer(beside)[:, None] @ of)[:, 0, 0], (outer(other) @ of)[:, :, 0]
        loss = -F.logsigmoid(good).sum() - F.logsigmoid(-bad).sum()
        return loss, {"loss": loss / 128}

    optimizer = torch.optim.SGD([*inner.parameters(), *outer.parameters()])
    fit(tape, optimizer, loss_of, 700, lambda step: max(1e-4, 0.05 * (1 - step / 700)), "- alpha -", every=10)


@healthy("fifteenth", {"strategy": "FedAvg", "num_rounds": 45, "clients_per_round": 4, "lr": 0.06, "lr_decay": 0.95})
def rounds_of_clients(tape: Tape) -> None:
    """Four of ten clients a round, each with few kinds of pictures: the mean of their weights climbs unevenly."""
    torch.manual_seed(1545)
    model, test = eye(normed=False), stripes(400)
    x, labels = stripes(2000)
    clients = []
    for at in range(10):
        mine = ((labels - at) % 6 < 4).nonzero()[:, 0]
        clients.append(mine[torch.randperm(len(mine))[:120]])

    def act(number: int) -> Values:
        states, losses = [], []
        for client in torch.randperm(10)[:4].tolist():
            with tape.span("fit"):
                own, mine = copy.deepcopy(model), clients[client]
                optimizer = torch.optim.SGD(own.parameters(), momentum=0.9)
                for part in mine[torch.randperm(120)].view(-1, 20):
                    loss = F.cross_entropy(own(x[part]), labels[part])
                    update(optimizer, loss, 2.0, 0.06 * 0.95**number)
                    losses.append(float(loss.detach()))
                states.append(own.state_dict())
        model.load_state_dict({key: sum(state[key] for state in states) / 4 for key in states[0]})
        seen, exact = judged(model, test)
        return {"fit/train_loss": sum(losses) / 24, "losses_centralized": seen, "metrics_centralized/accuracy": exact}

    drive(tape, 45, act)
