"""Small classifiers of points and of images: data, models, their faults and their healthy characters."""

import math
import random
import time

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.first.loop import Batch, Loop, cosine, linear
from benchmarks.zoo.real.sets.first.supervised_faults import once, put
from benchmarks.zoo.real.tape import Tape

MLP_NAMES = {"loss": "train/loss", "grad": "train/grad_norm", "lr": "train/lr", "accuracy": "train/accuracy"}
CNN_NAMES = {"loss": "loss", "lr": "learning_rate", "grad": "grad_norm", "accuracy": "acc", "val_loss": "val_loss"}
STEPS = 400


def points(classes: int = 10, spread: float = 1.6, count: int = 4000, seed: int = 1) -> Batch:
    """Points around centres: overlapping classes."""
    random_numbers = torch.Generator().manual_seed(seed)
    centers = torch.randn(classes, 20, generator=random_numbers)
    labels = torch.randint(0, classes, (count,), generator=random_numbers)
    return centers[labels] + spread * torch.randn(count, 20, generator=random_numbers) / 1.5, labels


def mlp(batch: int = 64, lr: float = 2e-3, sgd: bool = False, steps: int = STEPS, **parts: object) -> Loop:
    """A network of three layers."""
    inputs, labels = points()
    model = torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    )

    def draw(step: int) -> Batch:
        chosen = torch.randint(0, 3500, (batch,))
        return inputs[chosen], labels[chosen]

    def held_out() -> dict[str, float]:
        out = model(inputs[3500:])
        loss = torch.nn.functional.cross_entropy(out, labels[3500:]).item()
        return {"val/loss": loss, "val/accuracy": (out.argmax(1) == labels[3500:]).float().mean().item()}

    loop = Loop(model, draw, lr=lr, steps=steps, names=MLP_NAMES, evaluate=held_out)
    if sgd:
        loop.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for name, part in parts.items():
        setattr(loop, name, part)
    return loop


def scheduled_mlp() -> Loop:
    """With warm-up and cosine."""
    return mlp(schedule=cosine(STEPS, 20))


put(
    "mlp",
    scheduled_mlp,
    STEPS,
    "shuffled_labels stuck_batch zero_inputs frozen no_zero_grad ascent rate_too_high rate_zero",
)
put("mlp", scheduled_mlp, STEPS, "restarted_schedule destroyed_layer bad_batch nan vanishing slow_data")


def pictures(count: int = 1500, seed: int = 2) -> Batch:
    """Noisy pictures of bars and crosses in four classes."""
    made = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=made)
    images = 0.7 * torch.randn(count, 1, 12, 12, generator=made)
    for at in range(count):
        place = int(torch.randint(2, 10, (1,), generator=made))
        if labels[at] in (0, 2):
            images[at, 0, place] += 1.2
        if labels[at] in (1, 2):
            images[at, 0, :, place] += 1.2
        if labels[at] == 3:
            images[at, 0].diagonal().add_(1.2)
    return images, labels


_PICTURES: list[Batch] = []


def cnn(batch: int = 32, lr: float = 0.02, steps: int = 350, **parts: object) -> Loop:
    """Two convolutions, SGD with momentum."""
    if not _PICTURES:
        _PICTURES.append(pictures())
    images, labels = _PICTURES[0]
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)
    )

    def draw(step: int) -> Batch:
        chosen = torch.randint(0, 1300, (batch,))
        return images[chosen], labels[chosen]

    def held_out() -> dict[str, float]:
        return {"val_loss": nn.functional.cross_entropy(model(images[1300:]), labels[1300:]).item()}

    loop = Loop(model, draw, lr=lr, steps=steps, names=CNN_NAMES, evaluate=held_out, evaluate_every=40)
    loop.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    loop.schedule = linear(steps, 15)
    for name, part in parts.items():
        setattr(loop, name, part)
    return loop


put("cnn", cnn, 350, "shuffled_labels stuck_batch zero_inputs frozen no_zero_grad ascent rate_too_high rate_zero", 3)
put("cnn", cnn, 350, "restarted_schedule destroyed_layer bad_batch nan vanishing slow_data", 4)


@fault("mlp", "not_learning divergence oscillation absurd_loss level_shift", window=400)
def rate_too_high_from_the_start(run: Tape) -> None:
    """The learning rate is a thousand times too high from the first step on."""
    torch.manual_seed(0)
    mlp(lr=2.0).fit(run)


@fault("cnn", "not_learning divergence oscillation absurd_loss not_finite level_shift", window=400)
def rate_too_high_from_the_start(run: Tape) -> None:  # noqa: F811
    """The learning rate is fifty times too high from the first step on."""
    torch.manual_seed(0)
    cnn(lr=1.0, schedule=None).fit(run)


@fault("mlp", "not_learning weights_frozen", window=400)
def frozen_from_the_start(run: Tape) -> None:
    """The optimizer was given other parameters."""
    torch.manual_seed(0)
    mlp(updates=False).fit(run)


