"""The fourteenth set: gratings and cells, views that are compared, and points that are generated."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.fourteenth.schedules import Rate, cosine
from benchmarks.zoo.real.sets.fourteenth.tasks import Fit, Pair, Values, dense, drawn, drive, evaluated
from benchmarks.zoo.real.tape import Tape

MEAN, SPREAD = 120.0, 45.0
"""Of the brightness of gratings, as the transforms take it."""


def gratings(count: int, noise: float = 0.9) -> Pair:
    """Pictures of 12 by 12 with stripes in one of six directions, as brightness, and the direction."""
    labels = torch.randint(0, 6, (count,))
    turn = (labels * math.pi / 6 + 0.12 * torch.randn(count))[:, None, None]
    y, x = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    wide = (1.0 + 0.4 * torch.rand(count))[:, None, None]
    phase = 2 * math.pi * torch.rand(count)[:, None, None]
    stripes = ((x * turn.cos() + y * turn.sin()) * wide + phase).sin()
    return (MEAN + SPREAD * (stripes + noise * torch.randn(count, 12, 12)))[:, None], labels


def eye(kinds: int = 6, width: int = 8) -> Any:
    """Two convolutions with normalization, and two layers."""
    return nn.Sequential(
        *(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(18 * width, 32), nn.ReLU(), nn.Linear(32, kinds)),
    )


def timm(
    tape: Tape,
    seed: int,
    rate: Rate,
    epochs: int = 32,
    first: int = 0,
    unsure: float = 0.0,
    smooth: float = 0.0,
    seen_as: Callable[[int, torch.Tensor], torch.Tensor] = lambda epoch, x: (x - MEAN) / SPREAD,
    model: Any = None,
) -> Any:
    """Gratings in epochs, in the names of timm's summary; return what was trained."""
    torch.manual_seed(seed)
    (x, y), held = gratings(768), gratings(400)
    x = (x - MEAN) / SPREAD
    off = torch.rand(768) < unsure
    y[off] = torch.randint(0, 6, (int(off.sum()),))
    model = eye() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, weight_decay=3e-3, nesterov=True)

    def act(epoch: int) -> Values:
        total = 0.0
        for group in optimizer.param_groups:
            group["lr"] = rate(epoch)
        for rows in torch.randperm(768).split(64):
            shift = torch.randint(-2, 3, (2,)).tolist()
            seen = x[rows].roll(shift, (2, 3)) + 0.4 * torch.randn(len(rows), 1, 12, 12)
            loss = F.cross_entropy(model(seen), y[rows], label_smoothing=smooth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows) / 768
        with evaluated(model):
            scores = model(seen_as(epoch, held[0]))
        order = scores.argsort(1, descending=True)
        return {
            "epoch": epoch,
            "train_loss": total,
            "eval_loss": F.cross_entropy(scores, held[1]),
            "eval_top1": 100 * (order[:, 0] == held[1]).float().mean(),
            "eval_top5": 100 * (order[:, :5] == held[1][:, None]).any(1).float().mean(),
            "lr": rate(epoch),
        }

    drive(tape, epochs, act, first)
    return model


TIMM = {"model": "convnet_tiny", "opt": "nesterov", "batch_size": 64, "num_classes": 6, "weight_decay": 3e-3}


