"""Pictures and points of the ninth set: flows, captions, boxes, masks, rounded weights, tasks in turn, many clients."""

import copy
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.ninth.tasks import (
    F,
    Values,
    dense,
    drive,
    falling,
    half_wave,
    learn,
    mixture,
    nn,
    set_rate,
    shapes,
    share_right,
)
from benchmarks.zoo.real.tape import Tape

JUMP = "level_shift spike divergence accuracy_drop"


def transport(
    tape: Tape,
    steps: int = 320,
    times: Callable[[int, torch.Tensor], torch.Tensor] = lambda step, time: time,
    scale: Callable[[int], float] = lambda step: 1.0,
    keep: Callable[[int], float] = lambda step: 0.95,
    every: int = 2,
) -> None:
    """Match a flow from noise to a spiral; the average of the weights is looked at every 20 steps."""
    torch.manual_seed(81)
    model = dense((3, 64, 64, 2), nn.SiLU)
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    fixed = (mixture(500), torch.randn(500, 2), torch.rand(500, 1))

    def loss_of(net: Any, points: torch.Tensor, noise: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        mixed = time * points + (1 - time) * noise
        return F.mse_loss(net(torch.cat([mixed, time], 1)), points - noise)

    def act(step: int) -> Values | None:
        now = set_rate(optimizer, half_wave(steps, 4e-3, 20, 2e-4)(step))
        points = scale(step) * mixture(64)
        loss = loss_of(model, points, torch.randn(64, 2), times(step, torch.rand(64, 1)))
        norm = learn(optimizer, loss, 1.0)
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 1 - keep(step))
        found: Values = {"train/fm_loss": loss, "train/grad_norm": norm, "train/lr": now} if step % every == 0 else {}
        if step % 20 == 19:
            with torch.no_grad():
                found |= {"val/fm_loss": loss_of(model, *fixed), "val/fm_loss_ema": loss_of(average, *fixed)}
        return found

    drive(tape, steps, act)


@healthy("ninth")
def healthy_transport(tape: Tape) -> None:
    """The loss soon stays near a floor that is far above zero, in noise."""
    transport(tape)


@fault("ninth", "weights_frozen constant plateau not_learning generalization_gap overfit")
def transport_average_never_follows(tape: Tape) -> None:
    """The decay of the average was read as 1: its held-out loss is that of the first step, to the last digit."""
    transport(tape, keep=lambda step: 1.0)


@fault("ninth", JUMP + " too_good", step=180)
def transport_times_are_whole(tape: Tape) -> None:
    """Times are cast to whole numbers by a new sampler: all are 0, so that only noise is seen."""
    transport(tape, times=lambda step, time: time.floor() if step >= 180 else time)


@fault("ninth", JUMP + " exploding_gradients gradient_shift", step=200)
def transport_scaling_factor_lost(tape: Tape) -> None:
    """Latents computed anew were stored without the scaling factor: all are five times as large from step 200."""
    transport(tape, scale=lambda step: 5.0 if step >= 200 else 1.0)


