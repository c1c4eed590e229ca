"""Quantities with a published healthy range: update ratios, attention logits, clipping, caches, failed rollouts."""

from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
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
)
ROW = 20
LARGE_UPDATE, SMALL_UPDATE = 0.1, 1e-7
MAX_LOGIT = 100.0
GROWN = 3.0
CLIPPED_SHARE, CLIP_VALUES = 0.9, 100
FULL, FAILING, WAITED = 0.98, 0.5, 20.0


def _recent(series: Series, count: int = ROW) -> list[float]:
    return list(series.values)[-count:]


def _judge_update(series: Series, run: RunState) -> Finding | None:
    recent = _recent(series)
    if len(recent) < ROW or any(SMALL_UPDATE <= value <= LARGE_UPDATE for value in recent):
        return None
    text = f"{series.key} has been {number(median(recent))} since step {series.steps[-ROW]}, about 0.001 is healthy"
    return UPDATE_RATIO.about(series, series.steps[-ROW], text, (SMALL_UPDATE, LARGE_UPDATE))


def _judge_attention(series: Series, run: RunState) -> Finding | None:
    recent = _recent(series, 5)
    if len(recent) < 5 or min(recent) < MAX_LOGIT:
        return None
    text = f"{series.key} has been above {number(MAX_LOGIT)} since step {series.steps[-5]}: {number(series.value)} now"
    return ATTENTION.about(series, series.steps[-5], text, (0.0, MAX_LOGIT))


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


def _judge_cache(series: Series, run: RunState) -> Finding | None:
    recent = _recent(series)
    full = FULL * (100.0 if series.highest > 1.5 else 1.0)
    if len(recent) < ROW or min(recent) < full:
        return None
    text = f"{series.key} has been {number(median(recent))} since step {series.steps[-ROW]}: the cache is full"
    return SAMPLER.about(series, series.steps[-ROW], text, (0.0, full))


def _judge_failures(series: Series, run: RunState) -> Finding | None:
    recent = _recent(series, 10)
    if len(recent) < 10 or min(recent) < FAILING:
        return None
    text = f"{series.key} has been {number(median(recent))} since step {series.steps[-10]}"
    return FAILED.about(series, series.steps[-10], text, (0.0, FAILING))


def _judge_input(series: Series, run: RunState) -> Finding | None:
    recent = _recent(series)
    if len(recent) < ROW or series.count < 2 * ROW or median(recent) < WAITED:
        return None
    text = f"{series.key} is {number(median(recent))}: that share of each step waits for data"
    return INPUT_BOUND.about(series, series.steps[-ROW], text, (0.0, WAITED))


UpdateRatio = judged_once("UpdateRatio", UPDATE_RATIO, ("update_ratio",), _judge_update)
AttentionLogits = judged_once("AttentionLogits", ATTENTION, ("attention_logit",), _judge_attention, each="value")
NormGrowth = judged_once("NormGrowth", NORM, ("param_norm",), _judge_norm)
AlwaysClipped = judged_once("AlwaysClipped", CLIPPED, ("grad_norm",), _judge_clipping)
SamplerSaturated = judged_once("SamplerSaturated", SAMPLER, ("kv_cache",), _judge_cache)
FailedRollouts = judged_once("FailedRollouts", FAILED, ("failure_share",), _judge_failures, each="value")
InputBound = judged_once("InputBound", INPUT_BOUND, ("data_share",), _judge_input)
