"""Lightning modules with our logger and callback, and the names that its own examples use."""

import time
from collections.abc import Callable
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.journal_tapes import recorded_run
from benchmarks.zoo.real.tape import Tape
from stepscope.integrations.lightning import StepscopeCallback, StepscopeLogger

F = nn.functional
CLASSES, SIDE, BATCH = 6, 12, 16
Images = tuple[torch.Tensor, torch.Tensor]
At = Callable[["Classifier", int], None]


def images(count: int, noise: float = 1.0, kinds: int = CLASSES) -> Images:
    """Noisy pictures of a class's pattern, which is the same for all seeds."""
    patterns = torch.randn(kinds, SIDE, SIDE, generator=torch.Generator().manual_seed(3))
    labels = torch.randint(0, kinds, (count,))
    return 0.5 * patterns[labels] + noise * torch.randn(count, SIDE, SIDE), labels


class Classifier(lightning.LightningModule):
    """Classifies pictures; a fault changes it, its batches or its loss at a step."""

    def __init__(self, net: nn.Module, lr: float = 1e-3, at: At | None = None, schedule: str = "") -> None:
        super().__init__()
        self.save_hyperparameters({"lr": lr, "schedule": schedule})
        self.net, self.lr, self.at, self.schedule = net, lr, at, schedule
        self.shuffled = self.blank = self.dropped = False

    def training_step(self, batch: Any, index: int) -> Any:
        """The loss of a batch."""
        if self.at is not None:
            self.at(self, self.trainer.global_step)
        inputs, labels = batch
        inputs = torch.zeros_like(inputs) if self.blank else inputs
        labels = labels[torch.randperm(len(labels))] if self.shuffled else labels
        out = self.net(inputs)
        loss = F.cross_entropy(out, labels)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_acc", (out.argmax(1) == labels).float().mean())
        return loss

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Log the norm of the gradients, and drop them if the fault says so."""
        norms = [each.grad.norm() for each in self.parameters() if each.grad is not None]
        self.log("grad_norm", torch.stack(norms).norm())
        if self.dropped:
            optimizer.zero_grad()

    def validation_step(self, batch: Any, index: int) -> None:
        """Loss and accuracy of a batch that is not learned from."""
        inputs, labels = batch
        out = self.net(inputs)
        self.log_dict({"val_loss": F.cross_entropy(out, labels), "val_acc": (out.argmax(1) == labels).float().mean()})

    def configure_optimizers(self) -> Any:
        """Adam, with a schedule by steps or by the validation."""
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        if self.schedule == "onecycle":
            steps = int(self.trainer.estimated_stepping_batches)
            cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 10 * self.lr, total_steps=steps)
            return [optimizer], [{"scheduler": cycle, "interval": "step"}]
        if self.schedule == "plateau":
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}
        return optimizer


def flat(width: int = 48) -> nn.Module:
    """A network of two layers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, width), nn.ReLU(), nn.Linear(width, CLASSES))


def convolutions() -> nn.Module:
    """Two convolutions with batch normalisation."""
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE)), nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def fit(
    tape: Tape,
    module: lightning.LightningModule,
    train: Dataset[Any] | None = None,
    val: Dataset[Any] | None = None,
    callbacks: tuple[Any, ...] = (),
    ended_by: tuple[type[Exception], ...] = (),
    batch: int = BATCH,
    **arguments: Any,
) -> None:
    """Train with the logger and the callback."""
    with recorded_run(tape, ended_by) as settings:
        chosen = {"max_epochs": 6, "log_every_n_steps": 1, "enable_checkpointing": False}
        quiet = {"enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(
            accelerator="cpu",
            default_root_dir=settings["home"],
            logger=StepscopeLogger(**settings),
            callbacks=[StepscopeCallback(), *callbacks],
            **quiet | chosen | arguments,
        )
        learned = train or TensorDataset(*images(50 * batch))
        held_out = val or TensorDataset(*images(200))
        trainer.fit(module, DataLoader(learned, batch, shuffle=True), DataLoader(held_out, 64))


def _module(seed: int, net: Callable[[], nn.Module] = flat, **parts: Any) -> Classifier:
    torch.manual_seed(seed)
    return Classifier(net(), **parts)


@healthy("lightning")
def pictures(tape: Tape) -> None:
    """Six epochs at a constant rate, a validation after each."""
    fit(tape, _module(0))


@healthy("lightning")
def one_cycle(tape: Tape) -> None:
    """Convolutions with a cycle of the rate, which a monitor logs, clipped gradients, logged every fifth step."""
    module = _module(1, convolutions, schedule="onecycle")
    fit(
        tape, module, callbacks=(LearningRateMonitor("step"),), gradient_clip_val=1.0, log_every_n_steps=5, max_epochs=8
    )