def caption(
    tape: Tape,
    steps: int = 300,
    pair: Callable[[int, torch.Tensor], torch.Tensor] = lambda step, texts: texts,
    bound: float = 4.6,
    batch: Callable[[int], int] = lambda step: 24,
) -> None:
    """Bring pictures and their captions together, in the names of OpenCLIP."""
    torch.manual_seed(82)
    made = torch.randn(10, 4, 8)
    look, read = dense((8, 48, 16), nn.GELU), nn.Sequential(nn.EmbeddingBag(41, 32), nn.GELU(), nn.Linear(32, 16))
    heat = nn.Parameter(torch.tensor(2.6))
    optimizer = torch.optim.AdamW([*look.parameters(), *read.parameters(), heat], lr=2e-3)

    def both(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        said = torch.randint(0, 10, (count, 4))
        return sum(made[said[:, at], at] for at in range(4)) + 0.3 * torch.randn(count, 8), said + 10 * torch.arange(4)

    def scores_of(seen: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        first, second = F.normalize(look(seen), dim=1), F.normalize(read(texts), dim=1)
        return heat.clamp(max=bound).exp() * first @ second.T

    def act(step: int) -> Values | None:
        now = set_rate(optimizer, half_wave(steps, 5e-3, 20, 1e-4)(step))
        seen, texts = both(batch(step))
        scores = scores_of(seen, pair(step, texts))
        own = torch.arange(len(scores))
        loss = (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2
        learn(optimizer, loss, 1.0)
        found = {"train/contrastive_loss": loss, "train/logit_scale": heat.exp(), "train/lr": now}
        if step % 25 == 24:
            with torch.no_grad():
                seen, texts = both(100)
                found["val/image_to_text_R@1"] = share_right(scores_of(seen, pair(step, texts)), torch.arange(100))
        return found

    drive(tape, steps, act)


@healthy("ninth")
def healthy_captions(tape: Tape) -> None:
    """From the logarithm of the batch down, while the learnt scale rises."""
    caption(tape)


@fault("ninth", JUMP, step=200)
def captions_of_the_next_picture(tape: Tape) -> None:
    """Two queues are read at different speeds since a retry: each picture has the caption of the one after it."""
    caption(tape, pair=lambda step, texts: texts.roll(1, 0) if step >= 200 else texts)


@fault("ninth", "not_learning plateau constant oscillation")
def captions_cut_to_the_prompt(tape: Tape) -> None:
    """Captions are cut after the words that all of them begin with: they are alike, and the loss that of guessing."""
    caption(tape, pair=lambda step, texts: torch.full_like(texts, 40), steps=250)


def locate(
    tape: Tape,
    steps: int = 300,
    boxes: Callable[[int, torch.Tensor], torch.Tensor] = lambda step, boxes: boxes,
) -> None:
    """Tell and enclose one shape, in the names of DETR: parts of the loss, and the sum."""
    torch.manual_seed(83)
    trunk = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
    )
    heads = nn.ModuleList([dense((288, 32, 2)), dense((288, 32, 4))])
    optimizer = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()], lr=1e-3)

    def act(step: int) -> Values | None:
        set_rate(optimizer, 2e-3 if step < 240 else 2e-4)
        field, kind, _, box = shapes(24)
        seen = trunk(field)
        scores = heads[0](seen)
        told, far = F.cross_entropy(scores, kind), F.l1_loss(heads[1](seen), boxes(step, box))
        learn(optimizer, told + 5 * far, 0.5)
        found = {"train_loss": told + 5 * far, "train_loss_ce": told, "train_loss_bbox": 5 * far}
        return found | {
            "train_class_error": 100 * (1 - share_right(scores, kind)),
            "train_lr": optimizer.param_groups[0]["lr"],
        }

    drive(tape, steps, act)


@healthy("ninth")
def healthy_boxes(tape: Tape) -> None:
    """Two parts of a loss that fall at different speeds, and a rate that is cut near the end."""
    locate(tape)


@fault("ninth", JUMP, step=170)
def boxes_by_corners(tape: Tape) -> None:
    """Annotations of another tool give corners, not centres and sizes, from step 170 on."""

    def boxes(step: int, box: torch.Tensor) -> torch.Tensor:
        middle, size = box.chunk(2, 1)
        return torch.cat([middle - size / 2, middle + size / 2], 1) if step >= 170 else box

    locate(tape, boxes=boxes)


