"""The eleventh set: outlines that are named, cut out, made, compared and copied from a teacher."""

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.eleventh.tasks import (
    JUMP,
    F,
    Values,
    cosine,
    dense,
    drive,
    eye,
    learn,
    nn,
    outlines,
    set_rate,
    share_right,
    spoil,
    twin,
)
from benchmarks.zoo.real.tape import Tape

Change = Callable[[int, dict[str, Any]], None]


def keras(
    tape: Tape,
    at: Change | None = None,
    seed: int = 801,
    epochs: int = 30,
    rate: float = 3e-3,
    normed: bool = True,
    optimizer: Callable[[Any, float], torch.optim.Optimizer] = torch.optim.Adam,
) -> None:
    """Which outline it is, once an epoch in the names of Keras."""
    torch.manual_seed(seed)
    x, y, _ = outlines(1000, 0.3)
    vx, vy, _ = outlines(400, 0.3)
    model = eye(normed=normed)
    state: dict[str, Any] = {"x": x, "y": y, "model": model, "rate": cosine(epochs, rate, 1), "seen": lambda rows: rows}
    updater = optimizer(model.parameters(), rate)

    def act(epoch: int) -> Values:
        if at is not None:
            at(epoch, state)
        now = set_rate(updater, state["rate"](epoch))
        total = right = 0.0
        for rows in torch.randperm(1000).split(50):
            scores = model(state["x"][rows])
            loss = F.cross_entropy(scores, state["y"][rows])
            learn(updater, loss, 5.0)
            total, right = total + loss.item() / 20, right + share_right(scores, state["y"][rows]).item() / 20
        model.eval()
        with torch.no_grad():
            scores = model(state["seen"](vx))
            found = {"val_loss": F.cross_entropy(scores, vy), "val_accuracy": share_right(scores, vy)}
        model.train()
        return {"accuracy": right, "loss": total} | found | {"learning_rate": now}

    drive(tape, epochs, act)


@healthy("eleventh", config={"epochs": 30, "batch_size": 50, "optimizer": "adam"})
def healthy_outlines(tape: Tape) -> None:
    """Five outlines by a small network."""
    keras(tape)


@healthy("eleventh", config={"epochs": 24, "augment": "noise until epoch 16"})
def healthy_outlines_with_less_noise_at_the_end(tape: Tape) -> None:
    """Noise is added to the pictures until epoch 16; after it the training loss falls at once."""

    def at(epoch: int, state: dict[str, Any]) -> None:
        kept = state.setdefault("kept", state["x"])
        state["x"] = kept + 0.35 * torch.randn_like(kept) if epoch < 16 else kept
        state["strength"] = 0.35 if epoch < 16 else 0.0

    keras(tape, at, seed=802, epochs=24)


@fault("eleventh", JUMP + " accuracy_drop", step=16, window=2, config={"epochs": 30, "num_classes": 5})
def outlines_in_negative(tape: Tape) -> None:
    """From epoch 16 on the training pictures come with black and white exchanged, at another scale."""

    def at(epoch: int, state: dict[str, Any]) -> None:
        if epoch == 16:
            state["x"] = 3 * (1 - state["x"])

    keras(tape, at, seed=803)


@fault("eleventh", JUMP + " accuracy_drop constant dead_units not_learning", step=12, window=2, config={"epochs": 30})
def outlines_units_killed(tape: Tape) -> None:
    """A rate of 1 for one epoch kills all units: the loss stays at that of guessing."""

    def at(epoch: int, state: dict[str, Any]) -> None:
        schedule = state.setdefault("schedule", state["rate"])
        state["rate"] = lambda epoch: 1.0 if epoch == 12 else schedule(epoch)

    keras(tape, at, seed=804, normed=False)


