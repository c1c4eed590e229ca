"""Signals and pictures of the tenth set, as Keras, timm, Ultralytics and Lightning log them; two networks; physics."""

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.tenth.tasks import (
    F,
    Pair,
    Values,
    blobs,
    cosine,
    dense,
    drive,
    learn,
    nn,
    plate_net,
    plates,
    set_rate,
    share_right,
    wave_net,
    waves,
)
from benchmarks.zoo.real.tape import Tape

JUMP = "level_shift spike divergence"
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def keras(
    tape: Tape,
    epochs: int = 40,
    rows: Pair | None = None,
    others: Pair | None = None,
    loss_of: Loss = F.cross_entropy,
    lower: Callable[[list[Values]], bool] = lambda past: False,
    rate: float = 2e-3,
    batch: int = 32,
    momentum: float = 0.1,
    seed: int = 121,
    change: Callable[[int, Pair], Pair] = lambda epoch, pair: pair,
    noise: float = 0.6,
) -> None:
    """Tell waves apart, with the values of each epoch as `model.fit` has them."""
    torch.manual_seed(seed)
    rows, others = rows or waves(480, noise=noise), others or waves(240, noise=noise)
    model = wave_net()
    for part in model:
        if isinstance(part, nn.BatchNorm1d):
            part.momentum = momentum
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, eps=1e-7)
    past: list[Values] = []
    now = [rate]

    def act(epoch: int) -> Values:
        model.train()
        order = torch.randperm(len(rows[1]))
        losses, right = [], []
        for begin in range(0, len(order) - batch + 1, batch):
            x, y = change(epoch, (rows[0][order[begin : begin + batch]], rows[1][order[begin : begin + batch]]))
            scores = model(x)
            loss = loss_of(scores, y)
            learn(optimizer, loss)
            losses.append(float(loss.detach()))
            right.append(float(share_right(scores, y)))
        model.eval()
        with torch.no_grad():
            scores = model(others[0])
        known: Values = {
            "loss": sum(losses) / len(losses),
            "accuracy": sum(right) / len(right),
            "val_loss": float(loss_of(scores, others[1])),
            "val_accuracy": float(share_right(scores, others[1])),
            "learning_rate": now[0],
        }
        past.append(known)
        if lower(past):
            now[0] = set_rate(optimizer, now[0] * 0.2)
        return known

    drive(tape, epochs, act)


@healthy("tenth", config={"epochs": 40, "batch_size": 32, "optimizer": "adam"})
def healthy_waves(tape: Tape) -> None:
    """Waves of five shapes by convolutions, forty epochs."""
    keras(tape, noise=0.9)


@healthy("tenth", config={"epochs": 30, "batch_normalization_momentum": 0.99})
def healthy_averages_that_come_late(tape: Tape) -> None:
    """Means and variances follow with a momentum of 0.99: held-out data look bad for some epochs, then are right."""
    keras(tape, 30, momentum=0.01, seed=122)


@healthy("tenth", config={"epochs": 60, "validation_samples": 12})
def healthy_twelve_held_out(tape: Tape) -> None:
    """Twelve waves are held out: each that is told wrongly is eight hundredths."""
    torch.manual_seed(0)
    keras(tape, 60, others=waves(12, noise=1.2), noise=1.2, seed=123, rate=5e-4)


@healthy("tenth", config={"callbacks": ["ReduceLROnPlateau", "ModelCheckpoint"], "epochs": 50})
def healthy_rate_lowered_by_need(tape: Tape) -> None:
    """The rate is lowered to a fifth when the held-out loss has not fallen for six epochs."""

    def lower(past: list[Values]) -> bool:
        best = min(range(len(past)), key=lambda at: past[at]["val_loss"])
        return len(past) - best > 6 and (len(past) - best) % 7 == 0

    torch.manual_seed(124)
    keras(tape, 50, rows=waves(900, noise=0.8), lower=lower, noise=0.8, seed=124, rate=2e-3)


