"""Real trainings that go wrong: torch on the processor, recorded with the recorder and diagnosed from its journal."""

import argparse
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import stepscope
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.record_order import in_order
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.journal.layout import list_writers, writer_folder
from stepscope.journal.segments import Tail

Train = Callable[[stepscope.Run], None]


@dataclass(frozen=True, slots=True)
class Real:
    """A training, the kinds of which one must be found (none for a healthy one), and where it goes wrong."""

    train: Train
    kinds: tuple[str, ...]
    step: int | None = None
    window: int = 15


REAL: dict[str, Real] = {}


def real(*kinds: str, step: int | None = None, window: int = 15) -> Callable[[Train], Train]:
    """Register a training under its function's name."""

    def register(train: Train) -> Train:
        REAL[train.__name__] = Real(train, kinds, step, window)
        return train

    return register


def findings_in(home: Path, run: str, world: int = 1) -> list[Finding]:
    """Diagnose what the journals of a run hold."""
    diagnosis = Diagnosis(world=world)
    batches = [batch for name in list_writers(home, run) for batch in Tail(writer_folder(home, run, name)).read()]
    for each in in_order(batches):
        diagnosis.feed(each.rank, each.record, each.attempt, each.host)
    return diagnosis.findings()


def diagnosed(train: Train) -> list[Finding]:
    """Record a training and diagnose it."""
    with tempfile.TemporaryDirectory() as home:
        run = stepscope.init(home=home, run_id="real", probes=True, otel=False, capture_logs=False, quiet=True)
        train(run)
        run.finish()
        return findings_in(Path(home), "real")


def is_named(case: Real, found: list[Finding]) -> bool:
    """Whether one of the kinds was found near the step; for a healthy training, whether nothing above INFO was."""
    if not case.kinds:
        return all(each.severity == "INFO" for each in found)
    return any(
        each.kind in case.kinds
        and (case.step is None or (each.step is not None and abs(each.step - case.step) <= case.window))
        for each in found
    )


def _task(seed: int = 0) -> tuple[Any, Any, Any]:
    """Two thousand points of ten classes that a small network can tell apart, and such a network."""
    import torch

    torch.manual_seed(seed)
    centers = 2.0 * torch.randn(10, 16)
    labels = torch.randint(0, 10, (2000,))
    inputs = centers[labels] + torch.randn(2000, 16)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    return inputs, labels, model


def _steps(run: stepscope.Run, steps: int, at: Callable[[int, Any, Any, Any], None] | None = None) -> None:
    """Train with SGD; `at` may change labels, network or optimizer before a step."""
    import torch

    inputs, labels, model = _task()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        if at is not None:
            at(step, labels, model, optimizer)
        batch = torch.randint(0, 2000, (64,))
        with run.step(step):
            with run.span("train.forward"):
                out = model(inputs[batch])
                loss = torch.nn.functional.cross_entropy(out, labels[batch])
            optimizer.zero_grad()
            with run.span("train.backward"):
                loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            optimizer.step()
            right = (out.argmax(1) == labels[batch]).float().mean()
            rate = optimizer.param_groups[0]["lr"]
            run.log({"loss": loss.item(), "grad_norm": norm.item(), "accuracy": right.item(), "lr": rate})


@real()
def healthy(run: stepscope.Run) -> None:
    """Nothing goes wrong."""
    _steps(run, 300)


@real()
def regression(run: stepscope.Run) -> None:
    """A linear regression that falls steadily and stops at the noise of its data."""
    import torch

    torch.manual_seed(0)
    inputs = torch.randn(512, 8)
    targets = inputs @ torch.randn(8, 1) + 0.05 * torch.randn(512, 1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(600):
        batch = torch.randint(0, 512, (64,))
        loss = torch.nn.functional.mse_loss(model(inputs[batch]), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item(), "lr": 0.02}, step=step)


@real("not_finite", "divergence", "exploding_gradients", "spike", "level_shift", "lr_schedule", step=150, window=30)
def bad_learning_rate(run: stepscope.Run) -> None:
    """The learning rate is five hundred times too high from step 150 on."""

    def at(step: int, labels: Any, model: Any, optimizer: Any) -> None:
        if step == 150:
            optimizer.param_groups[0]["lr"] = 25.0

    _steps(run, 300, at)


@real("level_shift", "accuracy_drop", "spike", "divergence", step=200, window=30)
def label_noise(run: stepscope.Run) -> None:
    """From step 200 on most labels are drawn at random for each batch."""
    import torch

    def at(step: int, labels: Any, model: Any, optimizer: Any) -> None:
        if step >= 200:
            noisy = torch.rand(2000) < 0.8
            labels[noisy] = torch.randint(0, 10, (int(noisy.sum()),))

    _steps(run, 400, at)


def _half_precision(run: stepscope.Run, broken_at: int | None) -> None:
    """Train in float16 with a loss scale that is halved at each overflow and doubled after two hundred good steps."""
    import torch

    inputs, labels, model = _task()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scale, good = 65536.0, 0
    for step in range(300):
        if step == broken_at:
            with torch.no_grad():
                model[0].weight.mul_(1e6)
        batch = torch.randint(0, 2000, (64,))
        half = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).half()
        half.load_state_dict(model.state_dict())
        loss = torch.nn.functional.cross_entropy(half(inputs[batch].half()).float(), labels[batch])
        (loss * scale).backward()
        grads = [parameter.grad.float() / scale for parameter in half.parameters()]
        norm = torch.stack([grad.norm() for grad in grads]).norm().item()
        run.log({"loss_scale": scale, "grad_norm": norm, "loss": loss.item()}, step=step)
        if not math.isfinite(norm):
            scale, good = scale / 2, 0
            continue
        good += 1
        scale = 2 * scale if good % 200 == 0 else scale
        for parameter, grad in zip(model.parameters(), grads, strict=True):
            parameter.grad = grad
        optimizer.step()


@real()
def half_precision(run: stepscope.Run) -> None:
    """Overflows at first, until the scale fits: healthy."""
    _half_precision(run, None)


@real("scaler_collapse", "not_finite", step=150, window=20)
def overflow(run: stepscope.Run) -> None:
    """From step 150 on activations are beyond float16, and the loss scale is halved down to nothing."""
    _half_precision(run, 150)


def main() -> None:
    """Train, diagnose and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which; all if none are named")
    for name in parser.parse_args().names or list(REAL):
        found = diagnosed(REAL[name].train)
        print(f"{name}: {'as it should be' if is_named(REAL[name], found) else 'WRONG'}")
        for each in found:
            print(f"  {each.severity} {each.kind}: {each.text}")


if __name__ == "__main__":
    main()