@fault(
    "eleventh",
    "generalization_gap overfit not_learning accuracy_drop divergence level_shift spike",
    config={"epochs": 30, "num_classes": 5},
)
def outlines_held_out_in_other_units(tape: Tape) -> None:
    """The held-out pictures go from 0 to 255: they are never named better than by chance."""

    def at(epoch: int, state: dict[str, Any]) -> None:
        state["seen"] = lambda rows: rows * 255 - 400

    keras(tape, at, seed=805)


def cut(
    tape: Tape,
    at: Change | None = None,
    seed: int = 811,
    steps: int = 320,
    weight: float = 3.0,
    noise: float = 0.5,
    few: float = 1.0,
) -> None:
    """Masks of outlines by MONAI's names: every fourth step a loss, every fortieth Dice and IoU of what is held out."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.InstanceNorm2d(12), nn.LeakyReLU(),
        nn.Conv2d(12, 12, 3, padding=2, dilation=2), nn.InstanceNorm2d(12), nn.LeakyReLU(),
        nn.Conv2d(12, 1, 3, padding=1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 4e-3)
    state: dict[str, Any] = {"mask": lambda masks: masks, "model": model, "weight": torch.tensor(weight)}
    hx, _, hm = outlines(150, noise)
    hm = hm * (torch.rand(150, 1, 1) < few)

    def act(step: int) -> Values | None:
        if at is not None:
            at(step, state)
        x, _, masks = outlines(16, noise)
        masks = masks * (torch.rand(16, 1, 1) < few)
        scores = model(x)[:, 0]
        loss = F.binary_cross_entropy_with_logits(scores, state["mask"](masks), pos_weight=state["weight"])
        learn(optimizer, loss, 12.0)
        if step % 4:
            return None
        found: Values = {"train_loss": loss}
        if step % 40 == 0:
            with torch.no_grad():
                out = (model(hx)[:, 0] > 0).float()
            both, either = (out * hm).sum(), out.sum() + hm.sum()
            found |= {"val_mean_dice": 2 * both / either.clamp(1), "val_iou": both / (either - both).clamp(1)}
        return found

    drive(tape, steps, act)


@healthy("eleventh", config={"val_interval": 40, "max_steps": 320, "loss": "BCE"})
def healthy_masks(tape: Tape) -> None:
    """Masks of outlines."""
    cut(tape)


@fault("eleventh", "not_learning constant accuracy_drop", config={"val_interval": 40, "loss": "BCE"})
def masks_all_background(tape: Tape) -> None:
    """Masks are in few pictures and weigh a fiftieth: all is said to be background, and the Dice stays at 0."""
    cut(tape, seed=812, weight=0.02, noise=0.8, few=0.4)


@fault("eleventh", JUMP + " accuracy_drop", step=180, window=25, config={"val_interval": 40, "loss": "BCE"})
def masks_not_turned_with_the_picture(tape: Tape) -> None:
    """From 180 on the pictures are turned over and the masks are not."""

    def at(step: int, state: dict[str, Any]) -> None:
        if step == 180:
            state["mask"] = lambda masks: masks.flip(1).flip(2)

    cut(tape, at, seed=813)


def spiral(count: int) -> torch.Tensor:
    """Points on two arms."""
    t = torch.rand(count, 1).sqrt() * 3.5 + 0.6
    side = torch.randint(0, 2, (count, 1)) * 2.0 - 1
    return side * torch.cat([t * (1.6 * t).cos(), t * (1.6 * t).sin()], 1) / 2 + 0.05 * torch.randn(count, 2)


def rivals(tape: Tape, at: Change | None = None, seed: int = 821, steps: int = 700) -> None:
    """A maker and a judge of points, by the names of PyTorch-GAN: D loss, G loss, D(x), D(G(z))."""
    torch.manual_seed(seed)
    maker, judge = dense((4, 48, 48, 2), nn.ReLU), dense((2, 48, 48, 1), lambda: nn.LeakyReLU(0.2))
    of_maker = torch.optim.Adam(maker.parameters(), 1e-3, betas=(0.5, 0.99))
    of_judge = torch.optim.Adam(judge.parameters(), 1e-3, betas=(0.5, 0.99))
    state: dict[str, Any] = {"data": spiral}

    def act(step: int) -> Values | None:
        if at is not None:
            at(step, state)
        real, fake = state["data"](64), maker(torch.randn(64, 4))
        ones, zeros = 0.9 * torch.ones(64, 1), torch.zeros(64, 1)
        on_real, on_fake = judge(real), judge(fake.detach())
        both = F.binary_cross_entropy_with_logits
        loss = (both(on_real, ones) + both(on_fake, zeros)) / 2
        learn(of_judge, loss)
        again = judge(fake)
        fooled = both(again, ones)
        learn(of_maker, fooled)
        if step % 5:
            return None
        found = {"D_loss": loss, "G_loss": fooled, "D_x": on_real.sigmoid().mean(), "D_G_z": on_fake.sigmoid().mean()}
        return found | {"sample_std": fake.detach().std(0).mean()}

    drive(tape, steps, act)


@healthy("eleventh", config={"lr": 0.001, "b1": 0.5, "latent_dim": 4})
def healthy_rivals(tape: Tape) -> None:
    """Points on a spiral by two networks."""
    rivals(tape)


@fault("eleventh", "gan_imbalance divergence level_shift spike", step=320, window=60)
def rivals_points_in_other_units(tape: Tape) -> None:
    """From 300 on the real points are ten times as large: the judge tells them at once."""

    def at(step: int, state: dict[str, Any]) -> None:
        if step == 300:
            state["data"] = lambda count: 10 * spiral(count)

    rivals(tape, at, seed=823)


def autoencoder(
    tape: Tape,
    at: Change | None = None,
    seed: int = 831,
    steps: int = 420,
    beta: Callable[[int], float] = lambda step: 1.0,
    told: bool = True,
) -> None:
    """Masks of outlines through six numbers: loss, reconstruction_loss, kl_loss each third step, as Keras' example."""
    torch.manual_seed(seed)
    reader, writer = dense((196, 96, 12), nn.ReLU), dense((6, 96, 196), nn.ReLU)
    both = nn.ModuleList((reader, writer))
    optimizer = torch.optim.Adam(both.parameters(), 3e-3)
    state: dict[str, Any] = {"reader": reader, "writer": writer}

    def act(step: int) -> Values | None:
        if at is not None:
            at(step, state)
        _, _, masks = outlines(32)
        flat = masks.flatten(1)
        mean, log = reader(flat).chunk(2, -1)
        out = writer(mean + (0.5 * log).exp() * torch.randn_like(mean))
        told_loss = F.binary_cross_entropy_with_logits(out, flat, reduction="none").sum(1).mean()
        apart = -0.5 * (1 + log - mean.square() - log.exp()).sum(1).mean()
        loss = told_loss + beta(step) * apart
        learn(optimizer, loss, 100.0)
        if step % 3:
            return None
        found = {"loss": loss, "reconstruction_loss": told_loss, "kl_loss": apart}
        return found | ({"beta": beta(step)} if told else {})

    drive(tape, steps, act)


