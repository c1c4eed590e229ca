"""Models of the fresh set: a variational autoencoder, contrasted views, diffusion, a graph, adapters."""

import math
from typing import Any

import torch

from benchmarks.zoo.real.change import Change, grad_norm
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn
State = dict[str, Any]


def _blobs(count: int, kinds: int = 8, size: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    """Points around centers on a curve, with the number of their center."""
    centers = 2 * torch.randn(kinds, size)
    labels = torch.randint(0, kinds, (count,))
    return centers[labels] + 0.5 * torch.randn(count, size), labels


def vae(run: Tape, steps: int = 400, at: Change | None = None, seed: int = 0, anneal: int = 0) -> None:
    """A variational autoencoder; logs its two terms, and an evaluation every 50 steps."""
    torch.manual_seed(seed)
    data, _ = _blobs(3000)
    encoder = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 16))
    decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 24))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
    state: State = {"beta": 0.3, "sign": 1.0}

    def terms(inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_var = encoder(inputs).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        kl = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(1).mean()
        return (decoder(code) - inputs).square().sum(1).mean(), kl

    for step in range(steps):
        if at is not None:
            at(state, step)
        beta = state["beta"] * (min(1.0, step / anneal) if anneal else 1.0)
        with run.step(step):
            rebuilt, kl = terms(data[torch.randint(0, 2500, (64,))])
            loss = rebuilt + state["sign"] * beta * kl
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            values = {"loss": loss.item(), "recon_loss": rebuilt.item(), "kl_loss": kl.item()}
            if step % 50 == 49:
                with run.span("train.evaluate"), torch.no_grad():
                    rebuilt, kl = terms(data[2500:])
                    values["val_loss"] = (rebuilt + beta * kl).item()
            run.log(values)


def contrast(run: Tape, steps: int = 350, at: Change | None = None, seed: int = 0, batch: int = 64) -> None:
    """Two noisy views of a point are to find each other (InfoNCE) with a learned temperature."""
    torch.manual_seed(seed)
    data, _ = _blobs(2000, 40, 16)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
    scale = nn.Parameter(torch.tensor(1.5))
    optimizer = torch.optim.AdamW([*model.parameters(), scale], lr=1e-3)
    state: State = {"same": False, "paired": True}
    for step in range(steps):
        if at is not None:
            at(state, step)
        with run.step(step):
            points = data[torch.randint(0, 2000, (batch,))]
            first = points + 0.9 * torch.randn_like(points)
            second = first if state["same"] else points + 0.9 * torch.randn_like(points)
            if not state["paired"]:
                second = second[torch.randperm(batch)]
            a, b = (F.normalize(model(each), dim=1) for each in (first, second))
            logits = scale.exp() * a @ b.T
            target = torch.arange(batch)
            loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found = (logits.argmax(1) == target).float().mean()
            run.log({"train/contrastive_loss": loss.item(), "train/top1": found.item(), "train/scale": scale.item()})


def _noised(points: torch.Tensor, noise: torch.Tensor, when: torch.Tensor) -> torch.Tensor:
    keep = torch.cos(0.5 * math.pi * when)[:, None]
    return keep * points + (1 - keep.square()).sqrt() * noise


def diffusion(
    run: Tape, steps: int = 500, at: Change | None = None, seed: int = 0, lr: float = 2e-3, warm: int = 20
) -> None:
    """Learns to remove noise from points on two moons; a slow average of the weights is evaluated."""
    torch.manual_seed(seed)
    angle = math.pi * torch.rand(4000)
    side = (torch.rand(4000) < 0.5).float()
    moons = torch.stack([angle.cos() + side - 0.5, (1 - 2 * side) * angle.sin() + 0.25 * side], 1)
    moons = moons + 0.05 * torch.randn(4000, 2)
    model = nn.Sequential(nn.Linear(6, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 2))
    slow = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    state: State = {"target": "noise", "decay": 0.98}

    def inputs(points: torch.Tensor, when: torch.Tensor) -> torch.Tensor:
        waves = torch.stack([when, (3 * when).sin(), (7 * when).sin(), (7 * when).cos()], 1)
        return torch.cat([points, waves], 1)

    for step in range(steps):
        if at is not None:
            at(state, step)
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / warm)
        with run.step(step):
            points, when = moons[torch.randint(0, 3500, (128,))], torch.rand(128)
            noise = torch.randn(128, 2)
            target = noise if state["target"] == "noise" else points
            loss = F.mse_loss(model(inputs(_noised(points, noise, when), when)), target)
            optimizer.zero_grad()
            loss.backward()
            norm = grad_norm(model)
            optimizer.step()
            with torch.no_grad():
                for key, value in model.state_dict().items():
                    slow[key].lerp_(value, 1 - state["decay"])
            values = {"train/loss": loss.item(), "train/grad_norm": norm, "lr": optimizer.param_groups[0]["lr"]}
            if step % 25 == 24:
                points, when, noise = moons[3500:], torch.linspace(0.02, 0.98, 500), torch.randn(500, 2)
                with run.span("train.evaluate"), torch.no_grad():
                    guess = torch.func.functional_call(model, slow, (inputs(_noised(points, noise, when), when),))
                    values["val/ema_loss"] = F.mse_loss(guess, noise).item()
            run.log(values)


