"""Models of the third set: pictures in patches, speech, a teacher that follows its student, adapters, tables, flows."""

import math
import time
from typing import Any

import torch

from benchmarks.zoo.real.change import Change, grad_norm
from benchmarks.zoo.real.sets.first.loop import cosine
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn


class Patches(nn.Module):
    """A small vision transformer: nine patches of a picture, one layer."""

    def __init__(self, drop: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Linear(16, 32)
        self.place = nn.Parameter(0.1 * torch.randn(9, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=drop, batch_first=True)
        self.out = nn.Linear(32, 6)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Logits of each picture."""
        patches = pictures.unfold(1, 4, 4).unfold(2, 4, 4).reshape(len(pictures), 9, 16)
        out: torch.Tensor = self.out(self.layer(self.embed(patches) + self.place).mean(1))
        return out


def vit(
    run: Tape, steps: int = 320, at: Change | None = None, seed: int = 0, lr: float = 3e-3, smooth: float = 0.0
) -> None:
    """Six kinds of stripes in noise, a warm-up and a cosine, an evaluation every 20 steps."""
    torch.manual_seed(seed)
    kinds = torch.randn(6, 12, 12)
    model = Patches()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    state: dict[str, Any] = {"leak": False, "eval_mode": True, "schedule": cosine(steps, 30), "load_ms": 0.0}

    def batch(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(0, 6, (count,))
        pictures = 0.5 * kinds[labels] + 1.3 * torch.randn(count, 12, 12)
        if state["leak"]:
            pictures[:, 0, 0] = 8.0 * labels - 20.0
        return pictures, labels

    for step in range(steps):
        if at is not None:
            at(state, step)
        rate = optimizer.param_groups[0]["lr"] = lr * state["schedule"](step)
        with run.step(step):
            with run.span("train.data_load"):
                pictures, labels = batch(48)
                time.sleep(state["load_ms"] / 1000)
            with run.span("train.forward"):
                out = model(pictures)
                loss = F.cross_entropy(out, labels, label_smoothing=smooth)
            optimizer.zero_grad()
            with run.span("train.backward"):
                loss.backward()
            norm = float(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            optimizer.step()
            right = (out.argmax(1) == labels).float().mean().item()
            values = {"train/loss": loss.item(), "train/acc": right, "train/grad_norm": norm, "train/lr": rate}
            if step % 20 == 19:
                model.train(not state["eval_mode"])
                with run.span("train.evaluate"), torch.no_grad():
                    pictures, labels = batch(300)
                    noisy = pictures if state["eval_mode"] else F.dropout(pictures, 0.5)
                    guess = model(noisy)
                values["eval/loss"] = F.cross_entropy(guess, labels).item()
                values["eval/acc"] = (guess.argmax(1) == labels).float().mean().item()
                model.train()
            run.log(values)


def speech(run: Tape, steps: int = 350, at: Change | None = None, seed: int = 0, lr: float = 6e-3) -> None:
    """Frames to letters with a CTC loss: each letter lasts three noisy frames."""
    torch.manual_seed(seed)
    sounds = torch.randn(6, 10)
    body, out = nn.GRU(10, 40, batch_first=True), nn.Linear(40, 7)
    both = nn.ModuleList([body, out])
    optimizer = torch.optim.Adam(both.parameters(), lr=lr)
    state: dict[str, Any] = {"shift": 0, "letters": 5, "longer": 0, "epoch": None}
    for step in range(steps):
        if at is not None:
            at(state, step)
        letters = torch.randint(0, 6, (24, state["letters"]))
        frames = sounds[letters.repeat_interleave(3, 1)] + 0.6 * torch.randn(24, 3 * state["letters"], 10)
        logs = out(body(frames)[0]).log_softmax(2).transpose(0, 1)
        targets = 1 + (letters + state["shift"]) % 6
        if state["longer"]:
            targets = targets.repeat(1, state["longer"])
        inputs = torch.full((24,), frames.shape[1])
        loss = F.ctc_loss(logs, targets, inputs, torch.full((24,), targets.shape[1]))
        optimizer.zero_grad()
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(both.parameters(), 5.0))
        optimizer.step()
        values = {"ctc_loss": loss.item(), "grad_norm": norm, "learning_rate": lr}
        if state["epoch"]:
            values["epoch"] = float(step // state["epoch"])
        run.log(values, step=step)


def own_teacher(run: Tape, steps: int = 320, at: Change | None = None, seed: int = 0, lr: float = 2e-3) -> None:
    """Two views of a point: the student predicts what a slow copy of itself makes of the other one."""
    torch.manual_seed(seed)
    mix = torch.randn(6, 24)
    student = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
    teacher = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
    teacher.load_state_dict(student.state_dict())
    predictor = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    both = nn.ModuleList([student, predictor])
    optimizer = torch.optim.Adam(both.parameters(), lr=lr)
    state: dict[str, Any] = {"follow": 0.02, "detached": True}
    for step in range(steps):
        if at is not None:
            at(state, step)
        points = torch.randn(96, 6) @ mix
        first, second = (points + 0.8 * torch.randn_like(points) for _ in range(2))
        if state["detached"]:
            with torch.no_grad():
                wanted = teacher(second)
            made = predictor(student(first))
        else:
            made, wanted = student(first), student(second)
        loss = (2 - 2 * F.cosine_similarity(made, wanted)).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = grad_norm(both)
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.lerp_(fast, state["follow"])
        spread = F.normalize(wanted.detach(), dim=1).std(0).mean().item()
        run.log({"ssl/loss": loss.item(), "ssl/grad_norm": norm, "ssl/embedding_std": spread, "lr": lr}, step=step)


def adapters(run: Tape, steps: int = 300, at: Change | None = None, seed: int = 0, lr: float = 4e-3) -> None:
    """Low-rank adapters on a network that was trained for another task; gradients accumulate over four batches."""
    torch.manual_seed(seed)
    centers = torch.randn(10, 20)
    first, second = nn.Linear(20, 64), nn.Linear(64, 10)
    base = nn.ModuleList([first, second])
    pre = torch.optim.Adam(base.parameters(), lr=5e-3)
    for _ in range(150):
        labels = torch.randint(0, 10, (64,))
        loss = F.cross_entropy(second(first(centers[labels] + torch.randn(64, 20)).relu()), labels)
        pre.zero_grad()
        loss.backward()
        pre.step()
    base.requires_grad_(False)
    down, up = nn.Linear(64, 4, bias=False), nn.Linear(4, 10, bias=False)
    nn.init.zeros_(up.weight)
    low = nn.ModuleList([down, up])
    optimizer = torch.optim.AdamW([{"params": down.parameters()}, {"params": up.parameters()}], lr=lr)
    state: dict[str, Any] = {"scale": 2.0, "parts": 4.0, "second_lr": None}
    order = torch.randperm(10)
    for step in range(steps):
        if at is not None:
            at(state, step)
        if state["second_lr"] is not None:
            optimizer.param_groups[1]["lr"] = state["second_lr"]
        optimizer.zero_grad()
        total = 0.0
        for _ in range(4):
            labels = torch.randint(0, 10, (16,))
            hidden = first(centers[labels] + 1.2 * torch.randn(16, 20)).relu()
            loss = F.cross_entropy(second(hidden) + state["scale"] * up(down(hidden)), order[labels]) / state["parts"]
            loss.backward()
            total += loss.item()
        norm = grad_norm(low)
        optimizer.step()
        rate = optimizer.param_groups[0]["lr"]
        run.log({"loss": total, "grad_norm": norm, "learning_rate": rate, "epoch": step / 75}, step=step)


def table(run: Tape, steps: int = 350, at: Change | None = None, seed: int = 0, lr: float = 3e-3) -> None:
    """A table with a rare positive class and batch normalisation; an evaluation every 25 steps."""
    torch.manual_seed(seed)
    weights, scales = torch.randn(14), 10 ** torch.linspace(-1, 2, 14)
    norm = nn.BatchNorm1d(14)
    model = nn.Sequential(norm, nn.Linear(14, 48), nn.ReLU(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    state: dict[str, Any] = {"twice": False, "units": 1.0, "schedule": None}

    def batch(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        raw = torch.randn(count, 14)
        labels = (raw @ weights + 0.8 * torch.randn(count) > 4.0).float()
        return state["units"] * raw * scales, labels

    for step in range(steps):
        if at is not None:
            at(state, step)
        if state["schedule"] is not None:
            optimizer.param_groups[0]["lr"] = lr * state["schedule"](step)
        rows, labels = batch(128)
        loss = F.binary_cross_entropy_with_logits(model(rows).squeeze(1), labels)
        if state["twice"]:
            loss = loss / 128
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values = {"train_loss": loss.item(), "lr": optimizer.param_groups[0]["lr"]}
        if step % 25 == 24:
            model.eval()
            with torch.no_grad():
                rows, labels = batch(1000)
                guess = model(rows).squeeze(1)
            model.train()
            values["val_loss"] = F.binary_cross_entropy_with_logits(guess, labels).item()
            values["val_acc"] = ((guess > 0) == (labels > 0.5)).float().mean().item()
        run.log(values, step=step)


def flow(run: Tape, steps: int = 320, at: Change | None = None, seed: int = 0, lr: float = 3e-3) -> None:
    """A normalising flow of three coupling layers: the loss, a log-likelihood per point, goes below zero."""
    torch.manual_seed(seed)
    layers = nn.ModuleList([nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 2)) for _ in range(4)])
    optimizer = torch.optim.Adam(layers.parameters(), lr=lr)
    state: dict[str, Any] = {"sign": 1.0, "spoilt": False}
    for step in range(steps):
        if at is not None:
            at(state, step)
        angle = 6.283 * torch.rand(192)
        points = 0.25 * torch.stack([angle.cos(), angle.sin()], 1) + 0.02 * torch.randn(192, 2)
        if state["spoilt"]:
            points = points.roll(1, 1) * 3.0
        volume = torch.zeros(192)
        for at_layer, layer in enumerate(layers):
            kept, moved = points[:, at_layer % 2], points[:, 1 - at_layer % 2]
            scale, shift = layer(kept[:, None]).unbind(1)
            scale = 2.5 * (scale / 2.5).tanh()
            moved = moved * scale.exp() + shift
            volume = volume + scale
            points = torch.stack([kept, moved] if at_layer % 2 == 0 else [moved, kept], 1)
        nll = (0.5 * points.square().sum(1) + math.log(2 * math.pi) - state["sign"] * volume).mean()
        optimizer.zero_grad()
        nll.backward()
        norm = float(nn.utils.clip_grad_norm_(layers.parameters(), 20.0))
        optimizer.step()
        run.log({"train/nll": nll.item(), "train/grad_norm": norm, "train/lr": lr}, step=step)