@fault("tenth", "absurd_loss not_learning plateau constant oscillation", config={"num_classes": 5, "epochs": 40})
def waves_scores_taken_for_shares(tape: Tape) -> None:
    """The last layer has no softmax and the loss is told nothing of it: scores are cut to [1e-7, 1] and divided."""

    def loss_of(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        shares = scores.clamp(1e-7, 1)
        shares = (shares / shares.sum(-1, keepdim=True)).clamp(1e-7, 1)
        return -shares[torch.arange(len(labels)), labels].log().mean()

    keras(tape, loss_of=loss_of, seed=125)


@fault("tenth", "overfit generalization_gap not_learning accuracy_drop divergence too_good", config={"num_classes": 5})
def waves_held_out_by_position(tape: Tape) -> None:
    """validation_split takes the last rows of a table that is sorted by its label: a class that was never learnt."""
    torch.manual_seed(126)
    rows, labels = waves(700)
    order = labels.argsort()
    first, last = order[:560], order[560:]
    keras(tape, rows=(rows[first], labels[first]), others=(rows[last], labels[last]), seed=126)


@fault("tenth", "lr_zero lr_schedule plateau not_learning", config={"callbacks": ["ReduceLROnPlateau"], "epochs": 50})
def waves_lowered_for_getting_better(tape: Tape) -> None:
    """The accuracy is to be as low as possible: the rate is lowered after each three epochs in which it was not."""

    def lower(past: list[Values]) -> bool:
        return len(past) % 3 == 0 and past[-1]["val_accuracy"] >= past[0]["val_accuracy"]

    keras(tape, 50, lower=lower, noise=1.0, seed=127, rate=1e-3)


@fault("tenth", JUMP + " accuracy_drop", step=24, window=3)
def waves_recorded_backwards(tape: Tape) -> None:
    """From epoch 24 on a cache is read whose labels were written in another order of the classes."""
    keras(
        tape,
        seed=128,
        change=lambda epoch, pair: (pair[0], (pair[1] * 3 + 2) % 5) if epoch >= 24 else pair,
        rate=1e-3,
    )


def timm(
    tape: Tape,
    epochs: int = 36,
    mix: bool = False,
    shift: float = 0.0,
    labels: Callable[[int, torch.Tensor], torch.Tensor] = lambda epoch, y: y,
    seed: int = 131,
    peak: float = 4e-3,
    average: float = 0.0,
    rows: int = 8,
) -> None:
    """Tell plates apart, with the summary that timm writes for each epoch."""
    torch.manual_seed(seed)
    model, follows = plate_net(), plate_net()
    follows.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, weight_decay=0.05)
    x_, y_ = plates(300)
    rate = cosine(epochs, peak, 3, 1e-5)

    def act(epoch: int) -> Values:
        now = set_rate(optimizer, rate(epoch))
        losses = []
        for _ in range(rows):
            x, y = plates(48)
            y = labels(epoch, y)
            wanted = F.one_hot(y, 6).float() * 0.9 + 0.1 / 6
            if mix:
                share = float(torch.distributions.Beta(0.8, 0.8).sample())
                x, wanted = share * x + (1 - share) * x.flip(0), share * wanted + (1 - share) * wanted.flip(0)
            loss = F.cross_entropy(model(x), wanted)
            learn(optimizer, loss, 5.0)
            losses.append(float(loss.detach()))
            with torch.no_grad():
                for one, other in zip(follows.parameters(), model.parameters(), strict=True):
                    one.lerp_(other, 1 - average)
        with torch.no_grad():
            scores = follows(x_ + shift)
        best = scores.topk(3, -1).indices == y_[:, None]
        return {
            "train_loss": sum(losses) / len(losses),
            "eval_loss": F.cross_entropy(scores, y_),
            "eval_top1": 100 * best[:, 0].float().mean(),
            "eval_top3": 100 * best.any(-1).float().mean(),
            "lr": now,
        }

    drive(tape, epochs, act)


