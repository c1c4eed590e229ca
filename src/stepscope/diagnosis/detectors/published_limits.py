"""Quantities with a published healthy range: rows of one table, and those that need a rule of their own."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, Values, judged_once, leading
from stepscope.diagnosis.detectors.gradient_norms import VANISHING, has_learnt
from stepscope.diagnosis.detectors.preferences import MARGIN
from stepscope.diagnosis.detectors.rollouts import STALE, ZERO_ADVANTAGE, rewards_are_high
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, trend

UPDATE_RATIO = Kind(
    "update_ratio",
    "WARN",
    "updates are far too large or too small for the weights: the learning rate does not fit this layer",
    "Change the learning rate of these parameters; a ratio of about 0.001 is healthy.",
    explains=("plateau",),
)
ATTENTION = Kind(
    "attention_logits",
    "WARN",
    "queries and keys grow until the softmax is saturated",
    "Normalize queries and keys, clip their products, or lower the learning rate and raise the weight decay.",
    explains=("spike",),
    lasts=True,
)
NORM = Kind(
    "norm_growth",
    "WARN",
    "the weights grow without end: no weight decay, or a learning rate that is too high",
    "Check the weight decay and which parameters it applies to.",
    lasts=True,
)
CLIPPED = Kind(
    "always_clipped",
    "INFO",
    "the limit of the gradient norm is below its usual value, so that it sets the size of every step",
    "Raise the limit, or lower the learning rate and the limit together.",
)
SAMPLER = Kind(
    "sampler_saturated",
    "WARN",
    "the inference engine has no memory left for more sequences: requests wait or are preempted",
    "Lower the number of sequences in flight or their length, or add engines.",
)
LOW_MFU = Kind(
    "low_mfu",
    "INFO",
    "the GPUs compute a small share of what they could: small matrices, waiting for data or for each other, no fusion",
    "Look at where the time of a step goes; raise the batch, compile the model, use lower precision.",
)
DRIFT = Kind(
    "kl_drift",
    "INFO",
    "the policy moves steadily away from the reference model",
    "Read some answers; raise the KL coefficient, or lower the learning rate, if they become worse.",
)
FAILED = Kind(
    "failed_rollouts",
    "WARN",
    "most rollouts end with an error or are aborted",
    "Read the errors of the environment and the tools; check timeouts and limits.",
    explains=("reward_collapse", "dead_environment"),
    lasts=True,
)
INPUT_BOUND = Kind(
    "input_bound",
    "WARN",
    "the loop waits for data in every step",
    "Add loader workers or prefetching, or store the data in a form that is read faster.",
    rules_out="a slow model: the time is in loading",
)
DEAD_UNITS = Kind(
    "dead_units",
    "WARN",
    "most units of a layer are always 0, or saturated: they pass no gradient and do not learn any more",
    "Lower the learning rate, check the initialisation and the normalisation of the inputs, or use another activation.",
    explains=("plateau", "vanishing_gradients"),
    lasts=True,
)
PADDING = Kind(
    "padding",
    "WARN",
    "most of each batch is padding, which is computed and thrown away",
    "Group samples by length, or pack several into one sequence.",
)
THROTTLED = Kind(
    "cpu_throttled",
    "WARN",
    "the CPU quota of the control group is used up, and its processes are stopped until the next period",
    "Raise the CPU limit of the container, or use fewer loader workers and threads (OMP_NUM_THREADS).",
    explains=("throughput_loss", "busy_machine", "data_stall", "slow_span", "gpu_idle"),
    lasts=True,
    rules_out="other programs: the quota of this control group is used up",
    next="ps -eo pcpu,pid,args --sort=-pcpu | head",
)
HOT = Kind(
    "gpu_hot",
    "WARN",
    "the GPU is near the temperature at which it lowers its clock",
    "Check the cooling of that machine, and compare with another one.",
    explains=("gpu_slowdown",),
    lasts=True,
    next="nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
)
COUNTED = Kind(
    "counted_not_finite",
    "WARN",
    "values that are not finite are left out of the loss and only counted",
    "Look at the samples that give them: log of 0, masked rows that are empty, or an overflow in low precision.",
    explains=("level_shift", "spike"),
    lasts=True,
)
SKIPPED = Kind(
    "skipped_steps",
    "WARN",
    "updates or samples are skipped again and again: the loss scaler finds overflows, or the data is faulty",
    "Look at the loss scale and the gradient norm of those steps, and at what the loader says about its samples.",
    explains=("plateau",),
    lasts=True,
)
UNEVEN = Kind(
    "uneven_load",
    "WARN",
    "ranks get sequences of very different total length, and wait for the one with the most",
    "Balance batches by tokens instead of samples.",
    explains=("straggler", "intermittent_straggler"),
    lasts=True,
)
LENGTH = Kind(
    "length_shift",
    "WARN",
    "answers became far longer or shorter from one step to the next: the policy changed its form, not its content",
    "Read answers from before and after that step; check the end token, the limit and the reward for length.",
    explains=("truncation",),
)
GC = Kind(
    "gc_pauses",
    "WARN",
    "Python's garbage collector stops the loop; ranks that collect at different times wait for each other",
    "Call gc.disable() and gc.collect() at the same step on all ranks, or gc.freeze() after the setup.",
    explains=("slow_span", "periodic_stall", "intermittent_straggler"),
    lasts=True,
)
ROW = 20
LARGE_UPDATE, SMALL_UPDATE = 0.1, 1e-7
GROWN = 3.0
CLIPPED_SHARE, CLIP_VALUES = 0.9, 100
SKIPPED_SHARE = 0.5
UNEVEN_SHARE = 0.5
LENGTH_TIMES, LENGTH_VALUES, LENGTH_BEFORE = 2.5, 8, 40
GC_SHARE = 0.1
MFU = 0.1
DRIFTED, DRIFT_FLOOR = 5.0, 0.5
"""A KL to the reference has drifted when it has grown by this factor, steadily, and is above this floor."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A range that a role must not leave: the last `values` of them are beyond the limit, above it or below."""

    kind: Kind
    roles: tuple[str, ...]
    limit: float
    values: int = ROW
    below: bool = False
    says: str = ""
    """What it means, after a colon."""
    share: bool = False
    """Whether the limit is a share, which some log in percent."""
    unless: Callable[[Series, RunState], bool] = lambda series, run: False
    """What explains it."""


