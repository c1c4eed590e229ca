"""Execution: weights that do not change, gradients that are not cleared, one batch for ever, unused parameters."""

import itertools
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import Found, RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series
from stepscope.model.names import EVENT_PARAMETERS
from stepscope.model.records import Event

FROZEN = Kind(
    "weights_frozen",
    "ERROR",
    "optimizer.step() changes no weight: no gradients, every step skipped by a loss scaler, or other parameters in it",
    "Check that gradients are there when step() is called, and that the optimizer has the parameters of this model.",
    explains=("plateau", "constant", "not_learning", "vanishing_gradients"),
    lasts=True,
    rules_out="a loss at its floor, which still moves in its last digits",
)
NOT_CLEARED = Kind(
    "gradients_not_cleared",
    "ERROR",
    "gradients of earlier steps are added to those of the next: zero_grad() is missing, or comes too late",
    "Call optimizer.zero_grad() between optimizer.step() and the next backward pass.",
    explains=("level_shift", "spike", "divergence", "exploding_gradients", "gradient_shift"),
    lasts=True,
    rules_out="harder data or a higher learning rate: gradients were there before the backward pass",
)
STUCK = Kind(
    "stuck_batch",
    "ERROR",
    "every step gets the same input: an iterator that is not advanced, a cache, or a loader that repeats a batch",
    "Look at what the loop reads its batches from.",
    explains=("plateau", "level_shift", "overfit", "divergence", "too_good"),
    lasts=True,
    rules_out="a model that learns quickly: the inputs themselves are equal",
)
UNUSED = Kind(
    "unused_parameters",
    "WARN",
    "parameters that require gradients but are in no optimizer, or get no gradient: they are never trained",
    "Add them to the optimizer, set requires_grad=False, or look where the graph is cut off (detach, no_grad).",
)
RETRIES = Kind(
    "allocator_retries",
    "WARN",
    "the memory of the GPU is nearly full: the allocator frees its cache and waits for the device to find room",
    "Reduce the batch, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation.",
    explains=("slow_span", "throughput_loss", "periodic_stall"),
    lasts=True,
)
SAMPLES = 3
"""So many samples in a row must show it."""


class Execution:
    """Watches what `instrument()` samples of weights, gradients, inputs and the allocator."""

    KINDS: ClassVar[tuple[Kind, ...]] = (FROZEN, NOT_CLEARED, STUCK, RETRIES)
    ROLES: ClassVar[tuple[str, ...]] = ("update_ratio", "stale_gradient", "input_checksum", "alloc_retries")
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_changed", "_last", "_reported", "_run", "_series", "_since", "_times")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run = series, run
        self._reported = False
        self._last: float | None = None
        self._times = self._since = self._changed = 0

    def take(self) -> Finding | None:
        """Count the samples in a row that show a fault."""
        series = self._series
        role, value = series.role.name, series.value
        shows = {
            "update_ratio": value == 0.0,
            "stale_gradient": value > 0.0,
            "input_checksum": value == self._last,
            "alloc_retries": self._last is not None and value > self._last,
        }[role]
        self._changed += self._last is not None and value != self._last
        self._last = value
        if not shows:
            self._times = 0
            return None
        if self._times == 0:
            self._since = series.step
        self._times += 1
        if self._reported or self._times < SAMPLES:
            return None
        found = self._finding(role)
        self._reported = found is not None
        return found

    def _finding(self, role: str) -> Finding | None:
        series, since = self._series, self._since
        if role == "update_ratio":
            rates = self._run.of_role("lr", series.rank)
            if rates and all(each.value == 0.0 for each in rates):
                return None  # the learning rate is the cause
            return FROZEN.about(series, since, f"no weight has changed since step {since}", (1e-12, 1.0))
        if role == "stale_gradient":
            text = f"the gradients of earlier steps have not been cleared since step {since}"
            return NOT_CLEARED.about(series, since, text, (0.0, 0.0))
        if role == "alloc_retries":
            text = f"the GPU's allocator has had to free its cache {number(series.value)} times by step {series.step}"
            return RETRIES.about(series, since, text, (0.0, 0.0))
        if self._changed < 2:
            return None  # the whole data is one batch
        return STUCK.about(series, since, f"the input of the model has been the same since step {since}", (0.0, 0.0))


UNCHANGED = (
    "the weights did not change between these evaluations: the optimizer is not called, gets no gradients, or every "
    "step is skipped; or, less likely, the evaluation uses a copy of the weights or logs an old value"
)
EVALUATIONS, BEFORE = 3, 3
"""So many equal evaluations in a row tell that weights do not change, one more after fewer different ones..."""
LARGE = 0.1
"""... unless each of these changed by this share of the value,"""
CLEAR = 1e-3
"""... or one less where all changes before were larger than this share, and the loss of training stopped falling, too,
unless the values have many digits."""
LOWER = 0.98
"""A loss of training that is lower by less has stopped falling."""
DIGITS, MANY_DIGITS = 5, 7
"""Losses that are logged with fewer digits are equal by chance; two of them are also with fewer than the second."""
TRAINED = 5
"""So many different training losses must lie between the last two of them."""


