"""Pictures: classifiers, boxes, masks, and models that draw; each in the names of a trainer."""

import copy
import math
import time
from typing import Any

import torch

from benchmarks.zoo.real.case import healthy
from benchmarks.zoo.real.sets.fifteenth.tasks import (
    F,
    Means,
    Told,
    Values,
    cosine,
    dense,
    drive,
    eye,
    fit,
    follow,
    judged,
    line,
    nn,
    right,
    stairs,
    stripes,
    update,
)
from benchmarks.zoo.real.tape import Tape


@healthy("fifteenth", {"model": "resnet_tiny", "opt": "sgd", "sched": "cosine", "mixup": 0.4, "model_ema": True})
def timm_mixed_pictures(tape: Tape) -> None:
    """Mixed pictures and two restarts of the rate; an average of the weights is evaluated, below the training loss."""
    torch.manual_seed(1521)
    test, model = stripes(500, noise=1.0, wrong=0.05), eye(width=6)
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, nesterov=True, weight_decay=1e-4)

    def act(epoch: int) -> Values:
        means, rate = Means(), cosine(10, 0.05, 0, 0.02)(epoch % 10) * 0.7 ** (epoch // 10)
        train = stripes(512, noise=1.0, wrong=0.05)
        for part in torch.arange(512).view(-1, 32):
            x, labels = train[0][part], F.one_hot(train[1][part], 6).float()
            share = float(torch.distributions.Beta(0.4, 0.4).sample())
            loss = F.cross_entropy(
                model(share * x + (1 - share) * x.flip(0)), share * labels + (1 - share) * labels.flip(0)
            )
            update(optimizer, loss, 5.0, rate)
            follow(average, model, 0.95)
            means.add(loss=loss.detach())
        with tape.span("validate"):
            seen, exact = judged(average, test)
        return {
            "train_loss": means.take()[0]["loss"],
            "eval_loss": seen,
            "eval_top1": 100 * exact,
            "lr": rate,
            "epoch": epoch,
        }

    drive(tape, 30, act)


@healthy("fifteenth", {"batch_size": 4, "max_epochs": 3, "optimizer": "Adam", "lr": 1e-3})
def lightning_four_at_a_time(tape: Tape) -> None:
    """Four pictures a step: each loss is a noisy one."""
    torch.manual_seed(1522)
    train, test, model = stripes(800, noise=0.4), stripes(300, noise=0.4), eye()
    optimizer, means = torch.optim.Adam(model.parameters(), 1e-3), Means()

    def act(step: int) -> Values:
        part = order[step % 200]
        scores = model(train[0][part])
        loss = F.cross_entropy(scores, train[1][part])
        update(optimizer, loss)
        means.add(train_loss_epoch=loss.detach())
        found = {"train_loss_step": loss, "epoch": step // 200}
        if step % 200 == 199:
            with tape.span("validation"):
                seen, exact = judged(model, test)
            found |= {**means.take()[0], "val_loss": seen, "val_acc": exact}
        return found

    order = torch.randperm(800).view(-1, 4)
    drive(tape, 600, act)


def things(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pictures of 16 by 16 with a box or a disc, which it is, where (middle and half sizes), and its mask."""
    labels = torch.randint(0, 2, (count,))
    middle, half = 5 + 6 * torch.rand(count, 2), 3 + 2 * torch.rand(count, 2)
    y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    dy, dx = ((line_ - middle[:, at, None, None]).abs() / half[:, at, None, None] for at, line_ in enumerate((y, x)))
    masks = torch.where(labels[:, None, None] == 0, (dx < 1) & (dy < 1), dx * dx + dy * dy < 1)
    pictures = masks * (0.8 + 0.5 * torch.rand(count, 1, 1)) + 0.25 * torch.randn(count, 16, 16)
    return pictures[:, None], labels, torch.cat([middle, half], 1) / 16, masks.float()


def finder(out: int) -> nn.Module:
    """Two convolutions and two layers over all places."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.SiLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.SiLU()),
        *(nn.Flatten(), nn.Linear(256, 32), nn.SiLU(), nn.Linear(32, out)),
    )


def overlap(given: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """The overlap of boxes by middle and half size."""
    low = torch.maximum(given[:, :2] - given[:, 2:], true[:, :2] - true[:, 2:])
    high = torch.minimum(given[:, :2] + given[:, 2:], true[:, :2] + true[:, 2:])
    shared = (high - low).clamp(min=0).prod(1)
    return shared / (4 * given[:, 2:].prod(1) + 4 * true[:, 2:].prod(1) - shared + 1e-6)


@healthy("fifteenth", {"model": "yolo-nano", "epochs": 40, "lr0": 0.02, "lrf": 0.05, "warmup_epochs": 3})
def yolo_boxes(tape: Tape) -> None:
    """Boxes and classes by epochs, three losses for each half of the data; an average of the weights is evaluated."""
    torch.manual_seed(1523)
    model = finder(6)
    average, test = copy.deepcopy(model), list(things(400))
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, nesterov=True, weight_decay=5e-4)

    def losses(net: Any, data: list[torch.Tensor]) -> tuple[Values, torch.Tensor]:
        out = net(data[0])
        boxes, scores = out[:, :4].sigmoid(), out[:, 4:]
        shared = overlap(boxes, data[2])
        spread = 10 * F.l1_loss(boxes, data[2])
        found = {"box_loss": 1 - shared.mean(), "cls_loss": F.cross_entropy(scores, data[1]), "dfl_loss": spread}
        return found, torch.where(scores.argmax(1) == data[1], shared, 0.0).detach()

    def act(epoch: int) -> Values:
        means, rate = Means(), min(1.0, (epoch + 1) / 3) * 0.02 * (1 - 0.95 * epoch / 40)
        train = things(600)
        for part in torch.arange(600).view(-1, 20):
            found, _ = losses(model, [each[part] for each in train])
            update(optimizer, found["box_loss"] + 0.5 * found["cls_loss"] + 0.5 * found["dfl_loss"], 10.0, rate)
            follow(average, model, 0.9)
            means.add(**found)
        average.eval()
        with torch.no_grad(), tape.span("val"):
            seen, hits = losses(average, test)
        return {
            **{f"train/{key}": value for key, value in means.take()[0].items()},
            **{f"val/{key}": value for key, value in seen.items()},
            "metrics/mAP50(B)": (hits > 0.5).float().mean(),
            "metrics/mAP50-95(B)": (hits[:, None] > torch.arange(0.5, 1.0, 0.05)).float().mean(),
            "lr/pg0": rate,
        }

    drive(tape, 40, act)


@healthy("fifteenth", {"SOLVER.STEPS": [360, 480], "SOLVER.BASE_LR": 0.012, "SOLVER.IMS_PER_BATCH": 24})
def detectron_masks_in_stairs(tape: Tape) -> None:
    """A line up and two stairs down of the rate, written each twentieth step; the losses fall with the stairs."""
    torch.manual_seed(1524)
    model, shape = finder(6), nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    fall = stairs(0.012, 360, 480)

    def loss_of(step: int) -> Told:
        begun = time.perf_counter()
        with tape.span("data"):
            x, labels, boxes, masks = things(24)
        waited, out = time.perf_counter() - begun, model(x)
        kind, box = F.cross_entropy(out[:, 4:], labels), 4 * F.smooth_l1_loss(out[:, :4].sigmoid(), boxes, beta=0.1)
        mask = F.binary_cross_entropy_with_logits(shape(x)[:, 0], masks)
        return kind + box + mask, {"loss_cls": kind, "loss_box_reg": box, "loss_mask": mask, "data_time": waited}

    optimizer = torch.optim.SGD([*model.parameters(), *shape.parameters()], momentum=0.9, weight_decay=1e-4)
    rate = lambda step: fall(step) * min(1.0, 0.001 + step / 100)  # noqa: E731
    fit(tape, optimizer, loss_of, 600, rate, "total_loss lr -", every=20)


@healthy("fifteenth", {"learner": "vision_learner", "freeze_epochs": 1, "base_lr": 4e-3, "cycle": "fit_one_cycle"})
def fastai_new_head(tape: Tape) -> None:
    """A good body learns a new head, then both along one cycle; momentum goes the other way; labels have noise."""
    torch.manual_seed(1526)
    model = eye(6, 10)
    first = torch.optim.AdamW(model.parameters(), 5e-3)
    for _ in range(120):
        x, labels = stripes(32)
        update(first, F.cross_entropy(model(x), labels))
    model[-1] = nn.Linear(20, 6)
    body, head = [each for part in model[:-1] for each in part.parameters()], list(model[-1].parameters())
    optimizer = torch.optim.AdamW([{"params": body, "scale": 0.1}, {"params": head, "scale": 1.0}], weight_decay=0.01)
    train, test, smooth = stripes(960, noise=0.8, wrong=0.1), stripes(400, noise=0.8, wrong=0.1), 0.0

    def act(step: int) -> Values:
        nonlocal smooth
        part, at = torch.randint(0, 960, (16,)), (step - 60) / 240
        for weight in body:
            weight.requires_grad_(step >= 60)
        up = at < 0.25
        turn = (1 - math.cos(math.pi * (at / 0.25 if up else (at - 0.25) / 0.75))) / 2
        rate = 4e-3 if at < 0 else 4e-3 * (0.04 + 0.96 * turn if up else 1 - turn)
        moment = 0.9 if at < 0 else (0.95 - 0.1 * turn if up else 0.85 + 0.1 * turn)
        for group in optimizer.param_groups:
            group["betas"] = (moment, 0.99)
        loss = F.cross_entropy(model(train[0][part]), train[1][part])
        update(optimizer, loss, 1e9, rate)
        smooth = 0.98 * smooth + 0.02 * loss.item()
        found = {"raw_loss": loss, "train_loss": smooth / (1 - 0.98 ** (step + 1)), "lr_0": rate * 0.1, "lr_1": rate}
        found |= {"mom_0": moment, "epoch": step / 60}
        if step % 60 == 59:
            with tape.span("validate"):
                seen, exact = judged(model, test)
            found |= {"valid_loss": seen, "error_rate": 1 - exact}
        return found

    drive(tape, 300, act)


def ellipse(count: int) -> torch.Tensor:
    """Points about an ellipse."""
    turn = torch.rand(count) * 2 * math.pi
    return torch.stack([turn.cos(), 0.6 * turn.sin()], 1) + 0.08 * torch.randn(count, 2)


def apart(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """How far apart two sets of points are, seen from sixteen sides."""
    turn = torch.arange(16) * math.pi / 16
    sides = torch.stack([turn.cos(), turn.sin()])
    return ((one @ sides).sort(0).values - (two @ sides).sort(0).values).abs().mean()


@healthy("fifteenth", {"model": "gan-points", "lr_g": 1e-3, "lr_d": 2e-3, "beta1": 0.5, "instance_noise": 0.1})
def ellipse_drawn_by_two(tape: Tape) -> None:
    """Two networks against each other: both losses swing about a middle while the points come nearer."""
    torch.manual_seed(1527)
    maker, judge = dense(2, 64, 64, 2), dense(2, 64, 64, 1, act=lambda: nn.LeakyReLU(0.2))
    makes = torch.optim.Adam(maker.parameters(), betas=(0.5, 0.99))
    judges = torch.optim.Adam(judge.parameters(), betas=(0.5, 0.99))

    def act(step: int) -> Values:
        share = min(1.0, (700 - step) / 350)
        drawn, noise = maker(torch.randn(96, 2)), 0.1 * torch.randn(2, 96, 2)
        real, fake = judge(ellipse(96) + noise[0]), judge(drawn.detach() + noise[1])
        loss = F.softplus(-real).mean() + F.softplus(fake).mean()
        update(judges, loss, 1e9, 2e-3 * share)
        again = judge(drawn + noise[1])
        other = F.softplus(-again).mean()
        update(makes, other, 1e9, 1e-3 * share)
        found = {"loss_D": loss, "loss_G": other, "D(x)": real.sigmoid().mean()}
        found |= {"D(G(z))_1": fake.sigmoid().mean(), "D(G(z))_2": again.sigmoid().mean()}
        if step % 70 == 69:
            with torch.no_grad():
                found["sliced_distance"] = apart(maker(torch.randn(1000, 2)), ellipse(1000))
        return found

    drive(tape, 700, act)


@healthy("fifteenth", {"latent": 8, "beta_max": 1.0, "anneal_steps": 150, "lr": 2e-3})
def annealed_latents(tape: Tape) -> None:
    """A variational autoencoder whose KL counts more and more over 150 steps: the KL rises, then settles."""
    torch.manual_seed(1528)
    coder, drawer = dense(144, 64, 16), dense(8, 64, 144)

    def elbo(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        middle, spread = coder(x).chunk(2, 1)
        out = drawer(middle + (spread / 2).exp() * torch.randn_like(middle))
        kl = 0.5 * (middle.square() + spread.exp() - 1 - spread).sum(1).mean()
        return 0.5 * (out - x).square().sum(1).mean() / 0.1, kl

    def loss_of(step: int) -> Told:
        beta = min(1.0, (step + 1) / 150)
        recon, kl = elbo(stripes(32, noise=0.1)[0].flatten(1))
        return recon + beta * kl, {"train/recon_loss": recon, "train/kl": kl, "train/beta": beta}

    def check() -> Values:
        recon, kl = elbo(test)
        return {"val/recon_loss": recon, "val/kl": kl, "val/elbo": -recon - kl}

    test = stripes(300, noise=0.1)[0].flatten(1)
    optimizer = torch.optim.Adam([*coder.parameters(), *drawer.parameters()])
    names = "train/loss - train/grad_norm"
    fit(tape, optimizer, loss_of, 440, lambda step: 2e-3, names, 200.0, check=check, check_every=40)


@healthy(
    "fifteenth", {"script": "train_unconditional", "prediction_type": "epsilon", "use_ema": True, "lr_warmup_steps": 30}
)
def diffusers_noise(tape: Tape) -> None:
    """Guesses the noise in pictures: the loss quivers with the times that were drawn while it falls by a third."""
    torch.manual_seed(1529)
    model = dense(145, 128, 128, 144, act=nn.SiLU)
    average, optimizer, taken = copy.deepcopy(model), torch.optim.AdamW(model.parameters(), weight_decay=1e-6), 0
    rate = cosine(500, 1.5e-3, 30)

    def act(step: int) -> Values:
        nonlocal taken
        x = stripes(16, noise=0.1)[0].flatten(1)
        at, noise = torch.rand(16, 1), torch.randn(16, 144)
        keep = (at * math.pi / 2).cos()
        loss = F.mse_loss(model(torch.cat([keep * x + (1 - keep**2).sqrt() * noise, at], 1)), noise)
        update(optimizer, loss, 1.0, rate(step))
        taken += 1
        kept = min(0.999, (1 + taken) / (10 + taken))
        follow(average, model, kept)
        return {"loss": loss, "lr": rate(step), "step": taken, "ema_decay": kept}

    drive(tape, 500, act)


@healthy("fifteenth", {"model": "clip-tiny", "batch-size": 32, "lr": 2e-3, "logit_scale_init": 14.3})
def clip_two_views(tape: Tape) -> None:
    """Pictures and words for them find each other in a batch; each tenth step is logged."""
    torch.manual_seed(1530)
    look, read = nn.Sequential(nn.Flatten(), dense(256, 64, 16)), dense(6, 32, 16)
    scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def loss_of(step: int) -> Told:
        x, labels, boxes, _ = things(32)
        words = torch.cat([F.one_hot(labels, 2), (boxes * 16).round() / 16], 1)
        near = scale.exp() * F.normalize(look(x), dim=1) @ F.normalize(read(words), dim=1).T
        own = torch.arange(32)
        loss = (F.cross_entropy(near, own) + F.cross_entropy(near.T, own)) / 2
        return loss, {"train/logit_scale": scale.exp(), "train/top1": right(near, own)}

    optimizer = torch.optim.AdamW([*look.parameters(), *read.parameters(), scale], betas=(0.9, 0.98))
    names = "train/contrastive_loss train/lr -"
    fit(tape, optimizer, loss_of, 500, line(500, 2e-3, 40), names, 1.0, every=10)