def _was_larger(series: Series, run: RunState) -> bool:
    """Return whether a gradient norm was larger before, which is judged elsewhere, or the loss explains it."""
    return series.highest > 1e-4 or has_learnt(series, run)


LIMITS = (
    Limit(ATTENTION, ("attention_logit",), 100.0, values=5),
    Limit(SAMPLER, ("kv_cache",), 0.98, says="the cache is full", share=True),
    Limit(SAMPLER, ("queue",), 0.0, values=60, says="requests have waited for the engine all the time"),
    Limit(FAILED, ("failure_share",), 0.5, values=10),
    Limit(INPUT_BOUND, ("data_share",), 20.0, says="that share of each step waits for data"),
    Limit(DEAD_UNITS, ("dead_units",), 0.5, values=10, says="that share of the units does nothing", share=True),
    Limit(PADDING, ("padding",), 0.5, says="that share of each batch is padding", share=True),
    Limit(THROTTLED, ("host_throttled",), 0.25, values=6, says="seconds of each second lost to the CPU quota"),
    Limit(HOT, ("gpu_temperature",), 85.0, values=12, says="degrees Celsius"),
    Limit(COUNTED, ("nan_count",), 0.0, values=1, says="values are not finite"),
    Limit(MARGIN, ("margin",), 20.0, values=10),
    Limit(STALE, ("staleness",), 8.0, values=5, says="updates old"),
    Limit(ZERO_ADVANTAGE, ("mixed_groups",), 0.05, below=True, says="no group has a spread", unless=rewards_are_high),
    Limit(VANISHING, ("grad_norm",), 1e-7, below=True, says="gradients vanish", unless=_was_larger),
)
"""Published limits by role; docs/diagnosis-coverage.md has their sources."""


