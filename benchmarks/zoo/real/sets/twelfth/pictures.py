"""The twelfth set: pictures in the logs of Keras, Lightning and timm."""

import zlib
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.twelfth.tasks import (
    Change,
    F,
    Schedule,
    Training,
    Values,
    accuracy,
    constant,
    convnet,
    cosine,
    evaluating,
    follow,
    gratings,
    nn,
    picture_loss,
    resident_gib,
    run_steps,
    warm_restarts,
)
from benchmarks.zoo.real.tape import Tape

KERAS = {
    "optimizer": "adam",
    "learning_rate": 0.002,
    "batch_size": 64,
    "epochs": 26,
    "loss": "sparse_categorical_crossentropy",
}


def keras(tape: Tape, seed: int, wrong: float = 0.0, shuffled: bool = False, epochs: int = 26) -> None:
    """Stored pictures with dropout, once an epoch, in the names of `model.fit`."""
    torch.manual_seed(seed)
    images, labels = gratings(768)
    held = gratings(384)
    labels = torch.where(torch.rand(len(labels)) < wrong, torch.randint(0, 10, labels.shape), labels)
    if shuffled:
        labels = labels[torch.randperm(len(labels))]
    model = nn.Sequential(convnet(48), nn.ReLU(), nn.Dropout(0.4), nn.Linear(48, 10))
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)

    def act(epoch: int) -> Values:
        total, right = 0.0, 0
        for rows in torch.randperm(len(images)).split(64):
            given = images[rows] + 0.4 * torch.randn(len(rows), 1, 12, 12)
            scores = model(given)
            loss = F.cross_entropy(scores, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows) / len(images)
            right += int((scores.argmax(1) == labels[rows]).sum())
        with tape.span("train.evaluate"), evaluating(model):
            held_loss = picture_loss(model, held).item()
        return {
            "loss": total,
            "accuracy": right / len(images),
            "val_loss": held_loss,
            "val_accuracy": accuracy(model, held),
            "learning_rate": 2e-3,
        }

    run_steps(tape, epochs, act)


@healthy("twelfth", config=KERAS)
def keras_with_some_wrong_labels(tape: Tape) -> None:
    """A tenth of the training labels is wrong; the held-out pictures are learned all the same."""
    keras(tape, 901, wrong=0.1)


@fault("twelfth", "overfit generalization_gap not_learning", config=KERAS)
def keras_labels_of_other_pictures(tape: Tape) -> None:
    """The labels were sorted otherwise than the pictures: nothing that is held out is ever guessed."""
    keras(tape, 902, shuffled=True)


def lightning(
    tape: Tape,
    seed: int,
    change: Change | None = None,
    steps: int = 350,
    size: int = 32,
    rate: Schedule | None = None,
    every: int = 1,
    noise: float = 0.8,
) -> None:
    """Fresh pictures in the names of Lightning: validation once an epoch of fifty steps."""
    torch.manual_seed(seed)
    model = convnet()
    held = gratings(400, noise)

    def report(job: Training, step: int) -> Values | None:
        found: Values = {}
        if step % every == every - 1:
            found = {"train_loss": job.window(every), "lr-AdamW": job.lr, "grad_norm": job.grad_norm}
            found["epoch"] = step // 50
        if step % 50 == 49:
            found |= {"val_loss": job.held_out(held), "val_acc": accuracy(job.model, held)}
        return found

    optimizer = torch.optim.AdamW(model.parameters())
    job = Training(
        *(tape, model, lambda: gratings(size, noise), picture_loss, report, optimizer),
        rate=rate or cosine(3e-3, steps),
    )
    job.run(steps, change)


@healthy("twelfth", config={"trainer": "lightning", "batch_size": 4, "lr": 1e-3, "log_every_n_steps": 10})
def lightning_batches_of_four(tape: Tape) -> None:
    """Batches of four pictures, no warm-up, a value every tenth step."""
    lightning(tape, 911, steps=500, size=4, rate=constant(1e-3), every=10, noise=0.6)


@fault(
    "twelfth",
    "spike level_shift gradient_shift divergence accuracy_drop",
    step=230,
    window=15,
    config={"trainer": "lightning", "batch_size": 32, "lr": 3e-3, "max_steps": 350},
)
def lightning_layer_initialized_again(tape: Tape) -> None:
    """At 230 a callback that prunes initializes the convolution and the head again with far too large weights."""

    def change(job: Training, step: int) -> None:
        if step == 230:
            with torch.no_grad():
                for place in (4, 9):
                    job.model[place].weight.normal_(0, 0.5)

    lightning(tape, 912, change)


