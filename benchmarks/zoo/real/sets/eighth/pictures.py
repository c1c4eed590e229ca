"""Pictures of the eighth set."""

import math
from collections.abc import Callable

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.eighth.tasks import Rate, boxes_overlap, cosine, gratings, looker, spots
from benchmarks.zoo.real.sets.seventh.tasks import F, Pair, Values, drive, learn, nn, set_rate, share_right
from benchmarks.zoo.real.tape import Tape

JUMP = "level_shift spike divergence accuracy_drop"
Change = Callable[[int, torch.Tensor, torch.Tensor], Pair]


def as_given(step: int, pictures: torch.Tensor, labels: torch.Tensor) -> Pair:
    """The batch unchanged."""
    return pictures, labels


def see(
    tape: Tape,
    called: dict[str, str],
    steps: int = 400,
    rate: Rate = lambda step: 0.05,
    change: Change = as_given,
    batch: int = 32,
    every: int = 1,
    look: int = 25,
    few: int = 4000,
) -> None:
    """Tell the directions of gratings; `called` has the names of loss, accuracy, rate, norm and of those looked at."""
    torch.manual_seed(31)
    model = looker(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    known, others = gratings(few), gratings(400)

    def act(step: int) -> Values | None:
        rows = torch.randint(0, few, (batch,))
        pictures, labels = change(step, known[0][rows], known[1][rows])
        now = set_rate(optimizer, rate(step))
        scores = model(pictures)
        loss = F.cross_entropy(scores, labels)
        norm = learn(optimizer, loss)
        found: Values = {}
        if step % every == 0:
            found = {"loss": loss, "accuracy": share_right(scores, labels), "rate": now, "norm": norm}
        if step % look == look - 1:
            with torch.no_grad():
                scores = model(change(step, *others)[0] if "changed" in called else others[0])
            found |= {"seen": F.cross_entropy(scores, others[1]), "right": share_right(scores, others[1])}
        return {called[name]: value for name, value in found.items() if name in called}

    drive(tape, steps, act)


TENSORBOARD = {
    "loss": "Loss/train",
    "accuracy": "Accuracy/train",
    "seen": "Loss/test",
    "right": "Accuracy/test",
}
TIMM = {"loss": "train_loss", "rate": "lr", "seen": "eval_loss", "right": "eval_top1", "norm": "grad_norm"}


@healthy("eighth")
def healthy_tensorboard_small_batches(tape: Tape) -> None:
    """Batches of eight at one rate, without warm-up: every step is logged, and nearly all of it is noise."""
    see(tape, TENSORBOARD, steps=500, rate=lambda step: 0.01, batch=8)


@fault("eighth", JUMP, step=290)
def tensorboard_shard_shuffled(tape: Tape) -> None:
    """The labels of the later shards were written in another order than their pictures."""

    def change(step: int, x: torch.Tensor, y: torch.Tensor) -> Pair:
        return x, y[torch.randperm(len(y))] if step >= 290 else y

    see(tape, TENSORBOARD, steps=450, rate=lambda step: 0.03, change=change)


def mixed(step: int, pictures: torch.Tensor, labels: torch.Tensor) -> Pair:
    """Each picture with another one laid over it, at up to half its strength."""
    return pictures + 0.5 * torch.rand(len(pictures), 1, 1, 1) * pictures.flip(0), labels


@healthy("eighth")
def healthy_timm_restarts_and_mixed(tape: Tape) -> None:
    """Pictures are mixed, so that training looks worse than evaluation, and the cosine starts again twice."""

    def rate(step: int) -> float:
        return 0.001 + 0.06 * 0.5 * (1 + math.cos(math.pi * (step % 200) / 200)) * 0.8 ** (step // 200)

    see(tape, TIMM, steps=600, rate=rate, change=mixed, every=5, few=6000)


@fault("eighth", JUMP + " exploding_gradients bad_resume gradient_shift", step=320, window=25)
def timm_other_mean_after_resume(tape: Tape) -> None:
    """After it was resumed the model's own mean and deviation were not passed on: pictures come with those of RGB."""

    def change(step: int, x: torch.Tensor, y: torch.Tensor) -> Pair:
        return ((x - 0.485) / 0.229 if step >= 320 else x), y

    see(tape, TIMM | {"changed": ""}, steps=500, rate=cosine(500, 0.06), change=change, every=5)


def fine_tune(tape: Tape, share: float, steps: int = 500, begins: int = 280) -> None:
    """Train a head, and from a step on the trunk below it too, at a share of the head's rate, as Lightning logs it."""
    torch.manual_seed(32)
    model = looker(8)
    known, others = gratings(4000, noise=0.6), gratings(300, noise=0.6)
    first = torch.optim.AdamW(model.parameters(), lr=0.003)
    for _ in range(150):
        rows = torch.randint(0, 4000, (32,))
        learn(first, F.cross_entropy(model(known[0][rows]), (known[1][rows] + 3) % 8 // 2))
    model[-1] = nn.Linear(32, 8)
    optimizer = torch.optim.AdamW(model[-3:].parameters(), lr=0.004)
    total: list[float] = []

    def act(step: int) -> Values:
        if step == begins:
            optimizer.add_param_group({"params": list(model[:-3].parameters()), "lr": 0.004 * share})
        rows = torch.randint(0, 4000, (24,))
        loss = F.cross_entropy(model(known[0][rows]), known[1][rows])
        learn(optimizer, loss)
        total.append(float(loss.detach()))
        values: Values = {"train_loss_step": loss} if step % 2 == 0 else {}
        if step % 10 == 9:
            rates = [group["lr"] for group in optimizer.param_groups]
            values |= {f"lr-AdamW/pg{at + 1}": now for at, now in enumerate(rates)}
        if step % 50 == 49:
            with torch.no_grad():
                scores = model(others[0])
            values |= {"train_loss_epoch": sum(total) / len(total), "epoch": step // 50}
            values |= {"val_loss": F.cross_entropy(scores, others[1]), "val_acc": share_right(scores, others[1])}
            total.clear()
        return values

    drive(tape, steps, act)


@healthy("eighth")
def healthy_lightning_unfreezing(tape: Tape) -> None:
    """A head is trained first; the trunk joins it later at a tenth of the rate, after which the loss falls anew."""
    fine_tune(tape, share=0.1)


@fault("eighth", JUMP + " lr_schedule exploding_gradients gradient_shift dead_units", step=280)
def lightning_unfrozen_at_high_rate(tape: Tape) -> None:
    """The trunk was to join at a tenth of the head's rate; the factor was written as its inverse, and then some."""
    fine_tune(tape, share=25)


def fit(tape: Tape, epochs: int, few: int, width: int, wait: int = 0, noise: float = 0.9) -> None:
    """Fit gratings as Keras logs it, once an epoch; the rate may be halved when `val_loss` has not fallen."""
    torch.manual_seed(33)
    model = looker(8, width=width)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    known, others = gratings(few, noise), gratings(500, noise)
    best, since = math.inf, 0

    def act(epoch: int) -> Values:
        nonlocal best, since
        losses, right = [], []
        for rows in torch.randperm(few).split(32):
            scores = model(known[0][rows])
            loss = F.cross_entropy(scores, known[1][rows])
            learn(optimizer, loss)
            losses.append(loss.detach())
            right.append(share_right(scores, known[1][rows]))
        with torch.no_grad():
            scores = model(others[0])
        now = float(F.cross_entropy(scores, others[1]))
        since = 0 if now < best else since + 1
        best = min(best, now)
        if wait and since == wait:
            set_rate(optimizer, optimizer.param_groups[0]["lr"] / 2)
            since = 0
        return {
            "loss": torch.stack(losses).mean(),
            "accuracy": torch.stack(right).mean(),
            "val_loss": now,
            "val_accuracy": share_right(scores, others[1]),
            "learning_rate": optimizer.param_groups[0]["lr"],
        }

    drive(tape, epochs, act)


@healthy("eighth")
def healthy_keras_rate_halved_on_plateau(tape: Tape) -> None:
    """Learnt after a few epochs and level from there, while the rate is halved again and again."""
    fit(tape, epochs=40, few=1600, width=8, wait=3, noise=0.45)


@fault("eighth", "overfit generalization_gap overtraining")
def keras_few_pictures(tape: Tape) -> None:
    """Four hundred pictures, fifty epochs, nothing to hold it back: it is learnt by heart while `val_loss` climbs."""
    fit(tape, epochs=50, few=400, width=16, noise=1.7)


def detect(tape: Tape, epochs: int, called: tuple[str, ...], plain_from: int) -> None:
    """Find spots as Ultralytics logs it, once an epoch; four fields are laid into one but in the last epochs."""
    torch.manual_seed(34)
    model = looker(7, side=12)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.004)
    known, others = spots(1600), spots(400)
    rate = cosine(epochs, 0.004, warm=3, floor=0.0001)

    def parts(found: torch.Tensor, boxes: torch.Tensor, forms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return 5 * F.smooth_l1_loss(found[:, :4], boxes, beta=0.05), F.cross_entropy(found[:, 4:], forms)

    def act(epoch: int) -> Values:
        now = set_rate(optimizer, rate(epoch))
        sums = torch.zeros(2)
        for rows in torch.randperm(1600).split(40):
            field, boxes, forms = (each[rows] for each in known)
            if epoch < plain_from:
                field = field + 0.7 * field.roll(1, 0).roll(6, 3) + 0.7 * torch.rand(40, 1, 1, 1) * field.flip(0)
            box, kind = parts(model(field), boxes, forms)
            learn(optimizer, box + kind, 10.0)
            sums += torch.stack([box, kind]).detach() / 40
        with torch.no_grad():
            found = model(others[0])
            box, kind = parts(found, *others[1:])
        good = (boxes_overlap(found[:, :4], others[1]) > 0.5).float() * (found[:, 4:].argmax(1) == others[2]).float()
        return dict(zip(called, (*sums, box, kind, good.mean(), now), strict=True))

    drive(tape, epochs, act)


@healthy("eighth")
def healthy_ultralytics_mosaic_closed(tape: Tape) -> None:
    """In the last ten epochs fields are no longer laid into each other, and the losses of training drop at once."""
    called = "train/box_loss train/cls_loss val/box_loss val/cls_loss metrics/mAP50(B) lr/pg0"
    detect(tape, 40, tuple(called.split()), 30)


def regress(tape: Tape, damaged: int, steps: int = 450) -> None:
    """Find spots as detectron2 logs it; from a step on the box head is a new one, as its weights were not found."""
    torch.manual_seed(35)
    trunk = looker(32, side=12, width=16)
    kinds, places = nn.Linear(32, 3), nn.Linear(32, 4)
    optimizer = torch.optim.AdamW([*trunk.parameters(), *kinds.parameters(), *places.parameters()])
    others = spots(300, 0.15)
    rate: Rate = lambda step: min(1.0, (step + 1) / 40) * 0.004 * 0.1 ** (step >= 400)  # noqa: E731

    def act(step: int) -> Values:
        if step == damaged:
            trunk[-3].reset_parameters()
        now = set_rate(optimizer, rate(step))
        field, boxes, forms = spots(24, 0.15)
        hidden = trunk(field)
        kind, box = F.cross_entropy(kinds(hidden), forms), 10 * F.l1_loss(places(hidden), boxes)
        learn(optimizer, kind + box)
        values: Values = {}
        if step % 4 == 0:
            values = {"total_loss": kind + box, "loss_cls": kind, "loss_box_reg": box, "lr": now}
        if step % 50 == 49:
            with torch.no_grad():
                hidden = trunk(others[0])
                overlap = boxes_overlap(places(hidden), others[1])
                values["bbox/AP50"] = 100 * ((overlap > 0.5) & (kinds(hidden).argmax(1) == others[2])).float().mean()
        return values

    drive(tape, steps, act)


@fault("eighth", JUMP + " bad_resume gradient_shift", step=300)
def detectron_layer_not_in_checkpoint(tape: Tape) -> None:
    """A layer had been renamed; on resuming it was not found in the checkpoint and began with random weights."""
    regress(tape, damaged=300)


def segment(tape: Tape, lost: int, steps: int = 400) -> None:
    """Mark the spot point by point as MMSegmentation logs it; from a step on gradients are not cleared."""
    torch.manual_seed(36)
    model = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
                          nn.Conv2d(8, 2, 1))  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def pictures(count: int) -> Pair:
        field, *_ = spots(count, 0.0)
        return field + 0.5 * torch.randn_like(field), (field[:, 0] > 0.5).long()

    def act(step: int) -> Values:
        field, wanted = pictures(12)
        now = set_rate(optimizer, 0.03 * (1 - step / steps) ** 0.9)
        scores = model(field)
        loss = F.cross_entropy(scores, wanted)
        if step < lost:
            optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), math.inf)
        optimizer.step()
        values: Values = {}
        if step % 2 == 0:
            right = share_right(scores.movedim(1, -1), wanted)
            values = {"decode.loss_ce": loss, "decode.acc_seg": 100 * right, "grad_norm": norm, "lr": now}
        if step % 40 == 39:
            with torch.no_grad():
                field, wanted = pictures(100)
                found = model(field).argmax(1)
            shared = ((found == 1) & (wanted == 1)).sum() / ((found == 1) | (wanted == 1)).sum()
            values["mIoU"] = 100 * shared
        return values

    drive(tape, steps, act)


@fault(
    "eighth",
    JUMP + " gradients_not_cleared exploding_gradients gradient_shift norm_growth oscillation",
    step=220,
    window=30,
)
def mmseg_gradients_add_up(tape: Tape) -> None:
    """From iteration 220 on it runs in the branch for accumulation, in which gradients are never cleared."""
    segment(tape, lost=220)
