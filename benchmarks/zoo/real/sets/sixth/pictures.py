"""Pictures and speech of the sixth set."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.sixth.tasks import (
    Batch,
    F,
    Values,
    blobs,
    convolutions,
    descend,
    fit,
    layers,
    nn,
    normalised,
    stripes,
    utterances,
)
from benchmarks.zoo.real.tape import Tape

JUMP = "level_shift spike divergence accuracy_drop"


def _as_given(step: int, images: torch.Tensor, labels: torch.Tensor) -> Batch:
    return images, labels


def classify(
    tape: Tape,
    change: Callable[[int, torch.Tensor, torch.Tensor], Batch] = _as_given,
    held_out: Callable[[torch.Tensor], torch.Tensor] = normalised,
    steps: int = 900,
    batch: int = 32,
    rate: float = 2e-3,
    decay: float = 0.0,
    norm: bool = False,
    few: int = 2000,
) -> None:
    """Classify stripes, with the names that Lightning modules use; the others are looked at every 50 steps."""
    torch.manual_seed(3)
    model: Any = convolutions(norm=norm)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)
    known, others = stripes(few), stripes(500)

    def update(step: int) -> Values:
        rows = torch.randint(0, few, (batch,))
        images, labels = change(step, normalised(known[0][rows]), known[1][rows])
        scores = model(images)
        loss = F.cross_entropy(scores, labels)
        right = (scores.argmax(1) == labels).float().mean()
        values = {"train_loss": loss, "train_acc": right, "grad_norm": descend(optimizer, loss)}
        if step % 50 == 49:
            model.eval()
            with torch.no_grad():
                scores = model(held_out(others[0]))
            model.train()
            values |= {"val_loss": F.cross_entropy(scores, others[1])}
            values |= {"val_acc": (scores.argmax(1) == others[1]).float().mean()}
        return values

    fit(tape, steps, update)


@healthy("sixth")
def healthy_images(tape: Tape) -> None:
    """Small batches, so that the loss is noisy."""
    classify(tape, batch=12, rate=1e-3, steps=900)


@healthy("sixth")
def healthy_images_augmented(tape: Tape) -> None:
    """Parts of the pictures are covered, so that the others are classified better than those trained with."""

    def change(step: int, images: torch.Tensor, labels: torch.Tensor) -> Batch:
        at = int(torch.randint(0, 7, ()))
        images = images.clone()
        images[:, :, at : at + 6, 3:10] = 0.0
        return images + 0.3 * torch.randn_like(images), labels

    classify(tape, change, norm=True, steps=800)


@fault("sixth", "generalization_gap overfit overtraining")
def images_held_out_not_normalised(tape: Tape) -> None:
    """Validation is poor and wild though training is fine: only the transforms for training normalise the pictures."""
    classify(tape, held_out=lambda images: 255 * images)


@fault("sixth", JUMP + " stuck_batch", step=480, window=40)
def images_corrupted_shard(tape: Tape) -> None:
    """One shard of an archive is damaged and its pictures are decoded to grey; labels are right. It ends after 150."""
    classify(tape, lambda step, x, y: (torch.zeros_like(x) if 480 <= step < 630 else x, y))


@fault("sixth", "stuck_batch too_good overfit generalization_gap level_shift overtraining", step=500, window=150)
def images_one_batch_again(tape: Tape) -> None:
    """`next(iter(loader))` within the loop, with a seed that is set again each time: the same batch for ever."""
    kept: list[Batch] = []

    def change(step: int, images: torch.Tensor, labels: torch.Tensor) -> Batch:
        kept.append((images, labels))
        return kept[min(step, 500)]

    classify(tape, change, steps=800, batch=16)


@fault("sixth", "not_learning plateau constant vanishing_gradients")
def images_decay_in_adam(tape: Tape) -> None:
    """The decay that AdamW was given, 0.3, is given to Adam, for all parameters: the loss stays at that of chance."""
    classify(tape, decay=0.3)


@fault("sixth", "overfit overtraining generalization_gap")
def images_duplicates(tape: Tape) -> None:
    """A set of 100 pictures was copied to look larger: all are known by heart, and the others are not."""
    classify(tape, few=100, steps=900, norm=True)


def epochs(tape: Tape, shuffled: int = 99, count: int = 36) -> None:
    """Classify stripes and log once an epoch, as Keras does; the labels may lose their order at an epoch."""
    torch.manual_seed(4)
    model: Any = convolutions()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=7e-4)
    images, labels = stripes(800)
    others = stripes(300)

    def update(epoch: int) -> Values:
        nonlocal labels
        if epoch == shuffled:
            labels = labels[torch.randperm(800)]
        losses, right = 0.0, 0.0
        for rows in torch.randperm(800).split(40):
            scores = model(normalised(images[rows]))
            loss = F.cross_entropy(scores, labels[rows])
            descend(optimizer, loss)
            losses += float(loss) / 20
            right += float((scores.argmax(1) == labels[rows]).float().mean()) / 20
        with torch.no_grad():
            scores = model(normalised(others[0]))
        values = {"loss": losses, "accuracy": right, "val_loss": F.cross_entropy(scores, others[1])}
        return values | {"val_accuracy": (scores.argmax(1) == others[1]).float().mean()}

    fit(tape, count, update)


@healthy("sixth")
def healthy_epochs(tape: Tape) -> None:
    """Few values: one an epoch, and it ends before it learns by heart."""
    epochs(tape, count=24)


@fault("sixth", JUMP + " generalization_gap", step=16, window=3)
def epochs_labels_shuffled(tape: Tape) -> None:
    """The list of files is sorted anew when the sequence is rebuilt after an epoch, but not the list of labels."""
    epochs(tape, 16)


def segment(tape: Tape, softmax: bool = False) -> None:
    """Find ellipses by cross entropy and the overlap (dice), at 5 points of 100."""
    torch.manual_seed(5)
    model: Any = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(),
        nn.Conv2d(12, 1, 3, padding=1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def dice(images: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        scores = model(images)
        shares = scores.softmax(1) if softmax else scores.sigmoid()
        both = 2 * (shares * masks).sum((1, 2, 3)) + 1
        return (1 - both / (shares.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1)).mean()

    def update(step: int) -> Values:
        images, masks, *_ = blobs(8)
        loss = dice(images, masks)
        values = {"train/dice_loss": loss, "train/grad_norm": descend(optimizer, loss)}
        if step % 40 == 39:
            with torch.no_grad():
                values["val/mean_dice"] = 1 - dice(*blobs(64)[:2])
        return values

    fit(tape, 700, update)


@healthy("sixth")
def healthy_segmentation(tape: Tape) -> None:
    """The overlap of eight small ellipses varies much from batch to batch."""
    segment(tape)


@fault("sixth", "not_learning plateau constant vanishing_gradients weights_frozen")
def segmentation_softmax_of_one(tape: Tape) -> None:
    """Dice stays near one whatever is changed: softmax over the one channel is one at each point."""
    segment(tape, softmax=True)


def detect(tape: Tape, corners: int = 9999) -> None:
    """Find the box and the kind of an ellipse; boxes may be given by their corners from a step on."""
    torch.manual_seed(6)
    model: Any = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), layers(384, 64, 7),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-3, weight_decay=0.01)

    def update(step: int) -> Values | None:
        images, _, boxes, kinds = blobs(16)
        if step >= corners:
            half = boxes[:, 2:] / 2
            boxes = torch.cat([boxes[:, :2] - half, boxes[:, :2] + half], 1)
        found = model(images)
        box, kind = F.smooth_l1_loss(found[:, :4], boxes, beta=0.05), F.cross_entropy(found[:, 4:], kinds)
        norm = descend(optimizer, 7.5 * box + 0.5 * kind, 10.0)
        values = {"train/box_loss": 7.5 * box, "train/cls_loss": 0.5 * kind, "train/grad_norm": norm}
        return values if step % 4 == 0 else None

    fit(tape, 1000, update)


@healthy("sixth")
def healthy_detection(tape: Tape) -> None:
    """Two losses of different size, logged at every fourth step."""
    detect(tape)


@fault("sixth", JUMP + " gradient_shift", step=640, window=40)
def detection_corners(tape: Tape) -> None:
    """The loss of boxes jumps when mosaics end: the plain path gives corners where centres and sizes are wanted."""
    detect(tape, corners=640)


def transcribe(tape: Tape, long: int = 9999) -> None:
    """Transcribe phones with CTC; labels may be longer than the frames from a step on."""
    torch.manual_seed(7)
    templates = torch.randn(8, 12)
    reader, head = nn.GRU(12, 40, batch_first=True, bidirectional=True), nn.Linear(80, 9)
    optimizer = torch.optim.Adam([*reader.parameters(), *head.parameters()], lr=3e-3)

    def update(step: int) -> Values:
        frames, phones, spoken, lengths = utterances(12, templates)
        if step >= long:
            frames, spoken = frames[:, ::6], spoken // 6
        scores = head(reader(frames)[0])
        loss = F.ctc_loss(scores.log_softmax(-1).transpose(0, 1), phones, spoken, lengths)
        values = {"loss": loss, "grad_norm": descend(optimizer, loss, 5.0)}
        if step % 20 == 19:
            values["blank_share"] = (scores.argmax(-1) == 0).float().mean()
        return values

    fit(tape, 400, update)


@healthy("sixth")
def healthy_speech(tape: Tape) -> None:
    """At first only blanks, then phones: the loss stands for a while before it falls."""
    transcribe(tape)


@fault("sixth", "not_finite counted_not_finite divergence", step=240, window=20)
def speech_too_short(tape: Tape) -> None:
    """Infinite once a set with more striding begins: frames are fewer than labels and `zero_infinity` is off."""
    transcribe(tape, long=240)