@healthy("fourteenth", config=TIMM | {"sched": "step", "decay_epochs": 12, "decay_rate": 0.2, "smoothing": 0.1})
def healthy_gratings_with_wrong_labels(tape: Tape) -> None:
    """One label in eight is random and labels are smoothed: the loss stays high, the rate falls in steps."""
    timm(tape, 1531, lambda epoch: 0.03 * 0.2 ** (epoch // 12), unsure=0.12, smooth=0.1)


@healthy("fourteenth", config=TIMM | {"sched": "cosine", "resume": "checkpoint-14.pth.tar", "start_epoch": 15})
def healthy_gratings_resumed(tape: Tape) -> None:
    """Fifteen epochs were trained before; the recording begins with the sixteenth, at a low loss."""
    rate = cosine(40, 0.03, 0, 0.02)
    timm(tape, 1532, rate, 25, 15, model=timm(Tape(), 1532, rate, 15))


@fault("fourteenth", "accuracy_drop level_shift", step=18, window=2, config=TIMM | {"sched": "cosine", "epochs": 32})
def gratings_seen_unscaled(tape: Tape) -> None:
    """From epoch 18 on the pictures of the evaluation are scaled to 0 to 1 and nothing more."""
    timm(
        tape,
        1533,
        cosine(32, 0.03, 2, 0.02),
        seen_as=lambda epoch, x: (x - MEAN) / SPREAD if epoch < 18 else x / 255,
    )


def cells(count: int) -> Pair:
    """Pictures of 16 by 16 with one to three bright cells on uneven ground, and their masks."""
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    middle, size = 16 * torch.rand(2, count, 3, 1, 1), 1.6 + 1.4 * torch.rand(count, 3, 1, 1)
    there = torch.rand(count, 3, 1, 1) < torch.tensor([1.0, 0.6, 0.3])[:, None, None]
    masks = (((y - middle[0]) ** 2 + (x - middle[1]) ** 2 < size**2) & there).any(1).float()
    ground = 0.6 * ((x + 16 * torch.rand(count, 1, 1)) / 4).sin()
    return (1.3 * masks + ground + 0.5 * torch.randn(count, 16, 16))[:, None], masks


def segmented(tape: Tape, seed: int, last: Any, steps: int = 240) -> None:
    """Cells cut out, in the names of a LightningModule: a loss at each step, the overlap at each epoch of 30."""
    torch.manual_seed(seed)
    rows, held = cells(480), cells(150)
    sizes = ((1, 8), (8, 8), (8, 8), (8, 1))
    layers = [nn.Conv2d(given, wanted, 3, padding=1) for given, wanted in sizes]
    model = nn.Sequential(*itertools.chain(*((layer, nn.ReLU()) for layer in layers[:-1])), layers[-1], last)

    def loss(model: Any, pair: Any) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(model(pair[0])[:, 0], pair[1])

    def seen(fit: Fit) -> Values:
        with evaluated(model):
            cut = (model(held[0])[:, 0] > 0).float()
        dice = 2 * (cut * held[1]).sum() / (cut.sum() + held[1].sum())
        return {"val_loss": fit.seen(held), "val_dice": dice, "train_loss_epoch": fit.mean(30)}

    names, rate = ("train_loss_step", "lr-AdamW", "grad_2.0_norm_total"), cosine(steps, 4e-3, 10)
    fit = Fit(model, drawn(rows, 16), loss, steps, rate, names, clip=1e9, evaluate=seen, evaluate_every=30)
    fit.run(tape)


CELLS = {"encoder": "plain-4", "loss": "bce", "max_epochs": 8, "batch_size": 16, "lr": 4e-3}


@healthy("fourteenth", config=CELLS)
def healthy_cells(tape: Tape) -> None:
    """Cells cut out of uneven ground."""
    segmented(tape, 1541, nn.Identity())


@fault("fourteenth", "not_learning constant dead_units vanishing_gradients plateau", config=CELLS | {"head": "relu"})
def cells_cut_by_a_relu(tape: Tape) -> None:
    """A ReLU stands before the sigmoid: each chance is at least a half, then exactly that, without a gradient."""
    segmented(tape, 1542, nn.ReLU())


def contrast(tape: Tape, seed: int, rate: Rate, zero: bool = True, steps: int = 240) -> None:
    """Two views of gratings find each other among forty-eight, in a loop after SimCLR."""
    torch.manual_seed(seed)
    model = eye(16, 6)

    def views() -> Pair:
        x = (gratings(48, 0.3)[0] - MEAN) / SPREAD
        return x + 0.5 * torch.randn_like(x), x * (0.7 + 0.6 * torch.rand(48, 1, 1, 1)) + 0.5 * torch.randn_like(x)

    def loss(model: Any, pair: Any) -> torch.Tensor:
        one, two = F.normalize(model(torch.cat(pair)), dim=1).chunk(2)
        scores = one @ two.T / 0.2
        wanted = torch.arange(len(one))
        fit.extra["acc/top1"] = 100 * (scores.argmax(1) == wanted).float().mean().item()
        return (F.cross_entropy(scores, wanted) + F.cross_entropy(scores.T, wanted)) / 2

    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, weight_decay=1e-4)
    names = ("loss", "learning_rate", "grad_norm")
    fit = Fit(model, views, loss, steps, rate, names, optimizer, clip=1e9, zero=zero)
    fit.run(tape)


SIMCLR = {"arch": "convnet", "out_dim": 16, "temperature": 0.2, "batch_size": 48, "optimizer": "sgd"}


@healthy("fourteenth", config=SIMCLR | {"scheduler": "CosineAnnealingWarmRestarts", "T_0": 80})
def healthy_views_with_restarts(tape: Tape) -> None:
    """The rate starts again every 80 steps, and the loss with it a little."""
    once = cosine(80, 0.06, 0, 0.02)
    contrast(tape, 1551, lambda step: once(step % 80))


@fault(
    "fourteenth",
    "gradients_not_cleared exploding_gradients gradient_shift not_learning",
    config=SIMCLR | {"lr": 0.06},
)
def views_with_all_gradients(tape: Tape) -> None:
    """The gradients are never set to 0: each step takes the sum of all before it."""
    contrast(tape, 1552, cosine(240, 0.06, 10), zero=False)


def generated(tape: Tape, seed: int, rates: tuple[float, float], steps: int = 360) -> None:
    """Points on eight spots of a ring by a GAN, in the names of the example of Lightning."""
    torch.manual_seed(seed)
    maker, judge = dense(8, 48, 48, 2), dense(2, 48, 48, 1, act=lambda: nn.LeakyReLU(0.2))
    makes = torch.optim.Adam(maker.parameters(), rates[0], betas=(0.5, 0.99))
    judges = torch.optim.Adam(judge.parameters(), rates[1], betas=(0.5, 0.99))
    ones, zeros = torch.ones(96, 1), torch.zeros(96, 1)
    cross = F.binary_cross_entropy_with_logits

    def act(step: int) -> Values:
        spot = torch.randint(0, 8, (96,)) * math.pi / 4
        real = torch.stack((spot.cos(), spot.sin()), 1) * 1.5 + 0.15 * torch.randn(96, 2)
        made = maker(torch.randn(96, 8))
        said = judge(real), judge(made.detach())
        d_loss = (cross(said[0], ones) + cross(said[1], zeros)) / 2
        judges.zero_grad()
        d_loss.backward()
        judges.step()
        g_loss = cross(judge(made), ones)
        makes.zero_grad()
        g_loss.backward()
        makes.step()
        chances = [each.sigmoid().mean().item() for each in said]
        return {"g_loss": g_loss.item(), "d_loss": d_loss.item(), "D(x)": chances[0], "D(G(z))": chances[1]}

    drive(tape, steps, act)


@healthy("fourteenth", config={"model": "GAN", "lr_g": 2e-3, "lr_d": 2e-3, "b1": 0.5, "b2": 0.99, "latent_dim": 8})
def healthy_ring(tape: Tape) -> None:
    """Both swing about their balance."""
    generated(tape, 1561, (2e-3, 2e-3))


@fault("fourteenth", "gan_imbalance", config={"model": "GAN", "lr_g": 2e-6, "lr_d": 4e-3, "b1": 0.5, "latent_dim": 8})
def ring_maker_hardly_moves(tape: Tape) -> None:
    """The rate of the generator lost three zeros: the discriminator is always right."""
    generated(tape, 1562, (2e-6, 4e-3))