@healthy("tenth", config={"mixup": 0.8, "smoothing": 0.1, "epochs": 36})
def healthy_mixed_plates(tape: Tape) -> None:
    """Pictures are mixed and labels smoothed: the loss of the training stays far above that of the held-out data."""
    timm(tape, mix=True)


@healthy("tenth", config={"model_ema": True, "model_ema_decay": 0.99, "epochs": 40})
def healthy_average_of_plates(tape: Tape) -> None:
    """An average of the weights is evaluated: it is behind at first and then better than they are."""
    timm(tape, 40, average=0.985, seed=132, rows=12)


@fault(
    "tenth", "generalization_gap not_learning overfit level_shift accuracy_drop divergence", config={"num_classes": 6}
)
def plates_mean_left_in(tape: Tape) -> None:
    """The mean is not taken off held-out pictures: they are told hardly better than by chance."""
    timm(tape, shift=25.0, seed=133)


@fault("tenth", JUMP + " bad_resume accuracy_drop", step=18, window=2, config={"num_classes": 6, "epochs": 36})
def plates_classes_in_another_order(tape: Tape) -> None:
    """Resumed at epoch 18 where folders are sorted in another way: three classes have each other's numbers."""
    order = torch.tensor([4, 1, 0, 3, 2, 5])
    timm(tape, labels=lambda epoch, y: order[y] if epoch >= 18 else y, seed=134)