class Limits:
    """Watches one series for the limits of its role."""

    KINDS: ClassVar[tuple[Kind, ...]] = tuple(dict.fromkeys(each.kind for each in LIMITS))
    ROLES: ClassVar[tuple[str, ...]] = tuple(role for each in LIMITS for role in each.roles)
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_beyond", "_limit", "_run", "_series", "_since")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run = series, run
        self._limit = next(each for each in LIMITS if series.role.name in each.roles)
        self._beyond = self._since = 0

    def usual(self, ahead: Values) -> int:
        """Count the next values that are within the limit."""
        values, highest = ahead.values, self._series.highest
        bound = self._bound(max(highest, values[0]))
        if bound != self._bound(max(highest, *values)):
            return 0
        return leading(value >= bound if self._limit.below else value <= bound for value in values)

    def learn(self, taken: Values) -> None:
        """Take values that are within the limit."""
        self._beyond = 0

    def _bound(self, highest: float) -> float:
        return self._limit.limit * (100.0 if self._limit.share and highest > 1.5 else 1.0)

    def take(self) -> Finding | None:
        """Count the values in a row that are beyond the limit."""
        series, limit = self._series, self._limit
        bound = self._bound(series.highest)
        if series.value >= bound if limit.below else series.value <= bound:
            self._beyond = 0
            return None
        if self._beyond == 0:
            self._since = series.step
        self._beyond += 1
        if self._beyond != limit.values or limit.unless(series, self._run):
            return None
        where = "below" if limit.below else "above"
        means = f": {limit.says}" if limit.says else ""
        now = f"{number(series.value)} now{means}"
        text = f"{series.key} has been {where} {number(bound)} since step {self._since}, {now}"
        return limit.kind.about(series, self._since, text, (bound, bound * 10) if limit.below else (0.0, bound))


def _recent(series: Series, count: int = ROW) -> list[float]:
    return list(series.values)[-count:]


def _judge_update(series: Series, run: RunState) -> Finding | None:
    recent = _recent(series)
    if len(recent) < ROW or any(SMALL_UPDATE <= value <= LARGE_UPDATE for value in recent):
        return None
    text = f"{series.key} has been {number(median(recent))} since step {series.steps[-ROW]}, about 0.001 is healthy"
    return UPDATE_RATIO.about(series, series.steps[-ROW], text, (SMALL_UPDATE, LARGE_UPDATE))