@healthy("eleventh", config={"latent_dim": 6, "beta": 1.0})
def healthy_six_numbers(tape: Tape) -> None:
    """Masks through six numbers."""
    autoencoder(tape, told=False)


@healthy("eleventh", config={"latent_dim": 6, "beta_schedule": "linear", "warmup": 200})
def healthy_six_numbers_weighted_slowly(tape: Tape) -> None:
    """The weight of the divergence rises to 1 until step 200, as `beta` says: the divergence falls meanwhile."""
    autoencoder(tape, seed=832, beta=lambda step: 0.02 + 0.98 * min(1.0, step / 200))


@fault("eleventh", "posterior_collapse level_shift divergence", step=210, window=90, config={"latent_dim": 6})
def six_numbers_say_nothing(tape: Tape) -> None:
    """From 200 on the divergence weighs forty times as much, which is not logged: it goes to 0."""
    autoencoder(tape, seed=833, beta=lambda step: 1.0 if step < 200 else 40.0, told=False)


def noise_left(
    tape: Tape, at: Change | None = None, seed: int = 841, steps: int = 600, every: int = 2, rate: float = 2e-3
) -> None:
    """Noise in points is guessed, in the names of the examples of diffusers: step_loss, lr, ema_decay, ema_loss."""
    torch.manual_seed(seed)
    model = dense((2 + 9, 64, 64, 2), nn.SiLU)
    average = twin(model)
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    schedule = cosine(steps, rate, 20)
    state: dict[str, Any] = {"model": model, "noise": lambda noise, points: noise, "data": spiral, "follow": True}
    waves = torch.arange(1, 5).float()

    def loss_of(net: Any, count: int) -> torch.Tensor:
        points, noise, t = state["data"](count), torch.randn(count, 2), torch.rand(count, 1)
        keep = (t * math.pi / 2).cos()
        seen = keep * points + (1 - keep * keep).sqrt() * noise
        given = torch.cat([seen, t, (t * waves * math.pi).sin(), (t * waves * math.pi).cos()], 1)
        return F.mse_loss(net(given), state["noise"](noise, points))

    def act(step: int) -> Values | None:
        if at is not None:
            at(step, state)
        now = set_rate(optimizer, schedule(step))
        loss = loss_of(model, 128)
        norm = learn(optimizer, loss, 1.0)
        decay = min(0.99, (1 + step) / (10 + step))
        if state["follow"]:
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(new.detach(), 1 - decay)
        if step % every:
            return None
        found = {"step_loss": loss, "lr": now, "grad_norm": norm}
        if step % 20 == 0:
            with torch.no_grad():
                found |= {"ema_loss": loss_of(average, 2000), "ema_decay": decay}
        return found

    drive(tape, steps, act)