@fault(
    "twelfth",
    "weights_frozen not_learning plateau constant",
    config={"trainer": "lightning", "batch_size": 32, "lr": 3e-3, "max_steps": 350},
)
def lightning_optimizer_of_a_copy(tape: Tape) -> None:
    """The optimizer has the weights of a copy that was made before: gradients flow and nothing is ever learned."""

    def change(job: Training, step: int) -> None:
        if step == 0:
            job.optimizer = torch.optim.AdamW(convnet().parameters())

    lightning(tape, 913, change)


class Shards:
    """Pictures that are stored compressed; a cache keeps those that were read once."""

    def __init__(self, count: int) -> None:
        images, self.labels = gratings(count)
        self.stored = [zlib.compress(image.numpy().tobytes() * 300, 9) for image in images]
        self.cache: dict[int, torch.Tensor] = {}
        self.cached = True

    def one(self, at: int) -> torch.Tensor:
        """One picture, read again if it is not kept."""
        if not self.cached or at not in self.cache:
            raw = torch.frombuffer(bytearray(zlib.decompress(self.stored[at])), dtype=torch.float32)
            self.cache[at] = raw.view(300, 1, 12, 12).mean(0)
        return self.cache[at]

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Some pictures and their labels."""
        rows = torch.randint(0, len(self.labels), (size,)).tolist()
        return torch.stack([self.one(row) for row in rows]), self.labels[rows]


def timm(
    tape: Tape,
    seed: int,
    change: Change | None = None,
    steps: int = 360,
    rate: Schedule | None = None,
    start: int = 0,
    warm: bool = True,
) -> None:
    """Pictures from a cache in the names of timm, with memory, after some steps that are not logged."""
    torch.manual_seed(seed)
    shards = Shards(800)
    for at in range(800 if warm else 0):
        shards.one(at)
    model = convnet(width=10)
    held = gratings(400)

    def loss_of(model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return picture_loss(model, (batch[0] + 0.4 * torch.randn_like(batch[0]), batch[1]))

    def report(job: Training, step: int) -> Values | None:
        found: Values = {"train/loss": job.train_loss, "train/lr": job.lr, "train/grad_norm": job.grad_norm}
        if step % 10 == 0:
            found["sys/rss_gib"] = resident_gib()
        if step % 50 == 49:
            found |= {"eval/loss": job.held_out(held), "eval/top1": 100 * accuracy(job.model, held)}
        return found

    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    schedule = rate or cosine(3e-3, steps)
    job = Training(tape, model, lambda: shards.batch(48), loss_of, report, optimizer, schedule)
    job.parts["shards"] = shards
    for before in range(start):
        follow(optimizer, 2e-3 * min(1.0, (before + 1) / 20))
        optimizer.zero_grad()
        picture_loss(model, shards.batch(48)).backward()
        optimizer.step()
    job.run(steps, change)


TIMM = {"model": "convnet_pico", "opt": "adamw", "batch_size": 48, "lr": 3e-3, "weight_decay": 0.05, "workers": 0}


@healthy("twelfth", config=TIMM | {"sched": "cosine", "lr_cycle_limit": 4, "pretrained": True, "lr": 1e-3})
def timm_fine_tuned_with_restarts(tape: Tape) -> None:
    """A good network is tuned on, with four cycles of the learning rate."""
    timm(tape, 931, steps=240, rate=warm_restarts(1e-3, 60), start=200)


@healthy("twelfth", config=TIMM | {"sched": "cosine", "cache": "memory"})
def timm_cache_fills_as_it_goes(tape: Tape) -> None:
    """The first steps unpack what the later ones find in the cache."""
    timm(tape, 934, warm=False)


@fault(
    "twelfth",
    "data_stall throughput_loss slow_span input_bound",
    step=220,
    window=30,
    config=TIMM | {"sched": "cosine"},
)
def timm_cache_is_lost(tape: Tape) -> None:
    """From 220 on no picture is found in the cache: each is read and unpacked again."""

    def change(job: Training, step: int) -> None:
        if step == 220:
            job.parts["shards"].cached = False

    timm(tape, 932, change)


@fault("twelfth", "memory_creep", config=TIMM | {"sched": "cosine"})
def timm_activations_kept_for_a_plot(tape: Tape) -> None:
    """Hooks that were set for a plot keep what each layer makes of each batch."""
    kept: list[torch.Tensor] = []

    def change(job: Training, step: int) -> None:
        if step == 0:
            for layer in job.model:
                layer.register_forward_hook(lambda layer, given, made: kept.append(made.detach()))

    timm(tape, 933, change)
