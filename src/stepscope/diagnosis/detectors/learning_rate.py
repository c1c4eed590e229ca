"""Wrong learning rates: zero in the middle of a run, above their peak, or not following their schedule."""

import itertools
import re
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, Values, leading
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

ZERO = Kind(
    "lr_zero",
    "ERROR",
    "the schedule ended early, or was given the wrong number of steps",
    "Check the total steps of the learning rate schedule.",
    explains=("plateau", "constant", "vanishing_gradients", "clip_zero"),
    lasts=True,
)
SCHEDULE = Kind(
    "lr_schedule",
    "ERROR",
    "the schedule does not do what the configuration says",
    "Compare the schedule with the configuration.",
    explains=(
        *("spike", "divergence", "level_shift", "exploding_gradients", "plateau", "accuracy_drop", "kl_blowup"),
        *("entropy_collapse", "clip_saturated", "clip_zero", "value_function", "dead_environment"),
    ),
    lasts=True,
    rules_out="a side effect: the recorded learning rate itself changed",
)
RESTARTS = ("restart", "cycl", "sgdr", "triang", "onecycle")
"""Names of schedules that raise the rate again."""
WARM_UP = re.compile(r"(linear|constant)[ _-]*(with[ _-]*)?warm[ _-]*up|warm[ _-]*up[ _-]*(linear|steps)")
"""A warm-up in the name of a schedule says nothing about what follows it."""
RISEN, DECAYED, ENDED = 1.3, 0.85, 0.16
"""A restarted rate rises so many times after it had fallen to the second share of its peak, but not to the third..."""
SLIGHTLY, TO_PEAK = 1.15, 0.97
"""... or this many times, to this share of its peak."""
PAST = 0.02
"""A rate below this share of its peak was at the end of its schedule."""
RISE_VALUES, FALLS, CYCLED = 40, 9, 2.0
MOVING = ("cosine", "linear", "polynomial", "decay", "onecycle")
"""Names of schedules that change the rate."""
JUMP = 1.6
"""A rate that rises by less from one value to the next has not jumped."""
WARM = ("warmup_steps", "warmup", "num_warmup_steps", "warmup_iters")
LATE, PASSED, RISING = 1.5, 2.0, 10
"""So many times the configured warm-up later a rate that is so many times the configured one still rises."""
FLAT_VALUES = 30
ZERO_VALUES = 5
OVER_VALUES, OVER = 20, 0.2
"""A rate of 0 at the end of a schedule is none of the end of the run after so many values and this share of it."""
TWICE = (
    "the schedule is stepped more often than it was made for (twice in a step, on each micro-batch, once for each "
    "process), or it was made for fewer steps"
)
ONCE = "Call the scheduler once for each optimizer step, or make it for as many steps as it is called."
PARTS, NEAR, AT_ITS_END = range(2, 65), 0.02, 0.12
"""A schedule is over after one of so many parts of the run, so closely, at this share of its peak or below."""
GRADUAL = 6
"""So many values before its end fell from each to the next."""
SHORTER = ("lr_decay_iters", "lr_decay_steps", "decay_steps", "lr_decay_samples", "decay_iters", "t_max", "num_cycles")
"""Settings by which a schedule is shorter than the run."""
NOTHING, GONE, FADING = 1e-6, 0.15, 0.05
"""A rate below the first share of its peak is as good as 0, if it is so for the second share of the run, the end of a
schedule being shorter. It begins where it is below the third."""
TOTAL = ("total_steps", "max_steps", "steps", "num_steps", "train_steps", "max_iters")
"""Settings that say how many steps there will be."""
EARLY = 0.85
"""A schedule that has come to zero before this share of them has ended early."""
LOST, STAYED = 150.0, 10
"""No schedule divides a rate by so much from one value to the next, and then goes on for so many values."""
PEAKED = 20
"""After so many values a rate that no longer rises has been at its peak."""
CONFIGURED = ("lr", "learning_rate", "max_lr", "peak_lr", "base_lr")