@fault("cnn", "not_learning", window=350)
def labels_of_another_set(run: Tape) -> None:
    """Labels have nothing to do with the pictures, from the start."""
    torch.manual_seed(1)
    loop = cnn(steps=350)
    images, _ = pictures()
    other = torch.randint(0, 4, (1500,))

    def draw(step: int) -> Batch:
        chosen = torch.randint(0, 1300, (32,))
        return images[chosen], other[chosen]

    loop.batch = draw
    loop.fit(run)


@fault("mlp", "overfit", window=400)
def overfit(run: Tape) -> None:
    """Sixty examples for a network that can learn them by heart."""
    torch.manual_seed(0)
    inputs, labels = points()
    loop = mlp(lr=5e-3, steps=600, evaluate_every=20)

    def draw(step: int) -> Batch:
        chosen = torch.randint(0, 60, (32,))
        return inputs[chosen], labels[chosen]

    loop.batch = draw
    loop.fit(run)


@fault("cnn", "overfit", window=500)
def overfit(run: Tape) -> None:  # noqa: F811
    """Forty pictures, no augmentation."""
    torch.manual_seed(0)
    images, labels = pictures()
    loop = cnn(steps=500, schedule=None, evaluate_every=20)

    def draw(step: int) -> Batch:
        chosen = torch.randint(0, 40, (32,))
        return images[chosen], labels[chosen]

    loop.batch = draw
    loop.fit(run)


@fault("mlp", "not_learning absurd_loss", window=400)
def inputs_not_normalised(run: Tape) -> None:
    """Inputs are a thousand times as large as they should be, with SGD."""
    torch.manual_seed(0)
    loop = mlp(sgd=True, lr=0.05)
    draw = loop.batch
    loop.batch = lambda step: (1000 * draw(step)[0], draw(step)[1])
    loop.fit(run)


@fault("mlp", "oscillation", window=400)
def sorted_data(run: Tape) -> None:
    """The data is sorted by class and not shuffled: the loss swings with every block."""
    torch.manual_seed(0)
    loop = mlp(sgd=True, lr=0.05, steps=600)
    inputs, labels = points()
    order = labels.argsort()

    def draw(step: int) -> Batch:
        first = step * 64 % 3900
        return inputs[order[first : first + 64]], labels[order[first : first + 64]]

    loop.batch = draw
    loop.fit(run)


@fault("mlp", "plateau level_shift not_learning", 240, window=60)
def dead_units(run: Tape) -> None:
    """All units of a layer die at step 240: the output does not depend on the input any more."""
    torch.manual_seed(0)

    def kill(loop: Loop) -> None:
        with torch.no_grad():
            loop.model[2].bias.fill_(-100.0)  # type: ignore[index, union-attr, operator]

    mlp().fit(run, once(240, kill))


@fault("cnn", "lr_schedule", config={"lr": 0.02, "lr_scheduler": "cosine", "max_steps": 350}, window=350)
def never_decayed(run: Tape) -> None:
    """The settings say cosine, but the scheduler is never called."""
    torch.manual_seed(0)
    cnn(schedule=None).fit(run)


@fault("mlp", "throughput_loss slow_span data_stall", 220, window=40)
def slower_and_slower(run: Tape) -> None:
    """A list that grows is walked in every step from 220 on."""
    torch.manual_seed(0)

    def at(loop: Loop, step: int) -> None:
        if step >= 220:
            time.sleep(0.004)

    loop = mlp()
    inner = loop.batch

    def draw(step: int) -> Batch:
        at(loop, step)
        return inner(step)

    loop.batch = draw
    loop.fit(run)


@fault("cnn", "data_stall slow_span", 200, window=2)
def one_stall(run: Tape) -> None:
    """Loading one batch takes a second and a half."""
    torch.manual_seed(0)

    def stall(loop: Loop, step: int) -> None:
        loop.data_seconds = 1.5 if step == 200 else 0.0

    cnn().fit(run, stall)


# Healthy characters.


@healthy("mlp")
def plain(run: Tape) -> None:
    """Adam, constant rate."""
    torch.manual_seed(0)
    mlp().fit(run)


@healthy("mlp")
def batch_of_eight(run: Tape) -> None:
    """A noisy loss."""
    torch.manual_seed(1)
    mlp(batch=8, steps=600).fit(run)


@healthy("mlp")
def no_warmup_sgd(run: Tape) -> None:
    """SGD with a high rate from the first step on."""
    torch.manual_seed(2)
    mlp(sgd=True, lr=0.1).fit(run)


