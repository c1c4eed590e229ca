"""Digits of the third set; each training is a run of the recorder."""

import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits

from benchmarks.zoo.real.case import fault
from benchmarks.zoo.real.change import add_fault, add_healthy
from benchmarks.zoo.real.journal_tapes import user_run
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn
Batch = tuple[torch.Tensor, torch.Tensor]
Data = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
SHORT = ("loss", "accuracy", "val_loss", "val_accuracy")
"""The names that Keras uses."""


@lru_cache(maxsize=1)
def digits() -> Data:
    """Digits of 8 by 8 points: 1,400 to train with, and the others."""
    known = load_digits()
    order = torch.randperm(len(known.data), generator=torch.Generator().manual_seed(0))
    points, labels = torch.tensor(known.data / 16.0, dtype=torch.float32)[order], torch.tensor(known.target)[order]
    return points[:1400], labels[:1400], points[1400:], labels[1400:]


def network(hidden: int = 64, norm: bool = False) -> Any:
    """Three layers."""
    first = [nn.Linear(64, hidden), *([nn.BatchNorm1d(hidden)] if norm else []), nn.ReLU()]
    return nn.Sequential(*first, nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def _sgd(model: Any, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def _adam(model: Any, lr: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=lr)


@dataclass(slots=True)
class Digits:
    """A classifier of digits: what is trained, how, and what is logged of it."""

    model: Callable[[], Any] = network
    optimizer: Callable[[Any, float], torch.optim.Optimizer] = _sgd
    schedule: Callable[[Any], Any] | None = None
    each_batch: bool = False
    """Whether the schedule is stepped with each batch, not with each epoch."""
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = F.cross_entropy
    lr: float = 0.05
    batch: int = 32
    epochs: int = 15
    clip: float | None = None
    every: int = 1
    """Values are logged at every so many steps; 0: once an epoch."""
    names: tuple[str, str, str, str] = ("train/loss", "train/acc", "val/loss", "val/acc")
    watched: bool = True
    data: Callable[[], Data] = digits
    before: Callable[[int, Any, torch.Tensor, torch.Tensor], Batch] = lambda step, model, x, y: (x, y)
    after: Callable[[int, Any], None] = lambda step, model: None
    config: dict[str, Any] = field(default_factory=dict)

    def fit(self, tape: Tape, seed: int = 1) -> None:
        """Train."""
        torch.manual_seed(seed)
        points, labels, *held_out = self.data()
        model = self.model()
        optimizer = self.optimizer(model, self.lr)
        schedule = self.schedule(optimizer) if self.schedule else None
        settings = {"lr": self.lr, "batch_size": self.batch, "epochs": self.epochs} | self.config
        steps = itertools.count()
        with user_run(tape, watched=self.watched, **settings) as run:
            rows = torch.utils.data.TensorDataset(points, labels)
            loader = torch.utils.data.DataLoader(rows, batch_size=self.batch, shuffle=True, drop_last=True)
            for epoch in range(self.epochs):
                seen = [self._step(run, next(steps), batch, model, optimizer, schedule) for batch in loader]
                if schedule and not self.each_batch:
                    schedule.step()
                self._evaluate(run, epoch, len(loader), model, held_out, seen)

    def _step(self, run: Any, step: int, batch: Any, model: Any, optimizer: Any, schedule: Any) -> tuple[float, float]:
        with run.step(step):
            points, labels = self.before(step, model, *batch)
            scores = model(points)
            loss = self.loss(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            values = {self.names[0]: loss, "lr": optimizer.param_groups[0]["lr"]}
            if self.clip:
                values["grad_norm"] = nn.utils.clip_grad_norm_(model.parameters(), self.clip)
            optimizer.step()
            self.after(step, model)
            if schedule and self.each_batch:
                schedule.step()
            if self.every and step % self.every == 0:
                run.log(values, category="trainer")
        right = (scores.argmax(1) == labels).float().mean().item() if labels.dim() == 1 else 0.0
        return loss.item(), right

    def _evaluate(self, run: Any, epoch: int, steps: int, model: Any, held_out: Any, seen: Any) -> None:
        model.eval()
        with torch.no_grad():
            scores = model(held_out[0])
            values = {self.names[2]: self.loss(scores, held_out[1])}
            values[self.names[3]] = (scores.argmax(1) == held_out[1]).float().mean()
        model.train()
        if not self.every:
            losses, rights = zip(*seen, strict=True)
            values |= {self.names[0]: sum(losses) / steps, self.names[1]: sum(rights) / steps, "epoch": epoch}
        run.log(values, step=epoch if not self.every else (epoch + 1) * steps - 1)


def _trained(tape: Tape, **parts: Any) -> None:
    Digits(**parts).fit(tape)


def digits_healthy(name: str, **parts: Any) -> None:
    """Register a healthy training of digits."""
    add_healthy("third", f"healthy_{name}", _trained, **parts)


def digits_fault(name: str, kinds: str, **parts: Any) -> None:
    """Register a training of digits that goes wrong."""
    add_fault("third", name, kinds, _trained, **parts)


def one_cycle(optimizer: Any) -> Any:
    """Up to four times the configured rate and down."""
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=43 * 15)


def mixed(step: int, model: Any, points: torch.Tensor, labels: torch.Tensor) -> Batch:
    """Each sample is mixed with another one, and so are their labels."""
    share = float(torch.distributions.Beta(0.4, 0.4).sample())
    other = torch.randperm(len(points))
    wanted = F.one_hot(labels, 10).float()
    return share * points + (1 - share) * points[other], share * wanted + (1 - share) * wanted[other]


def next_label_from(at: int) -> Any:
    """Labels are off by one from a step on."""
    return lambda step, model, points, labels: (points, (labels + 1) % 10 if step >= at else labels)


def replaced(model: Any, lr: float) -> torch.optim.Optimizer:
    """The layers are replaced after the optimizer was made."""
    optimizer = _sgd(model, lr)
    for at, layer in enumerate(model):
        if isinstance(layer, nn.Linear):
            model[at] = nn.Linear(layer.in_features, layer.out_features)
    return optimizer


def dead() -> Any:
    """A network whose second layer is never active."""
    model = network()
    with torch.no_grad():
        model[2].bias.fill_(-20.0)
    return model


def with_nan() -> Data:
    """One sample has a NaN."""
    points, *others = digits()
    points = points.clone()
    points[700, 5] = float("nan")
    return points, *others  # type: ignore[return-value]


def growing(step: int, model: Any, points: torch.Tensor, labels: torch.Tensor) -> Batch:
    """The weights of one layer grow by 3 % a step from step 200 on."""
    if step > 200:
        with torch.no_grad():
            model[2].weight.mul_(1.03)
    return points, labels


class NotCleared(torch.optim.SGD):
    """Gradients are never cleared."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing."""


def leaking() -> Callable[[int, Any], None]:
    """Each step keeps 2 MB."""
    kept: list[torch.Tensor] = []

    def after(step: int, model: Any) -> None:
        kept.append(torch.ones(500_000))
        time.sleep(0.03)

    return after


class Slower(torch.utils.data.Dataset[Batch]):
    """Samples that take 1.2 ms each from step 350 on."""

    def __init__(self) -> None:
        self._points, self._labels, *_ = digits()
        self._given = 0

    def __len__(self) -> int:
        return len(self._points)

    def __getitem__(self, at: int) -> Batch:
        self._given += 1
        if self._given > 32 * 350:
            time.sleep(0.0012)
        return self._points[at], self._labels[at]


@fault("third", "data_stall input_bound throughput_loss slow_span")
def slow_loader(tape: Tape) -> None:
    """Samples become slow in the middle."""
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = torch.utils.data.DataLoader(Slower(), 32, shuffle=True)
    with user_run(tape, watched=True, lr=0.05) as run:
        for step, (points, labels) in enumerate(itertools.chain.from_iterable(itertools.repeat(loader, 16))):
            with run.step(step):
                loss = F.cross_entropy(model(points), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.log({"loss": loss}, category="trainer")


def growing_checkpoints() -> Callable[[int, Any], None]:
    """A checkpoint every 20 steps, each 10 MB larger than the last."""
    history: list[torch.Tensor] = []

    def after(step: int, model: Any) -> None:
        if step % 20 == 19:
            history.extend(torch.randn(400_000) for _ in range(6))
            torch.save({"model": model.state_dict(), "history": history}, Path(tempfile.gettempdir()) / "third.pt")

    return after


def checkpoint_each_epoch(step: int, model: Any) -> None:
    """A checkpoint at the end of each epoch."""
    if step % 43 == 42:
        torch.save(model.state_dict(), Path(tempfile.gettempdir()) / "third.pt")


def same_batch_from(at: int) -> Any:
    """One batch for ever from a step on."""
    kept: dict[str, Batch] = {}

    def before(step: int, model: Any, points: torch.Tensor, labels: torch.Tensor) -> Batch:
        return kept.setdefault("batch", (points, labels)) if step >= at else (points, labels)

    return before


def few_and_wrong() -> Data:
    """256 samples, four labels in ten wrong."""
    points, labels, *held_out = digits()
    wrong = torch.rand(1400) < 0.4
    labels = torch.where(wrong, torch.randint(0, 10, (1400,)), labels)
    return points[:256], labels[:256], *held_out  # type: ignore[return-value]


class Rounded(nn.Linear):
    """A layer whose weights are rounded to 15 levels from step 300 on."""

    rounds = False

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Weights that are rounded pass their gradients on."""
        size = self.weight.abs().max() / 7
        rounded = self.weight + (torch.round(self.weight / size) * size - self.weight).detach()
        return F.linear(given, rounded if self.rounds else self.weight, self.bias)


def rounded_from_300(step: int, model: Any, points: torch.Tensor, labels: torch.Tensor) -> Batch:
    """Round from step 300 on."""
    for layer in model:
        layer.rounds = step >= 300
    return points, labels


class Half(nn.Module):
    """A network in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, given: torch.Tensor) -> Any:
        """Scores in float32."""
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner(given).float()


RESTARTS = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts
digits_healthy("epochs", every=0, names=SHORT, epochs=40, watched=False)
digits_healthy("label_smoothing", loss=lambda o, y: F.cross_entropy(o, y, label_smoothing=0.2), every=10, epochs=25)
digits_healthy(
    "warm_restarts", model=lambda: network(norm=True), schedule=lambda it: RESTARTS(it, 150, 2), each_batch=True,
    epochs=16, config={"scheduler": "CosineAnnealingWarmRestarts"},
)  # fmt: skip
digits_healthy("one_cycle", schedule=one_cycle, each_batch=True, clip=1.0, config={"max_lr": 0.2})
digits_healthy(
    "mixed",
    model=lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
    before=mixed, epochs=18,
)  # fmt: skip
digits_healthy("batch_of_4", batch=4, lr=0.01, epochs=3, watched=False)
digits_healthy(
    "rounded", model=lambda: nn.Sequential(Rounded(64, 48), nn.ReLU(), Rounded(48, 10)), before=rounded_from_300,
    lr=0.02, epochs=16,
)  # fmt: skip
digits_healthy("step_decay", schedule=lambda it: torch.optim.lr_scheduler.StepLR(it, 5, 0.3), epochs=18)
digits_healthy("half_precision", model=Half, optimizer=_adam, lr=1e-3, epochs=12)
digits_healthy("checkpoints", after=checkpoint_each_epoch, epochs=20)
digits_fault(
    "double_softmax", "plateau not_learning absurd_loss",
    loss=lambda o, y: F.cross_entropy(o.softmax(-1).softmax(-1), y),
)  # fmt: skip
digits_fault(
    "wrong_sign", "divergence absurd_loss not_finite not_learning exploding_gradients",
    loss=lambda o, y: -F.cross_entropy(o, y), epochs=6, lr=0.01,
)  # fmt: skip
digits_fault("labels_off_by_one", "level_shift spike accuracy_drop divergence", before=next_label_from(400), epochs=16)
digits_fault(
    "labels_off_by_one_epochs", "level_shift accuracy_drop spike divergence generalization_gap",
    before=next_label_from(43 * 20), every=0, epochs=40, names=SHORT, watched=False,
)  # fmt: skip
digits_fault(
    "warm_up_never_ends", "lr_schedule divergence spike level_shift not_finite absurd_loss exploding_gradients",
    optimizer=_adam, lr=1e-3, schedule=lambda it: torch.optim.lr_scheduler.LambdaLR(it, lambda step: (step + 1) / 20),
    each_batch=True, epochs=14, config={"warmup_steps": 20},
)  # fmt: skip
digits_fault(
    "schedule_each_batch", "lr_zero lr_schedule plateau",
    schedule=lambda it: torch.optim.lr_scheduler.ExponentialLR(it, 0.9), each_batch=True, epochs=12,
    config={"gamma": 0.9},
)  # fmt: skip
digits_fault(
    "layers_replaced", "weights_frozen unused_parameters not_learning plateau constant gradients_not_cleared",
    optimizer=replaced, epochs=10,
)  # fmt: skip
digits_fault("clipped_to_nothing", "not_learning plateau update_ratio always_clipped", clip=1e-4, epochs=10)
digits_fault(
    "dead_layer", "not_learning dead_units constant vanishing_gradients plateau", model=dead, every=0, epochs=10
)
digits_fault("nan_in_a_sample", "not_finite", data=with_nan, epochs=4)
digits_fault(
    "few_and_wrong_labels", "overfit overtraining", data=few_and_wrong, every=0, epochs=120, watched=False,
    model=lambda: network(256),
)  # fmt: skip
digits_fault("one_batch", "stuck_batch too_good overfit", before=same_batch_from(200), epochs=16)
digits_fault(
    "never_cleared",
    "gradients_not_cleared divergence not_finite oscillation absurd_loss spike not_learning gradient_shift "
    "exploding_gradients",
    optimizer=lambda model, lr: NotCleared(model.parameters(), lr=lr, momentum=0.9), lr=0.02, epochs=8,
)  # fmt: skip
digits_fault("memory_leak", "memory_creep", after=leaking(), epochs=28)
digits_fault("checkpoints_grow", "checkpoint_growth periodic_stall slow_span", after=growing_checkpoints(), epochs=12)
digits_fault(
    "one_layer_explodes",
    "exploding_gradients gradient_shift divergence spike not_finite norm_growth level_shift absurd_loss",
    before=growing, epochs=12, clip=100.0,
)  # fmt: skip
