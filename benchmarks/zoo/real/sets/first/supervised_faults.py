"""Faults that can be put into any supervised training: each returns what is called before every step."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks.zoo.real.case import Case, add
from benchmarks.zoo.real.sets.first.loop import At, Loop
from benchmarks.zoo.real.tape import Tape


def once(at: int, change: Callable[[Loop], None]) -> At:
    """Change the loop at one step."""

    def before(loop: Loop, step: int) -> None:
        if step == at:
            change(loop)

    return before


def shuffled_labels(loop: Loop) -> None:
    """Pair each input with the target of another."""
    batch = loop.batch

    def shuffled(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = batch(step)
        return inputs, targets[torch.randperm(len(targets))]

    loop.batch = shuffled


def stuck_batch(loop: Loop) -> None:
    """Return the same batch for ever."""
    same = loop.batch(0)
    loop.batch = lambda step: same


def zero_inputs(loop: Loop) -> None:
    """Preprocessing returns zeros."""
    batch = loop.batch
    loop.batch = lambda step: (torch.zeros_like(batch(step)[0]), batch(step)[1])


def frozen(loop: Loop) -> None:
    """The optimizer changes nothing any more."""
    loop.updates = False


def no_zero_grad(loop: Loop) -> None:
    """Gradients of all steps add up."""
    loop.zero = False


def ascent(loop: Loop) -> None:
    """The sign of the loss is wrong."""
    loop.sign = -1.0


def rate_too_high(loop: Loop) -> None:
    """The learning rate is a hundred times as high."""
    loop.lr *= 100
    for group in loop.optimizer.param_groups:
        group["lr"] *= 100


def rate_zero(loop: Loop) -> None:
    """The schedule has ended too early."""
    loop.schedule = None
    for group in loop.optimizer.param_groups:
        group["lr"] = 0.0


def restarted_schedule(loop: Loop) -> None:
    """The schedule begins again, as after a resume without its state."""
    schedule, now = loop.schedule, loop.steps * 7 // 10
    assert schedule is not None
    loop.schedule = lambda step: schedule(max(step - now, 0))


def destroyed_layer(loop: Loop) -> None:
    """One weight matrix is drawn anew, ten times as wide."""
    weights = [each for each in loop.model.parameters() if each.dim() > 1]
    with torch.no_grad():
        weights[len(weights) // 2].normal_(0, 10 * float(weights[len(weights) // 2].std()))


def bad_batch(loop: Loop) -> None:
    """One batch has inputs, or targets, that make no sense."""
    batch = loop.batch

    def bad(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = batch(step)
        loop.batch = batch
        if inputs.is_floating_point():
            return inputs * 50, targets
        return inputs, targets[torch.randperm(len(targets))] * 0

    loop.batch = bad


def nan_batch(loop: Loop) -> None:
    """A weight becomes NaN."""
    with torch.no_grad():
        next(iter(loop.model.parameters())).view(-1)[0] = float("nan")


def vanishing(loop: Loop) -> None:
    """Gradients are scaled down to nothing before they are clipped and logged."""
    for parameter in loop.model.parameters():
        parameter.register_hook(lambda grad: grad * 1e-6)


def slow_data(loop: Loop) -> None:
    """Loading takes 25 ms more."""
    loop.data_seconds = 0.025


@dataclass(frozen=True, slots=True)
class Fault:
    """What changes, the kinds that name it, and words of which one must be said."""

    change: Callable[[Loop], None]
    kinds: str
    says: str = ""
    window: int = 20


FAULTS = {
    "shuffled_labels": Fault(shuffled_labels, "level_shift"),
    "stuck_batch": Fault(stuck_batch, "too_good", says="batch"),
    "zero_inputs": Fault(zero_inputs, "level_shift"),
    "frozen": Fault(frozen, "plateau weights_frozen", says="parameters weights optimizer"),
    "no_zero_grad": Fault(no_zero_grad, "gradient_shift exploding_gradients", says="zero_grad"),
    "ascent": Fault(ascent, "divergence level_shift exploding_gradients not_finite spike", window=40),
    "rate_too_high": Fault(rate_too_high, "lr_schedule"),
    "rate_zero": Fault(rate_zero, "lr_zero"),
    "restarted_schedule": Fault(restarted_schedule, "lr_schedule", says="restart"),
    "destroyed_layer": Fault(destroyed_layer, "level_shift spike"),
    "bad_batch": Fault(bad_batch, "spike level_shift"),
    "nan": Fault(nan_batch, "not_finite", window=2),
    "vanishing": Fault(vanishing, "vanishing_gradients"),
    "slow_data": Fault(slow_data, "data_stall throughput_loss", says="train.data_load data"),
}


def put(family: str, make: Callable[[], Loop], steps: int, names: str, seed: int = 0) -> None:
    """Register faults (names set apart by spaces) for a family; each begins in the second half of the run."""
    for name in names.split():
        _put(family, make, steps, name, seed)


def _put(family: str, make: Callable[[], Loop], steps: int, name: str, seed: int) -> None:
    known = FAULTS[name]
    begin = (
        steps * 7 // 10
        if name == "restarted_schedule"
        else int(steps * 0.6) + random.Random(name + family).randrange(20)
    )

    def train(run: Tape) -> None:
        torch.manual_seed(seed)
        make().fit(run, once(begin, known.change))

    add(
        Case(
            f"{family}.{name}",
            family,
            train,
            tuple(known.kinds.split()),
            begin,
            known.window,
            tuple(known.says.split()),
        )
    )