@healthy("mlp")
def step_schedule(run: Tape) -> None:
    """The rate falls to a tenth twice."""
    torch.manual_seed(3)
    mlp(sgd=True, lr=0.1, schedule=lambda step: 0.1 ** (step // 150)).fit(run)


@healthy("mlp")
def cyclic(run: Tape) -> None:
    """A triangular rate."""
    torch.manual_seed(4)
    mlp(sgd=True, lr=0.1, schedule=lambda step: 0.1 + 0.9 * abs((step % 80) / 40 - 1)).fit(run)


@healthy("mlp")
def warm_restarts(run: Tape) -> None:
    """Cosine with warm restarts, each twice as long."""
    torch.manual_seed(5)

    def factor(step: int) -> float:
        begin, length = 0, 60
        while step >= begin + length:
            begin, length = begin + length, 2 * length
        return 0.5 * (1 + math.cos(math.pi * (step - begin) / length))

    mlp(schedule=factor, steps=420).fit(run)


@healthy("mlp")
def accumulation(run: Tape) -> None:
    """Four small batches per update."""
    torch.manual_seed(6)
    mlp(batch=16, accumulate=4, steps=250).fit(run)


@healthy("mlp")
def clipped(run: Tape) -> None:
    """Gradients are clipped at 1."""
    torch.manual_seed(7)
    mlp(clip=1.0, schedule=cosine(400, 40)).fit(run)


@healthy("mlp")
def logged_rarely(run: Tape) -> None:
    """Every tenth step is logged."""
    torch.manual_seed(8)
    mlp(log_every=10, steps=900).fit(run)


@healthy("mlp")
def learnt_by_heart_slowly(run: Tape) -> None:
    """A set of 300 that is learnt almost perfectly: the loss falls by decades."""
    torch.manual_seed(9)
    inputs, labels = points(spread=0.4)
    loop = mlp(steps=700, evaluate=None)

    def draw(step: int) -> Batch:
        chosen = torch.randint(0, 300, (64,))
        return inputs[chosen], labels[chosen]

    loop.batch = draw
    loop.fit(run)


@healthy("mlp")
def checkpoints_in_the_step(run: Tape) -> None:
    """A checkpoint of 30 ms every 50 steps, in a span, and an evaluation."""
    torch.manual_seed(10)
    loop = mlp(steps=500)
    inner = loop.batch

    def draw(step: int) -> Batch:
        if step % 50 == 49:
            time.sleep(0.03)
        return inner(step)

    loop.batch = draw
    loop.fit(run)


@healthy("cnn")
def plain(run: Tape) -> None:  # noqa: F811
    """SGD with a linear schedule."""
    torch.manual_seed(0)
    cnn().fit(run)


@healthy("cnn")
def epochs(run: Tape) -> None:
    """Without replacement, by epochs, with the epoch logged."""
    torch.manual_seed(1)
    loop = cnn(steps=400, batch=26)
    images, labels = pictures()
    order = torch.randperm(1300)

    def draw(step: int) -> Batch:
        nonlocal order
        place = step % 50
        if place == 0:
            order = torch.randperm(1300)
        chosen = order[place * 26 : place * 26 + 26]
        return images[chosen], labels[chosen]

    loop.batch = draw
    loop.extra = lambda step: {"epoch": step // 50}
    loop.fit(run)


@healthy("cnn")
def evaluation_without_span(run: Tape) -> None:
    """Ten times as long a step every 50 steps, since it evaluates; no span says so."""
    torch.manual_seed(2)
    loop = cnn(evaluate=None, steps=500)
    images, labels = pictures()
    model = loop.model

    def extra(step: int) -> dict[str, float]:
        if step % 50 != 49:
            return {}
        with torch.no_grad():
            for _ in range(6):
                loss = torch.nn.functional.cross_entropy(model(images), labels).item()
        return {"val_loss": loss}

    loop.extra = extra
    loop.fit(run)


@healthy("cnn")
def augmented_and_dropout(run: Tape) -> None:
    """Noise on every picture: the training loss stays above the held-out loss."""
    torch.manual_seed(3)
    loop = cnn(steps=400)
    inner = loop.batch

    def draw(step: int) -> Batch:
        images, labels = inner(step)
        return images + 0.8 * torch.randn_like(images), labels

    loop.batch = draw
    loop.fit(run)


@healthy("cnn")
def curriculum(run: Tape) -> None:
    """Easy pictures first; noise is added at step 200, and the stage is logged."""
    torch.manual_seed(4)
    loop = cnn(steps=400)
    inner = loop.batch

    def draw(step: int) -> Batch:
        images, labels = inner(step)
        return (images + 0.9 * torch.randn_like(images) if step >= 200 else images), labels

    loop.batch = draw
    loop.extra = lambda step: {"stage": float(step >= 200)}
    loop.fit(run)


@healthy("cnn")
def early_stopped(run: Tape) -> None:
    """Stops after 90 steps."""
    torch.manual_seed(5)
    cnn(steps=90, schedule=None).fit(run)


@healthy("cnn")
def jittery_machine(run: Tape) -> None:
    """Every step takes a few milliseconds more or less, some a lot."""
    torch.manual_seed(6)
    loop = cnn(steps=400)
    inner, wait = loop.batch, random.Random(1)

    def draw(step: int) -> Batch:
        time.sleep(wait.expovariate(1 / 0.002))
        return inner(step)

    loop.batch = draw
    loop.fit(run)


@healthy("cnn")
def fine_tuned(run: Tape) -> None:
    """Begins where it nearly ended: hardly anything to gain."""
    torch.manual_seed(7)
    loop = cnn(steps=250, schedule=None)
    loop.fit(Tape())
    again = cnn(steps=300, lr=0.004, schedule=None)
    again.model.load_state_dict(loop.model.state_dict())
    again.fit(run)