class LearningRate:
    """Watches one learning rate."""

    KINDS: ClassVar[tuple[Kind, ...]] = (ZERO, SCHEDULE)
    ROLES: ClassVar[tuple[str, ...]] = ("lr",)
    HELD_OUT: ClassVar[bool | None] = None
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_before_drop", "_compared", "_dropped", "_highest", "_reported", "_run", "_series", "_zero_since")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run = series, run
        self._reported: set[str] = set()
        self._highest = 0.0
        """The highest rate before the one that is judged."""
        self._zero_since: int | None = None
        self._before_drop, self._dropped = 0.0, 0
        """The rate before it was divided by more than a schedule does, and the step since then; 0 if it was not."""
        self._compared = False

    def usual(self, ahead: Values) -> int:
        """Count the next rates that do not rise, are not nearly 0, and at which a flat schedule is not looked for."""
        series, values = self._series, ahead.values
        if series.count < 2 or self._before_drop or not self._compared:
            return 0
        steady = values.count(series.value)
        least = NOTHING * self._highest
        if steady < len(values):
            pairs = itertools.pairwise((series.value, *values))
            return leading(0 < least <= b < a <= LOST * b for a, b in pairs)
        if series.value == 0 or series.value < least:
            return 0
        return steady if self._schedule() is None else FLAT_VALUES - 1 - series.same % FLAT_VALUES

    def learn(self, taken: Values) -> None:
        """Take rates that are not 0."""
        self._zero_since = None

    def take(self) -> Finding | None:
        """Evaluate a learning rate."""
        series = self._series
        value = series.value
        if value == 0:
            return self._zero()
        self._zero_since = None
        found = self._lost() or self._far_below()
        if found is not None:
            self._highest = max(self._highest, value)
        elif value > series.before:
            found = self._too_high() or self._rises_on() or self._restarted() or self._past_its_end()
            self._highest = max(self._highest, value)
        elif series.count == 1:
            self._highest = value
        elif value < NOTHING * self._highest and "lr_zero" not in self._reported:
            found = self._gone()
        elif series.same >= FLAT_VALUES and not series.same % FLAT_VALUES:
            found = self._flat()
        if found is None or found.kind in self._reported:
            return None
        self._reported.add(found.kind)
        return found

    def _zero(self) -> Finding | None:
        series = self._series
        if series.before > 0:
            gradual = series.before < 0.02 * series.highest
            self._zero_since = None if gradual and not self._is_early() else series.step
        if self._zero_since is None and self._goes_on():
            return self._ended()
        if self._zero_since is None or series.same < ZERO_VALUES or "lr_zero" in self._reported or series.highest <= 0:
            return None
        self._reported.add("lr_zero")
        usual = next((value for value in reversed(series.values) if value > 0), series.highest)
        text = f"{series.key} became 0 at step {self._zero_since}: the model no longer learns"
        return ZERO.about(series, self._zero_since, text, (usual / 2, usual))

    def _goes_on(self) -> bool:
        """Return whether a rate has been 0 for a good part of the run after a schedule that ended there."""
        series = self._series
        if "lr_zero" in self._reported or series.highest <= 0 or series.same < OVER_VALUES:
            return False
        if series.step - series.same_since < OVER * (series.same_since - series.first_step):
            return False
        return all(each.value == 0 for each in self._run.of_role("lr", series.rank))

    def _ended(self) -> Finding:
        """Return the finding of a training that goes on after its schedule."""
        series, run = self._series, self._run
        self._reported.add("lr_zero")
        begun, total = series.same_since, run.setting(*TOTAL)
        of = f" of {total:g}" if total is not None and total > begun else ""
        text = (
            f"{series.key} came to 0 at step {begun}{of}, the end of its schedule, and the training has gone on for "
            f"{series.step - begun} steps since: the model no longer learns"
        )
        return ZERO.about(series, begun, text, (0.0, series.highest), cause=TWICE, advice=ONCE)

    def _gone(self) -> Finding | None:
        """Detect a rate that decays to next to nothing long before the end."""
        series, limit = self._series, NOTHING * self._highest
        small = [step for step, value in zip(series.steps, series.values, strict=True) if value < limit]
        if len(small) < ZERO_VALUES or (series.step - small[0]) < GONE * (series.step - series.first_step):
            return None
        peak = self._highest
        begun = next(step for step, value in zip(series.steps, series.values, strict=True) if value < FADING * peak)
        text = f"{series.key} has been below {number(limit)} since step {small[0]}, its peak was {number(peak)}"
        return ZERO.about(
            series,
            begun,
            f"{text}: the model no longer learns",
            (limit, peak),
            cause="the schedule decays too often (once a step instead of once an epoch) or by too large a factor",
        )

    def _lost(self) -> Finding | None:
        """Detect a rate that was divided by more than any schedule does, and has stayed there."""
        series, value, before = self._series, self._series.value, self._series.before
        if value * LOST < before:
            self._before_drop, self._dropped = before, series.step
        if not self._before_drop:
            return None
        if value * LOST > self._before_drop:
            self._before_drop = 0.0
            return None
        if sum(step >= self._dropped for step in series.steps) < STAYED:
            return None
        was, self._before_drop = self._before_drop, 0.0
        text = f"{series.key} fell from {number(was)} to {number(value)} at step {self._dropped}, at once"
        return SCHEDULE.about(
            series,
            self._dropped,
            f"{text}: hardly anything is learnt since",
            (was / LOST, was),
            severity="WARN",
            weight=was / value,
        )

    def _far_below(self) -> Finding | None:
        """Detect a rate that has never been near the configured one."""
        series, run = self._series, self._run
        if self._compared or series.count < PEAKED or series.value > series.before:
            return None
        self._compared = True
        configured = run.setting(*CONFIGURED)
        highest = max((each.highest for each in run.of_role("lr", series.rank)), default=0.0)
        if configured is None or not 0 < highest * LOST < configured:
            return None
        text = f"{series.key} has been at most {number(highest)} in {series.count} values; configured is"
        return SCHEDULE.about(
            series,
            series.first_step,
            f"{text} {number(configured)}",
            (configured / LOST, configured),
            severity="WARN",
            cause="the rate is scaled down twice, or the schedule multiplies it by a factor that was meant as a rate",
            advice="Compare the rate of the optimizer before the first step with the settings.",
            weight=configured / highest,
        )

    def _is_early(self) -> bool:
        """Return whether a schedule that came to its end did so long before the configured last step."""
        total = self._run.setting(*TOTAL)
        return total is not None and self._series.step < EARLY * total

    def _too_high(self) -> Finding | None:
        """Detect a jump above the configured rate, or above the peak after the rate had stopped rising."""
        series, value, before = self._series, self._series.value, self._series.before
        configured = self._run.setting(*CONFIGURED)
        over = configured is not None and value > 2.0 * configured >= before and "param" not in series.key
        over = over and value > JUMP * before  # a warm-up may pass it gradually
        past = list(series.values)[-11:-1] if value > 2.5 * self._highest else []
        jumped = len(past) >= 10 and before > 0 and not all(b > a for a, b in itertools.pairwise(past))
        if not (jumped or over):
            return None
        high = max(configured or 0.0, self._highest)
        text = f"{series.key} jumped to {number(value)} at step {series.step}, expected at most {number(high)}"
        return SCHEDULE.about(series, series.step, text, (0.0, high), weight=value / max(high, 1e-30))

    def _rises_on(self) -> Finding | None:
        """Detect a warm-up that goes on after its configured end, past the configured rate."""
        series, run = self._series, self._run
        warm = run.setting(*WARM) or 0.0
        peaks = run.setting("lr", "learning_rate", "base_lr"), run.setting("max_lr", "peak_lr")
        peak = max((each for each in peaks if each is not None), default=0.0)
        if warm < 2 or series.step < LATE * warm or not series.value > PASSED * peak > 0 or series.count < RISING:
            return None
        if not all(b > a for a, b in itertools.pairwise(list(series.values)[-RISING:])):
            return None
        text = f"{series.key} is {number(series.value)} at step {series.step} and rises on: configured are "
        text += f"{number(peak)} and a warm-up of {warm:g} steps"
        return SCHEDULE.about(
            series,
            int(warm),
            text,
            (0.0, peak),
            cause="the warm-up does not end: its factor is not limited to 1, or it is stepped without the schedule",
            advice="Limit the factor of the warm-up to 1; look at the rate that the schedule gives for the last step.",
            weight=series.value / peak,
        )

    def _restarted(self) -> Finding | None:
        """Detect a schedule that begins again in its middle: the rate rises much faster than it fell."""
        series, run = self._series, self._run
        values, steps = list(series.values), list(series.steps)
        low = min(range(max(len(values) - RISE_VALUES, 0), len(values)), key=values.__getitem__)
        before, value, peak = max(values[max(low - 2, 0) : low + 1]), series.value, self._highest
        least = SLIGHTLY if value > TO_PEAK * peak else RISEN
        if low < 12 or value < least * before or not ENDED * peak < before < DECAYED * peak or value > 1.1 * peak:
            return None
        words = run.words("schedule", "lr_schedule", "scheduler", "lr_scheduler", "lr_scheduler_type")
        falling = values[max(low - 60, 0) : max(low - 1, 1)]
        falling = falling[falling.index(max(falling)) :]  # without a warm-up
        if any(word in words for word in RESTARTS) or any(b > a for a, b in itertools.pairwise(falling)):
            return None
        if len(falling) < FALLS or _is_cyclic(values[: low - 1]):
            return None
        fell = max(falling[-min(12, len(falling))] / falling[-1], 1.0) ** (1 / 11)
        rose = (value / values[low]) ** (1 / max(len(values) - 1 - low, 1))
        if rose - 1 < 5 * (fell - 1):
            return None
        least, begun = before, steps[low if values[low] < 0.9 * before else min(low + 1, len(steps) - 1)]
        text = (
            f"{series.key} rises again at step {begun}, from {number(least)} to {number(value)}, in the middle of its "
            f"schedule: the schedule was restarted"
        )
        return SCHEDULE.about(
            series,
            begun,
            text,
            (0.0, least),
            severity="WARN",
            cause="the scheduler was made anew or its state was not restored, so that it began again",
            advice="Save and load the scheduler's state; set its last step when training is resumed.",
            weight=value / least,
        )

    def _past_its_end(self) -> Finding | None:
        """Detect a rate that was at its end long before the configured last step, and rises again from there."""
        series, run, total = self._series, self._run, self._run.setting(*TOTAL)
        if total is None or series.lowest > PAST * self._highest or series.value < ENDED * self._highest:
            return None
        low = min(range(len(series.values)), key=series.values.__getitem__)
        begun, fallen = series.steps[low], list(itertools.islice(series.values, low))
        words = run.words("schedule", "lr_schedule", "scheduler", "lr_scheduler", "lr_scheduler_type")
        if len(fallen) < 12 or begun > EARLY * total or any(word in words for word in RESTARTS):
            return None
        if any(b > a for a, b in itertools.pairwise(fallen)):
            return None
        text = f"{series.key} was at its end at step {begun} of {total:g} and rises again, to {number(series.value)}"
        return SCHEDULE.about(
            series,
            begun,
            text,
            (0.0, series.lowest),
            cause=TWICE,
            advice=ONCE,
        )

    def _flat(self) -> Finding | None:
        """Detect a rate that stays constant although the configured schedule is not."""
        series, schedule = self._series, self._schedule()
        if schedule is None:
            return None
        words, total, warm = schedule
        share = (series.step - max(warm, series.first_step)) / max(total - warm, 1.0)
        begun = int(max(series.same_since, warm))
        flat = (series.step - begun) / max(total - warm, 1.0)
        if series.value <= AT_ITS_END * series.highest:
            return self._over_early(begun, total)
        if share < 0.25 or flat < 0.2 or series.step <= warm:
            return None
        text = f"{series.key} has stayed at {number(series.value)} since step {begun}, though the schedule is {words}"
        return SCHEDULE.about(
            series,
            begun,
            text,
            (0.0, series.value),
            severity="WARN",
            cause="the scheduler is not stepped",
            advice="Call the scheduler once for each optimizer step.",
        )

    def _over_early(self, begun: int, total: float) -> Finding | None:
        """Detect a schedule that reached its floor after half, a third, ... of the configured steps."""
        series, run = self._series, self._run
        parts = total / max(begun, 1)
        if begun < FLAT_VALUES or series.first_step > begun // 4 or round(parts) not in PARTS:
            return None
        if abs(parts / round(parts) - 1) > NEAR or run.setting(*SHORTER) is not None:
            return None
        before = [value for step, value in zip(series.steps, series.values, strict=True) if step <= begun][-GRADUAL:]
        if len(before) < GRADUAL or not all(b < a for a, b in itertools.pairwise(before)):
            return None  # a step of the schedule, or not known any more
        text = (
            f"{series.key} is at the end of its schedule, {number(series.value)}, since step {begun}: after one part "
            f"in {round(parts)} of the {total:g} steps"
        )
        return SCHEDULE.about(
            series, begun, text, (series.value, series.highest), severity="WARN", cause=TWICE, advice=ONCE
        )

    def _schedule(self) -> tuple[str, float, float] | None:
        """Return the configured schedule in words, its steps and those of its warm-up; None where it does not move."""
        run = self._run
        words = run.words("schedule", "lr_schedule", "scheduler", "lr_scheduler", "lr_scheduler_type")
        words = WARM_UP.sub("", words)
        total = run.setting(*TOTAL)
        warm = run.setting(*WARM) or 0.0
        moves = any(word in words for word in MOVING) and "constant" not in words and "stable" not in words
        return (words, total, warm) if moves and total is not None and total > warm else None


def _is_cyclic(values: list[float]) -> bool:
    """Return whether a rate that was high has come back from a low one before."""
    high, peak = False, max(values)
    for a, b in itertools.pairwise(values):
        high = high or a > 0.5 * peak
        if high and b > CYCLED * a:
            return True
    return False