@healthy("eleventh", config={"prediction_type": "epsilon", "use_ema": True, "max_train_steps": 600})
def healthy_noise(tape: Tape) -> None:
    """Noise in points on a spiral."""
    noise_left(tape)


@fault("eleventh", JUMP, step=320, window=15, config={"prediction_type": "epsilon", "max_train_steps": 600})
def noise_of_another_kind(tape: Tape) -> None:
    """From 320 on the target is the velocity, as by a changed setting."""

    def at(step: int, state: dict[str, Any]) -> None:
        if step == 320:
            state["noise"] = lambda noise, points: noise - 2 * points

    noise_left(tape, at, seed=842)


@fault("eleventh", JUMP + " gradient_shift exploding_gradients bad_resume", step=300, window=15)
def noise_last_layer_lost(tape: Tape) -> None:
    """At 300 the last layer begins anew after a restart with `strict=False`."""

    def at(step: int, state: dict[str, Any]) -> None:
        if step == 300:
            spoil(state["model"][-1], 0.5)

    noise_left(tape, at, seed=843)


def views(
    tape: Tape,
    at: Change | None = None,
    seed: int = 851,
    steps: int = 300,
    rate: float = 2e-3,
    apart: bool = True,
) -> None:
    """Two views of an outline are told from others, by lightly's names: train_loss_ssl, representation_std, top1."""
    torch.manual_seed(seed)
    model = nn.Sequential(*list(eye())[:-1], nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = torch.optim.SGD(model.parameters(), rate * 40, momentum=0.9, weight_decay=1e-4)
    schedule = cosine(steps, rate * 40, 10)
    state: dict[str, Any] = {"model": model, "sharp": 0.2, "second": lambda x: x}

    def act(step: int) -> Values:
        if at is not None:
            at(step, state)
        now = set_rate(optimizer, schedule(step))
        x, _, _ = outlines(48, 0.0)
        one, two = (x + 0.25 * torch.randn_like(x) for _ in range(2))
        both = torch.cat([model(one), model(state["second"](two.roll(1, 3)))])
        found = F.normalize(both, dim=-1)
        pairs = torch.arange(96).roll(48)
        if apart:
            near = (found @ found.T / state["sharp"]).fill_diagonal_(-1e9)
            loss, right = F.cross_entropy(near, pairs), share_right(near, pairs)
        else:
            loss, right = 2 - 2 * (found * found[pairs]).sum(1).mean(), torch.tensor(0.0)
        learn(optimizer, loss)
        values = {"train_loss_ssl": loss, "representation_std": found.std(0).mean() * 4, "lr": now}
        return values | ({"train_top1": right} if apart else {})

    drive(tape, steps, act)


@healthy("eleventh", config={"method": "simclr", "temperature": 0.2, "batch_size": 48})
def healthy_views(tape: Tape) -> None:
    """Two views of each outline."""
    views(tape)


@fault("eleventh", "too_good constant plateau", config={"method": "simsiam", "batch_size": 48})
def views_all_the_same(tape: Tape) -> None:
    """Nothing keeps the vectors apart: the distance of views is 0 after some dozen steps, and so is their spread."""
    views(tape, seed=852, apart=False)


@fault("eleventh", JUMP, step=160, window=12, config={"method": "simclr", "temperature": 0.2, "batch_size": 48})
def views_of_different_pictures(tape: Tape) -> None:
    """From 160 on the second views are in another order than the first."""

    def at(step: int, state: dict[str, Any]) -> None:
        if step == 160:
            state["second"] = lambda x: x[torch.randperm(len(x))]

    views(tape, at, seed=853)


def taught(tape: Tape, at: Change | None = None, seed: int = 861, steps: int = 360) -> None:
    """A small network learns the scores of a larger one: kd_loss, ce_loss, student_acc, teacher_acc."""
    torch.manual_seed(seed)
    teacher, student = eye(width=12), eye(width=5)
    of_teacher = torch.optim.Adam(teacher.parameters(), 4e-3)
    for _ in range(200):
        x, y, _ = outlines(32, 0.25)
        learn(of_teacher, F.cross_entropy(teacher(x), y))
    teacher.eval()
    optimizer = torch.optim.Adam(student.parameters(), 3e-3)
    state: dict[str, Any] = {"teacher": teacher, "heat": 2.0, "student": student}

    def act(step: int) -> Values | None:
        if at is not None:
            at(step, state)
        x, y, _ = outlines(32, 0.25)
        with torch.no_grad():
            wanted = state["teacher"](x)
        scores = student(x)
        hot = state["heat"]
        far = F.kl_div((scores / hot).log_softmax(-1), (wanted / hot).softmax(-1), reduction="batchmean") * hot * hot
        own = F.cross_entropy(scores, y)
        learn(optimizer, 0.7 * far + 0.3 * own)
        if step % 2:
            return None
        found = {"distill/kd_loss": far, "distill/ce_loss": own, "distill/total_loss": 0.7 * far + 0.3 * own}
        return found | {"distill/student_acc": share_right(scores, y), "distill/teacher_acc": share_right(wanted, y)}

    drive(tape, steps, act)


@healthy("eleventh", config={"temperature": 2.0, "alpha": 0.7})
def healthy_student(tape: Tape) -> None:
    """A student of a larger network."""
    taught(tape)


@fault("eleventh", JUMP + " accuracy_drop", step=200, window=12, config={"temperature": 2.0, "alpha": 0.7})
def student_of_an_empty_teacher(tape: Tape) -> None:
    """From 200 on the teacher is one that was never trained: a server that reloaded without its weights."""

    def at(step: int, state: dict[str, Any]) -> None:
        if step == 200:
            state["teacher"] = eye(width=12).eval()
            spoil(state["teacher"][-1], 0.6)

    taught(tape, at, seed=862)