@healthy("lightning")
def plateau_and_checkpoints(tape: Tape) -> None:
    """The rate falls when the validation does not; a checkpoint of every epoch; stopped early."""
    torch.manual_seed(2)
    watch = (LearningRateMonitor("epoch"), EarlyStopping("val_loss", patience=4))
    fit(
        tape, _module(2, schedule="plateau"), callbacks=(*watch, ModelCheckpoint(save_top_k=2, monitor="val_loss")),
        max_epochs=10, enable_checkpointing=True,
    )  # fmt: skip


@healthy("lightning")
def tiny_batches(tape: Tape) -> None:
    """Batches of four: losses that jump up and down."""
    fit(tape, _module(3), batch=4, train=TensorDataset(*images(800, noise=1.5)), max_epochs=2)


@healthy("lightning")
def accumulated_batches(tape: Tape) -> None:
    """Four batches in a step of the optimizer, the default interval of logging, validations inside the epoch."""
    fit(tape, _module(4, convolutions), accumulate_grad_batches=4, val_check_interval=25, log_every_n_steps=10,
        max_epochs=10)  # fmt: skip


class Curve(lightning.LightningModule):
    """An LSTM that predicts the next value of a noisy wave."""

    def __init__(self, lr: float = 3e-3, automatic: bool = True) -> None:
        super().__init__()
        self.lstm, self.out, self.lr = nn.LSTM(1, 24, batch_first=True), nn.Linear(24, 1), lr
        self.automatic_optimization = automatic
        self.zero = self.steps = True

    def training_step(self, batch: Any, index: int) -> Any:
        """Mean squared error; by hand where the optimization is not automatic."""
        (wave,) = batch
        loss = F.mse_loss(self.out(self.lstm(wave[:, :-1, None])[0])[..., 0], wave[:, 1:])
        self.log("train/loss", loss)
        if not self.automatic_optimization:
            optimizer: Any = self.optimizers()
            if self.zero:
                optimizer.zero_grad()
            self.manual_backward(loss)
            if self.steps:
                optimizer.step()
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        """Mean squared error of other waves."""
        (wave,) = batch
        self.log("val/loss", F.mse_loss(self.out(self.lstm(wave[:, :-1, None])[0])[..., 0], wave[:, 1:]))

    def configure_optimizers(self) -> Any:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def waves(count: int) -> TensorDataset:
    """Noisy waves of any frequency and phase."""
    phase, speed = 6.3 * torch.rand(count, 1), 0.2 + 0.4 * torch.rand(count, 1)
    return TensorDataset(torch.sin(phase + speed * torch.arange(16)) + 0.1 * torch.randn(count, 16))


@healthy("lightning")
def regression_by_hand(tape: Tape) -> None:
    """Manual optimization, done right."""
    torch.manual_seed(5)
    fit(tape, Curve(automatic=False), waves(800), waves(100))


class Pair(lightning.LightningModule):
    """A generator and a discriminator of points on a ring, optimized by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        self.judge = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def training_step(self, batch: Any, index: int) -> None:
        """One step of each."""
        (real,) = batch
        first, second = self.optimizers()  # type: ignore[attr-defined]
        made = self.generator(torch.randn(len(real), 4))
        g_loss = F.softplus(-self.judge(made)).mean()
        first.zero_grad()
        self.manual_backward(g_loss)
        first.step()
        d_loss = (F.softplus(-self.judge(real)) + F.softplus(self.judge(made.detach()))).mean()
        second.zero_grad()
        self.manual_backward(d_loss)
        second.step()
        self.log_dict({"g_loss": g_loss, "d_loss": d_loss}, prog_bar=True)

    def validation_step(self, batch: Any, index: int) -> None:
        """Nothing is validated."""

    def configure_optimizers(self) -> Any:
        """Adam for each."""
        return [
            torch.optim.Adam(each.parameters(), 1e-3, betas=(0.5, 0.9)) for each in (self.generator, self.judge)
        ], []


@healthy("lightning")
def two_optimizers(tape: Tape) -> None:
    """A small GAN, as in Lightning's own example."""
    torch.manual_seed(6)
    angle = 6.3 * torch.rand(1600)
    ring = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(1600, 2)
    fit(tape, Pair(), TensorDataset(ring), TensorDataset(ring[:64]), batch=32, max_epochs=7)