def outline(tape: Tape, turned: int = 9999, steps: int = 260) -> None:
    """Mark the points of a shape under a polynomial rate; from a step on pictures are turned, and masks are not."""
    torch.manual_seed(84)
    model = nn.Sequential(
        nn.Conv2d(1, 10, 3, padding=1), nn.ReLU(), nn.Conv2d(10, 10, 3, padding=2, dilation=2), nn.ReLU(),
        nn.Conv2d(10, 1, 1),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    def act(step: int) -> Values | None:
        now = set_rate(optimizer, 0.4 * (1 - step / steps) ** 0.9)
        field, _, points, _ = shapes(12)
        if step >= turned:
            field = field.flip(3)
        marked = model(field)[:, 0]
        loss = F.binary_cross_entropy_with_logits(marked, points)
        learn(optimizer, loss, 1.0)
        both = ((marked > 0) & (points > 0)).sum() / ((marked > 0) | (points > 0)).sum().clamp_min(1)
        return {"Loss/seg": loss, "Metric/mIoU": both, "LR": now} if step % 2 == 0 else None

    drive(tape, steps, act)


@healthy("ninth")
def healthy_outlines(tape: Tape) -> None:
    """Points of bars and rings are marked, under a rate that falls to nothing at the very end."""
    outline(tape)


@fault("ninth", JUMP, step=150)
def outlines_only_pictures_turned(tape: Tape) -> None:
    """A new augmentation mirrors pictures and forgets their masks."""
    outline(tape, turned=150)


class Rounded(torch.nn.Module):  # type: ignore[misc]
    """A linear layer whose weights are rounded to a grid once that is on."""

    def __init__(self, given: int, wanted: int) -> None:
        super().__init__()
        self.inner, self.levels, self.reach = nn.Linear(given, wanted), 0, 1.0

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Apply the layer, through the rounding, of which the gradient knows nothing."""
        weight = self.inner.weight
        if self.levels:
            step = self.reach * weight.detach().abs().max() / self.levels
            near = (weight / step).round().clamp(-self.levels, self.levels) * step
            weight = weight + (near - weight).detach()
        return F.linear(given, weight, self.inner.bias)


def round_off(tape: Tape, reach: float, levels: int = 31, begins: int = 180, steps: int = 320) -> None:
    """Tell shapes by dense layers, whose weights are rounded from a step on; the settings say when."""
    torch.manual_seed(85)
    model = nn.Sequential(nn.Flatten(), Rounded(144, 48), nn.ReLU(), Rounded(48, 24), nn.ReLU(), Rounded(24, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    others = shapes(300)

    def act(step: int) -> Values | None:
        if step == begins:
            for part in model:
                if isinstance(part, Rounded):
                    part.levels, part.reach = levels, reach
        now = set_rate(optimizer, falling(steps, 2.5e-3, 10, 1e-4)(step))
        field, kind, *_ = shapes(32)
        scores = model(field)
        loss = F.cross_entropy(scores, kind)
        learn(optimizer, loss)
        found: Values = {"loss": loss, "top1": share_right(scores, kind), "lr": now} if step % 2 == 0 else {}
        if step % 20 == 19:
            with torch.no_grad():
                scores = model(others[0])
            found |= {"val/loss": F.cross_entropy(scores, others[1]), "val/top1": share_right(scores, others[1])}
        return found

    drive(tape, steps, act)


@healthy("ninth")
def healthy_rounding(tape: Tape) -> None:
    """Weights are rounded to six bits from step 180 on, which hardly shows."""
    round_off(tape, 1.0)


@fault("ninth", JUMP, step=180)
def rounding_with_ranges_of_others(tape: Tape) -> None:
    """Ranges were calibrated on other layers: most weights lie beyond them and are cut once rounding begins."""
    round_off(tape, 0.04)


def half(tape: Tape, steps: int = 260) -> None:
    """Tell shapes in half precision with a scale of the loss, which is halved after each update that is skipped."""
    torch.manual_seed(86)
    model = dense((144, 64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    state = {"scale": 4096.0, "good": 0.0}

    def act(step: int) -> Values | None:
        field, kind, *_ = shapes(32)
        hidden = model[1](model[0](field.flatten(1))).half()
        boost = 1.0 if step < 140 else 2e5
        scores = (hidden.float() * boost).half().float() @ model[2].weight.T / boost + model[2].bias
        loss = F.cross_entropy(scores, kind)
        optimizer.zero_grad()
        (loss * state["scale"]).backward()
        fine = all(weight.grad.isfinite().all() for weight in model.parameters()) and bool(loss.isfinite())
        if fine:
            for weight in model.parameters():
                weight.grad /= state["scale"]
            optimizer.step()
            state["good"] += 1
        if not fine or state["good"] >= 60:
            state["scale"] *= 2.0 if fine else 0.5
            state["good"] = 0
        shown: Values = {"train/loss": loss} if loss.isfinite() else {}
        return shown | {"train/amp_scale": state["scale"], "train/step_skipped": float(not fine)}

    drive(tape, steps, act)


@fault("ninth", "scaler_collapse skipped_steps not_finite missing_steps", step=140)
def half_precision_overflows(tape: Tape) -> None:
    """An activation is multiplied beyond the range of half precision from step 140 on: all updates are skipped."""
    half(tape)


def in_turn(tape: Tape, memory: Callable[[int], int], each: int = 120) -> None:
    """Learn three tasks in turn, with some rows of those before in each batch, as Avalanche logs it."""
    torch.manual_seed(87)
    model = dense((16, 64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sides = [torch.randn(16, 3) for _ in range(3)]

    def rows(task: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        given = torch.randn(count, 16) + 2.0 * F.one_hot(torch.tensor(task), 16)
        return given, (given @ sides[task]).argmax(1)

    def act(step: int) -> Values | None:
        task = step // each
        parts = [rows(task, 24)] + [rows(old, memory(step)) for old in range(task) if memory(step)]
        given, wanted = (torch.cat(part) for part in zip(*parts, strict=True))
        loss = F.cross_entropy(model(given), wanted)
        learn(optimizer, loss)
        found: Values = {"Loss_MB": loss, "task": task} if step % 2 == 0 else {}
        if step % 15 == 14:
            with torch.no_grad():
                for old in range(task + 1):
                    given, wanted = rows(old, 200)
                    found[f"Top1_Acc_Exp/Task{old}"] = share_right(model(given), wanted)
        return found

    drive(tape, 3 * each, act)


@healthy("ninth")
def healthy_tasks_in_turn(tape: Tape) -> None:
    """The loss rises with each new task, which is logged, and what was learnt before is nearly kept."""
    in_turn(tape, lambda step: 16)


@fault("ninth", "accuracy_drop level_shift divergence", step=245, window=30)
def tasks_without_memory(tape: Tape) -> None:
    """The rows of earlier tasks are no longer mixed in when the third begins: the first two are forgotten."""
    in_turn(tape, lambda step: 0 if step >= 240 else 16)


def federate(
    tape: Tape,
    rounds: int = 90,
    send: Callable[[int, int, torch.Tensor], torch.Tensor] = lambda turn, client, moved: moved,
    step_size: float = 1.0,
) -> None:
    """Average what six of twelve clients, each with other classes, learnt in a round, in Flower's names."""
    torch.manual_seed(88)
    sides, model = torch.randn(10, 6), dense((10, 32, 6))
    often = torch.distributions.Dirichlet(torch.full((6,), 0.6)).sample((12,))
    pool = torch.randn(6000, 10)
    labels = (pool @ sides).argmax(1)
    rows_of = [(often[client][labels] > torch.rand(6000)).nonzero()[:, 0] for client in range(12)]

    def act(turn: int) -> Values:
        start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
        moved, losses = [], []
        for client in torch.randperm(12)[:6].tolist():
            nn.utils.vector_to_parameters(start.clone(), model.parameters())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(5):
                rows = rows_of[client][torch.randint(0, len(rows_of[client]), (24,))]
                loss = F.cross_entropy(model(pool[rows]), labels[rows])
                learn(optimizer, loss)
                losses.append(float(loss.detach()))
            after = nn.utils.parameters_to_vector(model.parameters()).detach()
            moved.append(send(turn, client, after - start))
        nn.utils.vector_to_parameters(start + step_size * torch.stack(moved).mean(0), model.parameters())
        with torch.no_grad():
            scores = model(pool[:800])
        found = {"fit/train_loss": sum(losses) / len(losses), "centralized/loss": F.cross_entropy(scores, labels[:800])}
        return found | {"centralized/accuracy": share_right(scores, labels[:800])}

    drive(tape, rounds, act)


@healthy("ninth")
def healthy_clients(tape: Tape) -> None:
    """Other clients each round, with other classes: the losses zigzag on their way down."""
    federate(tape)


@fault("ninth", JUMP + " not_finite", step=55, window=12)
def clients_one_sends_the_opposite(tape: Tape) -> None:
    """From round 55 on three clients send what they learnt with the wrong sign, and ten times over."""
    federate(tape, send=lambda turn, client, moved: -10 * moved if turn >= 55 and client < 3 else moved)


@fault("ninth", "weights_frozen constant not_learning plateau")
def clients_server_stands(tape: Tape) -> None:
    """The server's own rate is 0 by a default: the model that is sent out stays that of the first round."""
    federate(tape, step_size=0.0, rounds=70)