def judge_evaluations(series: Series, run: RunState) -> Finding | None:
    """Detect a loss of held-out data that is the same to the last digit while the training goes on."""
    if series.same < EVALUATIONS - 1 or run.reinforcement or "best" in series.key.lower():
        return None
    values, steps = list(series.values), list(series.steps)
    if not series.distinct:
        return _never_changed(series, run)
    equal, before = steps[-series.same :], values[: -series.same + 1]
    changes = [abs(b - a) for a, b in itertools.pairwise(before)]
    if len(values) < series.same or not changes or 0.0 in changes:
        return None
    if len(changes) < BEFORE and series.same <= EVALUATIONS and min(changes) < LARGE * abs(series.value):
        return None
    digits = max(map(_digits, before))
    if digits < DIGITS:
        return None
    if series.same < EVALUATIONS and (
        min(changes) < CLEAR * abs(series.value)
        or (digits < MANY_DIGITS and _learns_on(series, run, steps[-series.same - 1], equal[0]))
    ):
        return None
    if not _trained(series, run, equal[-2]):
        return None
    rates = run.of_role("lr", series.rank)
    if rates and all(each.value < 0.02 * each.highest for each in rates):
        return None  # the end of a schedule
    last = steps[-series.same - 1]
    begun = (last + equal[0]) // 2
    text = (
        f"{series.key} has been exactly {number(series.value, 6)} in {series.same} evaluations, from step {equal[0]} "
        f"to {series.step}, while the training goes on: no weight has changed since some step after {last}"
    )
    band = (min(before), max(before))
    return FROZEN.about(series, begun, text, band, severity="WARN", cause=UNCHANGED)


def _never_changed(series: Series, run: RunState) -> Finding | None:
    """Detect a loss of held-out data that has been the same since the first evaluation."""
    if (
        series.same <= EVALUATIONS
        or _digits(series.value) < DIGITS
        or not _trained(series, run, series.steps[-EVALUATIONS])
    ):
        return None
    text = (
        f"{series.key} has been exactly {number(series.value, 6)} in all {series.same} evaluations, up to step "
        f"{series.step}, while the training goes on: no weight has ever changed"
    )
    begun = min(each.first_step for each in run.of_role("loss", series.rank))
    return FROZEN.about(series, begun, text, (0.0, series.value), severity="WARN", cause=UNCHANGED)


def _digits(value: float) -> int:
    """Return how many digits a value was logged with."""
    return len(f"{value:.8e}".partition("e")[0].strip("-").replace(".", "").rstrip("0"))


def _trained(series: Series, run: RunState, since: int) -> bool:
    """Return whether the training has gone on since a step, with losses that differ."""
    for each in run.of_role("loss", series.rank, held_out=False):
        values = {value for step, value in zip(each.steps, each.values, strict=True) if step > since}
        if len(values) >= TRAINED:
            return True
    return False


def _learns_on(series: Series, run: RunState, before: int, since: int) -> bool:
    """Return whether a loss of training is lower since an evaluation than between it and the one before."""
    for each in run.of_role("loss", series.rank, held_out=False):
        places = list(zip(each.steps, each.values, strict=True))
        earlier = [value for step, value in places if before < step <= since]
        later = [value for step, value in places if step > since]
        if earlier and later and median(later) < LOWER * median(earlier):
            return True
    return False


FrozenEvaluations = judged_once("FrozenEvaluations", FROZEN, ("loss",), judge_evaluations, held_out=True, each="value")
"""Watches one held-out loss."""


class Parameters:
    """Reads, once, which parameters of the model are not trained."""

    KINDS: ClassVar[tuple[Kind, ...]] = (UNUSED,)

    def __init__(self, run: RunState) -> None:
        self._run = run

    def event(self, rank: int, event: Event) -> Found:
        """Evaluate the event of `instrument()` about the parameters."""
        if event.name != EVENT_PARAMETERS:
            return ()
        found = []
        total = event.attrs.get("parameters")
        for count, names, what in (
            ("outside_optimizer", "outside_names", "are in no optimizer"),
            ("without_gradient", "without_names", "have no gradient"),
        ):
            number_of, named = event.attrs.get(count), event.attrs.get(names)
            if isinstance(number_of, int) and number_of > 0 and isinstance(named, (list, tuple)):
                first = ", ".join(str(name)[:80] for name in named[:3])
                text = f"{number_of} of {total} parameters that require gradients {what}: {first}"
                found.append(
                    UNUSED.finding(text, event.time, step=event.step, ranks=(rank,), key=count, value=float(number_of))
                )
        return found