def _from(step: int, change: Callable[[Classifier], None]) -> At:
    """Change a module before a step."""

    def at(module: Classifier, now: int) -> None:
        if now == step:
            change(module)

    return at


def _set(name: str) -> Callable[[Classifier], None]:
    return lambda module: setattr(module, name, True)


@fault("lightning", "level_shift divergence accuracy_drop", step=150)
def labels_permuted(tape: Tape) -> None:
    """From step 150 on the labels of a batch are permuted."""
    fit(tape, _module(10, at=_from(150, _set("shuffled"))))


@fault("lightning", "level_shift divergence accuracy_drop", step=180)
def blank_pictures(tape: Tape) -> None:
    """From step 180 on a broken transform gives black pictures."""
    fit(tape, _module(11, convolutions, lr=3e-3, at=_from(180, _set("blank"))))


@fault("lightning", "divergence not_learning oscillation absurd_loss exploding_gradients spike level_shift")
def rate_of_one(tape: Tape) -> None:
    """Adam with a rate of 1."""
    fit(tape, _module(12, lr=1.0), max_epochs=4)


@fault("lightning", "not_learning weights_frozen plateau")
def never_stepped(tape: Tape) -> None:
    """Manual optimization without `optimizer.step()`."""
    torch.manual_seed(13)
    module = Curve(automatic=False)
    module.steps = False
    fit(tape, module, waves(800), waves(100))


@fault(
    "lightning", "gradients_not_cleared gradient_shift divergence oscillation not_learning exploding_gradients spike"
)
def never_cleared(tape: Tape) -> None:
    """Manual optimization without `optimizer.zero_grad()`."""
    torch.manual_seed(14)
    module = Curve(lr=1e-2, automatic=False)
    module.zero = False
    fit(tape, module, waves(800), waves(100))


@fault("lightning", "not_finite", step=130)
def bad_picture(tape: Tape) -> None:
    """One picture of step 130 holds NaN, and the weights with it from then on."""

    def spoil(module: Classifier) -> None:
        module.net[1].register_forward_pre_hook(  # type: ignore[index]
            lambda layer, inputs: (inputs[0] * float("nan"),) if module.trainer.global_step == 130 else None
        )

    fit(tape, _module(15, at=_from(130, spoil)))


@fault("lightning", "level_shift spike bad_resume divergence", step=160)
def other_weights(tape: Tape) -> None:
    """At step 160 the weights of a model with another seed are loaded."""
    torch.manual_seed(98)
    other = {key: 3 * value for key, value in flat().state_dict().items()}
    fit(tape, _module(16, at=_from(160, lambda module: module.net.load_state_dict(other) and None)))


class Slow(TensorDataset):
    """Pictures that take 3 ms each once some have been read."""

    read = 0

    def __getitem__(self, index: Any) -> Any:
        self.read += 1
        if self.read > 150 * BATCH:
            time.sleep(0.003)
        return super().__getitem__(index)


@fault("lightning", "data_stall throughput_loss slow_span input_bound", step=150)
def slow_pictures(tape: Tape) -> None:
    """Reading a batch takes 48 ms more from step 150 on."""
    module = _module(17)
    fit(tape, module, Slow(*images(50 * BATCH)))


@fault("lightning", "crash")
def shapes_of_the_validation(tape: Tape) -> None:
    """The validation set has pictures of another size."""
    module = _module(18)
    small = TensorDataset(torch.randn(64, SIDE, SIDE - 2), torch.randint(0, CLASSES, (64,)))
    fit(tape, module, val=small, ended_by=(RuntimeError,), num_sanity_val_steps=0)


@fault("lightning", "overfit")
def few_pictures(tape: Tape) -> None:
    """Sixty-four noisy pictures are learned by heart."""
    module = _module(19, lr=3e-3)
    fit(tape, module, TensorDataset(*images(64, noise=2.5)), max_epochs=80, log_every_n_steps=2)


@fault("lightning", "plateau weights_frozen", step=60, window=60)
def gradients_dropped(tape: Tape) -> None:
    """From step 60 on, while the loss still falls, gradients are dropped before the optimizer sees them."""
    fit(tape, _module(20, lr=3e-4, at=_from(60, _set("dropped"))))


@fault("lightning", "not_learning")
def labels_of_others(tape: Tape) -> None:
    """Pictures and labels were shuffled apart before training, so nothing can be learned: the first epoch shows it."""
    torch.manual_seed(21)
    inputs, labels = images(100 * BATCH)
    module = _module(21)
    fit(tape, module, TensorDataset(inputs, labels[torch.randperm(len(labels))]), max_epochs=2)
