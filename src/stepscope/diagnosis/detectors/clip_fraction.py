"""Clip fraction: a fraction of clipped updates that stays very high or at zero."""

from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

SATURATED = Kind(
    "clip_saturated",
    "WARN",
    "updates are larger than the clip range",
    "Increase clip_epsilon or reduce the learning rate.",
)
ZERO = Kind(
    "clip_zero",
    "WARN",
    "updates are too small to matter",
    "Reduce clip_epsilon or raise the learning rate; check that the optimizer still updates the weights.",
)
HIGH, NONE = 0.5, 1e-3
ROW = 20
FROM_START = 60
GOOD = (0.1, 0.3)
OFTEN, FAR = 0.25, 0.05
"""In the first `FROM_START` values so much was clipped, and the KL of an update was so large."""


def judge_high(series: Series, run: RunState) -> Finding | None:
    """Look for a run of very high values."""
    if series.count == FROM_START and (found := _from_start(series, run)) is not None:
        return found
    if series.value <= 0.8 * HIGH or series.count < ROW:
        return None
    recent = list(series.values)[-ROW:]
    if min(recent) <= 0.8 * HIGH or median(recent) <= HIGH:
        return None
    begun = series.steps[-ROW]
    text = f"{series.key} has been around {number(median(recent))} since step {begun}: most updates are clipped"
    return SATURATED.about(series, begun, text, GOOD)


def _from_start(series: Series, run: RunState) -> Finding | None:
    """Detect updates that have always left the policy that was sampled, by the share that is clipped and the KL."""
    level, far = median(series.middles), [each for each in run.of_role("kl", series.rank) if each.middles]
    if level < OFTEN or not far or min(median(each.middles) for each in far) < FAR:
        return None
    text = (
        f"{series.key} has been around {number(level)} from the start, and {far[0].key} around "
        f"{number(median(far[0].middles))}: each update leaves the policy that was sampled"
    )
    return SATURATED.about(series, series.first_step, text, GOOD)


def judge_zero(series: Series, run: RunState) -> Finding | None:
    """Look for a run of zeros."""
    if series.value >= NONE or series.count < ROW or max(list(series.values)[-ROW:]) >= NONE:
        return None
    usual = median(series.middles) if series.middles else 0.0
    if usual > 0.02:
        begun = series.steps[-ROW]
        since = f"since step {begun}, usually {number(usual)}"
    elif series.count >= FROM_START and series.highest < NONE and _several_updates(run):
        begun, since = series.first_step, "from the start"
    else:
        return None
    return ZERO.about(series, begun, f"{series.key} has been 0 {since}: the policy hardly changes", GOOD)


def _several_updates(run: RunState) -> bool:
    """Return whether a batch is used for several updates: with one, the ratio is 1 and nothing can be clipped."""
    return (run.setting("ppo_epochs", "num_ppo_epochs", "n_epochs", "num_iterations", "update_epochs") or 1) > 1


Saturated = judged_once("Saturated", SATURATED, ("clip_fraction",), judge_high, each="value")
NotClipped = judged_once("NotClipped", ZERO, ("clip_fraction",), judge_zero, each="value")
"""Watch one fraction of clipped updates."""