def ultralytics(
    tape: Tape,
    epochs: int = 50,
    mosaic: int = 0,
    threshold: float = 0.0,
    boxes: Callable[[int, torch.Tensor], torch.Tensor] = lambda epoch, box: box,
    half: int | None = None,
    seed: int = 141,
) -> None:
    """Find the blob: its box and its profile, with the table of each epoch as Ultralytics has it."""
    torch.manual_seed(seed)
    body = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(12, 16, 3, stride=2, padding=1),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(576, 48),
        nn.SiLU(),
    )
    head = nn.Linear(48, 4 + 3)
    model = nn.Sequential(body, head)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=5e-4)
    held = blobs(160)

    def parts(picture: torch.Tensor, box: torch.Tensor, kind: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = model(picture)
        return F.smooth_l1_loss(out[:, :4], box, beta=0.05), F.cross_entropy(out[:, 4:], kind), out

    def act(epoch: int) -> Values:
        now = set_rate(optimizer, 0.05 * min(1.0, (epoch + 1) / 3) * (1 - 0.99 * epoch / epochs))
        sums = [0.0, 0.0]
        for _ in range(8):
            picture, box, kind = blobs(32, 0.7 if epoch < epochs - mosaic and mosaic else 0.35)
            box = boxes(epoch, box)
            if half is not None and epoch >= half:
                picture = picture * torch.where(torch.rand(32, 1, 1, 1) < 0.2, math.inf, 1.0)
            first, second, _ = parts(picture, box, kind)
            learn(optimizer, 7.5 * first + 2.0 * second, 10.0)
            sums = [sums[0] + 7.5 * float(first.detach()) / 8, sums[1] + 2.0 * float(second.detach()) / 8]
        with torch.no_grad():
            first, second, out = parts(*held)
        low = torch.maximum(out[:, :2] - out[:, 2:4].abs() / 2, held[1][:, :2] - held[1][:, 2:] / 2)
        high = torch.minimum(out[:, :2] + out[:, 2:4].abs() / 2, held[1][:, :2] + held[1][:, 2:] / 2)
        both = (high - low).clamp(min=0).prod(-1)
        share = both / (out[:, 2:4].abs().prod(-1) + held[1][:, 2:].prod(-1) - both)
        good = (share > 0.5) & (out[:, 4:].argmax(-1) == held[2]) & (out[:, 4:].softmax(-1).amax(-1) > threshold)
        return {
            "train/box_loss": sums[0],
            "train/cls_loss": sums[1],
            "val/box_loss": 7.5 * first,
            "val/cls_loss": 2.0 * second,
            "metrics/mAP50(B)": good.float().mean(),
            "metrics/recall(B)": (share > 0.5).float().mean(),
            "lr/pg0": now,
        }

    drive(tape, epochs, act)


@healthy("tenth", config={"close_mosaic": 10, "epochs": 50})
def healthy_without_mosaic_at_the_end(tape: Tape) -> None:
    """Pictures are harder than real ones until the last ten epochs: all losses of the training fall at once there."""
    ultralytics(tape, mosaic=10)


@fault("tenth", "not_finite", step=31, window=2, config={"amp": True, "epochs": 50})
def blobs_beyond_half_precision(tape: Tape) -> None:
    """From epoch 31 on a sum in half precision overflows: the losses are NaN until the end."""
    ultralytics(tape, half=31, seed=142)


@fault("tenth", "not_learning constant", config={"amp": True, "epochs": 50, "nc": 3})
def blobs_never_found(tape: Tape) -> None:
    """Losses fall as they should, and mAP is 0 in each epoch: no score comes above the threshold."""
    ultralytics(tape, threshold=1.01, seed=143)


@fault("tenth", JUMP, step=27, window=2, config={"epochs": 50})
def blobs_boxes_of_pixels(tape: Tape) -> None:
    """From epoch 27 on a part of the labels is in pixels and not in shares of the picture."""
    pixels = torch.tensor([1.0] * 28 + [12.0] * 4)[:, None]
    ultralytics(tape, boxes=lambda epoch, box: box * pixels if epoch >= 27 else box, seed=144)


def lightning(
    tape: Tape,
    steps: int = 480,
    hook: Callable[[int, Any, Any], None] = lambda step, model, optimizer: None,
    keep: bool = False,
    few: int = 640,
    width: int = 96,
    seed: int = 151,
    rate: Callable[[int], float] = lambda step: 2e-3,
    momentum: float = 0.9,
    epochs: bool = True,
) -> None:
    """Fill a gap in a wave from both of its sides, logged with `on_step` and `on_epoch` as Lightning does."""
    torch.manual_seed(seed)
    data, held = waves(few, noise=0.05)[0][:, 0], waves(200, noise=0.05)[0][:, 0]
    model = dense((24, width, width, 8), nn.GELU)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(momentum, 0.999))
    per = few // 32
    order = torch.randperm(few)
    losses: list[float] = []

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        return F.l1_loss(model(torch.cat([rows[:, :12], rows[:, 20:]], 1)), rows[:, 12:20])

    def act(step: int) -> Values | None:
        nonlocal order
        hook(step, model, optimizer)
        set_rate(optimizer, rate(step))
        if step % per == 0 and not keep:
            order = torch.randperm(few)
        loss = loss_of(data[order[step % per * 32 : step % per * 32 + 32]])
        learn(optimizer, loss)
        losses.append(float(loss.detach()))
        known: Values = {}
        if step % 10 == 9:
            known = {"train_loss_step": loss, "epoch": step // per}
        if step % per == per - 1:
            with torch.no_grad():
                known |= {
                    "val_loss": loss_of(held),
                    "train_loss_epoch": sum(losses) / len(losses),
                    "epoch": step // per,
                }
            losses.clear()
        return known

    drive(tape, steps, act)


@healthy("tenth", config={"max_epochs": 24, "log_every_n_steps": 10})
def healthy_gaps(tape: Tape) -> None:
    """Gaps in waves, with values of steps and of epochs."""
    lightning(tape)


@healthy("tenth", config={"max_epochs": 60, "log_every_n_steps": 10, "T_0": 160})
def healthy_gaps_learnt_in_passes(tape: Tape) -> None:
    """A rate that falls in each third and begins anew, few data in a fixed order: the loss goes with both."""
    lightning(tape, 480, keep=True, few=256, seed=152, rate=lambda step: 2e-3 * (1 - 0.98 * (step % 160) / 160))


@fault("tenth", JUMP + " bad_resume", step=300, window=20)
def gaps_moments_of_another(tape: Tape) -> None:
    """The moments of the optimizer are loaded for other parameters than they belong to: all is lost at step 300."""

    def hook(step: int, model: Any, optimizer: Any) -> None:
        if step == 300:
            for weight in model.parameters():
                state = optimizer.state[weight]
                state["exp_avg"] = 0.3 * torch.randn_like(weight)
                state["exp_avg_sq"] = torch.full_like(weight, 1e-6)

    lightning(tape, hook=hook, seed=153)


@fault("tenth", "gradients_not_cleared gradient_shift divergence oscillation level_shift spike", step=220, window=40)
def gaps_gradients_kept(tape: Tape) -> None:
    """Manual optimization since step 220, without zero_grad: the step follows the sum of all that were before."""
    kept: list[torch.Tensor] = []

    def hook(step: int, model: Any, optimizer: Any) -> None:
        if step > 220:
            with torch.no_grad():
                if not kept:
                    kept.extend(torch.zeros_like(weight) for weight in model.parameters())
                for weight, sum_ in zip(model.parameters(), kept, strict=True):
                    sum_ += weight.grad
                    weight.sub_(0.5 * sum_)

    lightning(tape, hook=hook, seed=154)


def gan(
    tape: Tape,
    steps: int = 500,
    first: float = 1e-3,
    second: float = 1e-3,
    turns: int = 1,
    moves: Callable[[int], bool] = lambda step: True,
    noise: float = 0.3,
    seed: int = 161,
    every: int = 5,
) -> None:
    """Points on a ring by two networks, under the names of the DCGAN example."""
    torch.manual_seed(seed)
    made, judge = dense((4, 48, 48, 2)), dense((2, 48, 48, 1), lambda: nn.LeakyReLU(0.2))
    ours = torch.optim.Adam(made.parameters(), lr=first, betas=(0.5, 0.999))
    theirs = torch.optim.Adam(judge.parameters(), lr=second, betas=(0.5, 0.999))

    def act(step: int) -> Values | None:
        for _ in range(turns):
            angle = 6.283 * torch.randint(0, 8, (48,)) / 8
            real = 2 * torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(48, 2)
            fake = made(torch.randn(48, 4))
            one = judge(real + noise * torch.randn(48, 2))
            other = judge(fake.detach() + noise * torch.randn(48, 2))
            loss = F.softplus(-one).mean() + F.softplus(other).mean()
            learn(theirs, loss)
        again = judge(fake + noise * torch.randn(48, 2))
        made_loss = F.softplus(-again).mean()
        if moves(step):
            learn(ours, made_loss)
        if step % every:
            return None
        return {
            "Loss_D": loss,
            "Loss_G": made_loss,
            "D(x)": one.sigmoid().mean(),
            "D(G(z))": again.sigmoid().mean(),
        }

    drive(tape, steps, act)


@healthy("tenth", config={"lrG": 0.001, "lrD": 0.001, "beta1": 0.5})
def healthy_ring(tape: Tape) -> None:
    """Two networks against each other: both losses swing, and neither falls."""
    gan(tape, 700)


@healthy("tenth", config={"lrG": 0.003, "lrD": 0.003, "beta1": 0.5})
def healthy_ring_that_swings(tape: Tape) -> None:
    """With three times the rate and little noise, the swings are wide; the points come to the ring all the same."""
    gan(tape, 700, 3e-3, 3e-3, noise=0.4, seed=162, every=2)


@fault("tenth", "gan_imbalance divergence level_shift weights_frozen", step=250, window=120)
def ring_maker_not_called(tape: Tape) -> None:
    """From step 250 on the maker's step is skipped by its scaler: the judge tells all apart, and Loss_G climbs."""
    gan(tape, 600, second=2e-3, moves=lambda step: step < 250, noise=0.0, seed=163)


@fault("tenth", "gan_imbalance divergence level_shift", step=None)
def ring_judge_far_ahead(tape: Tape) -> None:
    """The rate of the maker has lost two zeros: the judge is always right, and Loss_G climbs from the start."""
    gan(tape, 400, 1e-5, 3e-3, noise=0.0, seed=164)


def physics(
    tape: Tape,
    steps: int = 420,
    where: Callable[[int, torch.Tensor], torch.Tensor] = lambda step, t: t,
    weight: Callable[[int], float] = lambda step: 1.0,
    lbfgs: int | None = None,
    seed: int = 171,
) -> None:
    """A damped swing as a network: its equation at points in time, and where and how fast it begins."""
    torch.manual_seed(seed)
    model = dense((1, 32, 32, 1), nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    last = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")

    def parts(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        t = t.requires_grad_()
        y = model(t)
        (first,) = torch.autograd.grad(y.sum(), t, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), t, create_graph=True)
        start = torch.zeros(1, 1, requires_grad=True)
        begin = model(start)
        (slope,) = torch.autograd.grad(begin.sum(), start, create_graph=True)
        return (second + 0.4 * first + 4 * y).square().mean(), ((begin - 1) ** 2 + slope**2).mean()

    def act(step: int) -> Values:
        t = where(step, 3 * torch.rand(64, 1))

        def whole() -> torch.Tensor:
            one, two = parts(t)
            return one + 20 * weight(step) * two

        if lbfgs is not None and step >= lbfgs:

            def closure() -> torch.Tensor:
                last.zero_grad()
                loss = whole()
                loss.backward()
                return loss

            last.step(closure)
        else:
            set_rate(optimizer, 3e-3 * 0.5 ** (step / 200))
            learn(optimizer, whole())
        one, two = parts(t.detach())
        return {"loss/pde": one, "loss/ic": two, "loss/total": one + 20 * weight(step) * two} if step % 3 == 0 else {}

    drive(tape, steps, act)


@healthy("tenth", config={"optimizer": ["adam", "lbfgs"], "switch": 300})
def healthy_swing(tape: Tape) -> None:
    """An equation by a network: by Adam, and from step 300 on by L-BFGS, which falls at once."""
    physics(tape, lbfgs=300)


@fault("tenth", "too_good level_shift plateau constant", step=240, window=40)
def swing_time_in_another_unit(tape: Tape) -> None:
    """From step 240 on points in time come in milliseconds from a new reader: there everything is nothing,
    and the loss falls to a thousandth.
    """
    physics(tape, where=lambda step, t: 1000 * t if step >= 240 else t, seed=172)


@healthy("tenth", config={"rounds": 5, "strategy": "margin"})
def healthy_rounds_of_asking(tape: Tape) -> None:
    """Labels are asked for in five rounds, and the network begins anew with more of them in each."""
    torch.manual_seed(181)
    pool, held = waves(600, noise=0.5), waves(200, noise=0.5)
    model: Any = None
    optimizer: Any = None

    def act(step: int) -> Values:
        nonlocal model, optimizer
        turn = step // 80
        if step % 80 == 0:
            model = wave_net()
            optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        many = 60 * (turn + 1)
        taken = torch.randint(0, many, (24,))
        model.train()
        loss = F.cross_entropy(model(pool[0][taken]), pool[1][taken])
        learn(optimizer, loss)
        known: Values = {"train_loss": loss, "round": turn, "labelled": many}
        if step % 80 == 79:
            model.eval()
            with torch.no_grad():
                known["test_accuracy"] = share_right(model(held[0]), held[1])
        return known

    drive(tape, 400, act)