def _judge_norm(series: Series, run: RunState) -> Finding | None:
    middles = series.middles
    if len(middles) < 24 or not series.positive:
        return None
    was, now = median(middles[2:6]), median(middles[-3:])
    if now < GROWN * was or trend(middles) < 0.9 or middles[-1] < 1.1 * middles[-len(middles) // 4]:
        return None
    text = f"{series.key} has grown from {number(was)} to {number(now)} and does not stop"
    return NORM.about(series, series.first_step, text, (0.0, GROWN * was))


def _judge_clipping(series: Series, run: RunState) -> Finding | None:
    limit = run.setting("max_grad_norm", "gradient_clip_val", "clip_grad", "grad_clip", "gradient_clipping")
    recent = _recent(series, CLIP_VALUES)
    if not limit or len(recent) < CLIP_VALUES or sum(value > limit for value in recent) < CLIPPED_SHARE * CLIP_VALUES:
        return None
    if max(recent) <= 1.0001 * limit:
        return None
    text = f"{series.key} is {number(median(recent))} and is clipped to {number(limit)} in nearly every step"
    return CLIPPED.about(series, series.steps[-CLIP_VALUES], text, (0.0, limit))


def _judge_skipped(series: Series, run: RunState) -> Finding | None:
    """Judge a count of skipped updates or samples, for each report or since the start."""
    recent = _recent(series, ROW + 1)
    if len(recent) <= ROW:
        return None
    grows = all(b >= a for a, b in itertools.pairwise(series.values))  # a sum never falls
    new = [b - a for a, b in itertools.pairwise(recent)] if grows else recent[1:]
    if sum(each > 0 for each in new) < SKIPPED_SHARE * ROW:
        return None
    begun = next(step for step, each in zip(list(series.steps)[-ROW:], new, strict=True) if each > 0)
    text = f"{series.key} rose in {sum(each > 0 for each in new)} of the last {ROW} reports, since step {begun}"
    return SKIPPED.about(series, begun, text, (0.0, 0.0))


def _judge_load(series: Series, run: RunState) -> Finding | None:
    """Judge the difference between the ranks with the most and the fewest tokens against their mean."""
    means = [each for each in run.of_role("load_mean", series.rank) if len(each.values) >= ROW]
    recent = _recent(series)
    if not means or len(recent) < ROW or min(recent) < UNEVEN_SHARE * median(_recent(means[0])):
        return None
    share = median(recent) / median(_recent(means[0]))
    text = f"{series.key} is {share:.0%} of {means[0].key} since step {series.steps[-ROW]}"
    return UNEVEN.about(series, series.steps[-ROW], text, (0.0, UNEVEN_SHARE * median(_recent(means[0]))))


def _judge_length(series: Series, run: RunState) -> Finding | None:
    """Judge a lasting jump of the length of answers; that it grows slowly is usual."""
    values = list(series.values)
    if not run.reinforcement or len(values) < LENGTH_VALUES + LENGTH_BEFORE or not series.positive:
        return None
    before, after = values[-LENGTH_VALUES - LENGTH_BEFORE : -LENGTH_VALUES], values[-LENGTH_VALUES:]
    begun = series.steps[-LENGTH_VALUES]
    longer, shorter = min(after) > LENGTH_TIMES * max(before), LENGTH_TIMES * max(after) < min(before)
    if not (longer or shorter) or run.restaged(series.steps[-LENGTH_VALUES - 2], series.step):
        return None
    text = f"{series.key} went from {number(median(before))} to {number(median(after))} at step {begun}"
    return LENGTH.about(series, begun, text, (min(before), max(before)))


def _judge_gc(series: Series, run: RunState) -> Finding | None:
    """Judge the time that the garbage collector took since the sample before, against the steps between them."""
    steps, values = list(series.steps)[-5:], list(series.values)[-5:]
    if len(values) < 5 or not run.usual_step or steps[-1] <= steps[0]:
        return None
    share = sum(values[1:]) / 1e3 / (run.usual_step * (steps[-1] - steps[0]))
    if share < GC_SHARE:
        return None
    text = f"the garbage collector has taken {share:.0%} of the time since step {steps[0]}"
    return GC.about(series, steps[0], text, (0.0, GC_SHARE), value=share)


def _judge_mfu(series: Series, run: RunState) -> Finding | None:
    """Judge the utilization of the model's arithmetic once the first steps are over."""
    if "mfu" not in series.key.lower() or len(series.middles) < 12:
        return None
    whole = 100.0 if series.highest > 1.0 else 1.0
    level = median(series.middles[-8:])
    if not 0 < level < MFU * whole or max(series.middles[-8:]) >= MFU * whole:
        return None
    text = f"{series.key} has been {number(level)}, {level / whole:.1%} of what the GPUs can compute"
    return LOW_MFU.about(series, series.firsts[-8], text, (MFU * whole, whole))


def _judge_drift(series: Series, run: RunState) -> Finding | None:
    """Judge a KL to a reference model, which grows in a healthy training too, but slows down."""
    middles = series.middles
    if len(middles) < 24:
        return None
    quarter = len(middles) // 4
    was, half, now = (median(middles[at : at + 3]) for at in (quarter, 2 * quarter, len(middles) - 3))
    if was <= 0 or now < max(DRIFTED * was, DRIFT_FLOOR) or now - half < half - was or trend(middles[quarter:]) < 0.8:
        return None
    text = f"{series.key} has grown from {number(was)} to {number(now)} and does not slow down"
    return DRIFT.about(series, series.firsts[quarter], text, (0.0, DRIFTED * was))


LowMfu = judged_once("LowMfu", LOW_MFU, ("throughput",), _judge_mfu)
KlDrift = judged_once("KlDrift", DRIFT, ("reference_kl",), _judge_drift)
UpdateRatio = judged_once("UpdateRatio", UPDATE_RATIO, ("update_ratio",), _judge_update)
NormGrowth = judged_once("NormGrowth", NORM, ("param_norm",), _judge_norm)
AlwaysClipped = judged_once("AlwaysClipped", CLIPPED, ("grad_norm",), _judge_clipping)
SkippedSteps = judged_once("SkippedSteps", SKIPPED, ("skipped",), _judge_skipped, each="value")
UnevenLoad = judged_once("UnevenLoad", UNEVEN, ("imbalance",), _judge_load)
LengthShift = judged_once("LengthShift", LENGTH, ("length",), _judge_length, each="value")
GcPauses = judged_once("GcPauses", GC, ("gc_pause",), _judge_gc, each="value")