def graph(run: Tape, epochs: int = 200, at: Change | None = None, seed: int = 0, decay: float = 5e-3) -> None:
    """Classifies the nodes of a graph of communities, the whole graph in each epoch; no spans."""
    torch.manual_seed(seed)
    count, kinds = 400, 5
    labels = torch.randint(0, kinds, (count,))
    likely = torch.where(labels[:, None] == labels[None], 0.06, 0.006)
    edges = (torch.rand(count, count) < likely).float().triu(1)
    edges = edges + edges.T + torch.eye(count)
    features = 0.35 * F.one_hot(labels, kinds).float() @ torch.randn(kinds, 32) + torch.randn(count, 32)
    seen = torch.rand(count) < 0.4
    first, second = nn.Linear(32, 32), nn.Linear(32, kinds)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01, weight_decay=decay)
    state: State = {"edges": edges, "leak": False}
    for epoch in range(epochs):
        if at is not None:
            at(state, epoch)
        if state["edges"] == "shuffled":
            order = torch.randperm(count)
            state["edges"] = edges[order][:, order]
        with run.step(epoch):
            joined = state["edges"] / state["edges"].sum(1, keepdim=True)
            given = features
            if state["leak"]:
                given = features + 3 * F.one_hot(labels, kinds).float() @ torch.ones(kinds, 32).tril()
            hidden = F.dropout(F.relu(joined @ first(given)), 0.3)
            out = joined @ second(hidden)
            loss = F.cross_entropy(out[seen], labels[seen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right = (out.argmax(1) == labels).float()
            with torch.no_grad():
                unseen = F.cross_entropy(out[~seen], labels[~seen]).item()
            run.log(
                {
                    "loss": loss.item(),
                    "train_acc": right[seen].mean().item(),
                    "val_loss": unseen,
                    "val_acc": right[~seen].mean().item(),
                }
            )


class Adapted(nn.Module):
    """A linear layer that is not trained, and a product of two small ones that is."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.down, self.up = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Add the product to the layer."""
        return self.base(inputs) + self.up(self.down(inputs))


def tuned(
    run: Tape, steps: int = 320, at: Change | None = None, seed: int = 0, lr: float = 3e-3, accumulate: int = 2
) -> None:
    """A network that has learned one task is adapted to another, and evaluated on both every 20 steps."""
    torch.manual_seed(seed)
    old, old_labels = _blobs(2000)
    new, new_labels = _blobs(2000)
    model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(150):
        rows = torch.randint(0, 1500, (64,))
        optimizer.zero_grad()
        F.cross_entropy(model(old[rows]), old_labels[rows]).backward()
        optimizer.step()
    for place in (0, 2):
        model[place] = Adapted(model[place])
    state: State = {"optimized": True, "mixed": True}
    if at is not None:
        at(state, 0)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained if state["optimized"] else [nn.Parameter(torch.zeros(1))], lr=lr)
    for step in range(steps):
        if at is not None:
            at(state, step)
        total = 0.0
        with run.step(step):
            model.zero_grad()
            for part in range(accumulate):
                rows = torch.randint(0, 1500, (16,))
                again = state["mixed"] and part % 2
                inputs, labels = (old, old_labels) if again else (new, new_labels)
                loss = F.cross_entropy(model(inputs[rows]), labels[rows]) / accumulate
                loss.backward()
                total += loss.item()
            optimizer.step()
            values = {"train/loss": total, "train/learning_rate": lr}
            if step % 20 == 19:
                with run.span("train.evaluate"), torch.no_grad():
                    values["eval/loss"] = F.cross_entropy(model(new[1500:]), new_labels[1500:]).item()
                    values["eval_general/loss"] = F.cross_entropy(model(old[1500:]), old_labels[1500:]).item()
            run.log(values)
