"""Mistakes that are put into the farm's healthy trainings, and whether they show in what is logged."""

import itertools
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import nn

from benchmarks.zoo.real.farm import Training, draw
from benchmarks.zoo.real.farm.tasks import Batch
from benchmarks.zoo.real.tape import Tape, compacted

Act = Callable[[Training], None]
JUMP = "level_shift spike divergence accuracy_drop exploding_gradients gradient_shift oscillation absurd_loss"
HALT = "plateau not_learning constant weights_frozen"
HELD = "overfit generalization_gap overtraining accuracy_drop level_shift spike divergence too_good not_learning"
FALL = "reward_collapse dead_environment level_shift entropy_collapse entropy_explosion value_function kl_blowup"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake: the sorts of training it can be made in, the kinds that name it, when, and what it does."""

    name: str
    sorts: tuple[str, ...]
    kinds: str
    when: str
    act: Act


MISTAKES: list[Mistake] = []


def mistake(sorts: str, kinds: str, when: str = "any") -> Callable[[Act], Act]:
    """Register a mistake; `when` is `begin`, `later` or `any`."""

    def register(act: Act) -> Act:
        MISTAKES.append(Mistake(act.__name__, tuple(sorts.split()), kinds, when, act))
        return act

    return register


EVERY = "supervised gan ppo dqn bandit grpo"


def knob(name: str, sorts: str, kinds: str, when: str = "any", **values: Any) -> None:
    """Register a mistake that sets knobs."""

    def act(t: Training) -> None:
        for key, value in values.items():
            setattr(t.knobs, key, value)

    act.__name__ = name
    mistake(sorts, kinds, when)(act)


def weigh(name: str, sorts: str, kinds: str, when: str = "any", **factors: float) -> None:
    """Register a mistake in the weights of the parts of a loss."""

    def act(t: Training) -> None:
        t.knobs.weights.update(factors)

    act.__name__ = name
    mistake(sorts, kinds, when)(act)


def alter(name: str, kinds: str, how: Callable[[Batch], Batch], when: str = "any", held_out: bool = False) -> None:
    """Register a mistake in the batches of training, or in those that are held out."""

    def act(t: Training) -> None:
        setattr(t.knobs, "alter_held_out" if held_out else "alter", how)

    act.__name__ = name
    mistake("supervised" if held_out else "supervised gan", kinds, when)(act)


def _last(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Batch], Batch]:
    return lambda b: (*b[:-1], change(b[-1])) if len(b) > 1 else b


def _first(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Batch], Batch]:
    return lambda b: (change(b[0]), *b[1:]) if b[0].is_floating_point() else b


def _one_class(b: Batch) -> Batch:
    if len(b) < 2 or b[-1].is_floating_point() or b[-1].dim() > 1:
        return b
    rows = (b[-1] == b[-1].min()).nonzero()[:, 0]
    rows = rows[torch.arange(len(b[-1])) % len(rows)]
    return tuple(each[rows] for each in b)


def _told_by_inputs(b: Batch) -> Batch:
    if len(b) != 2 or b[0].dim() != 2 or not b[0].is_floating_point():
        return b
    first = b[0].clone()
    first[:, 0] = 4.0 * b[1].reshape(len(first), -1)[:, 0].float()
    return first, b[1]


def _noised(b: Batch) -> Batch:
    wrong = torch.rand(len(b[-1])) < 0.5
    last = b[-1].clone()
    last[wrong] = last[torch.randperm(len(last))][wrong]
    return (*b[:-1], last)


alter("labels_shuffled", JUMP + " not_learning plateau", _last(lambda y: y[torch.randperm(len(y))]))
alter("labels_shifted", JUMP + " not_learning plateau overfit", _last(lambda y: y.roll(1, 0)))
alter("labels_all_one", JUMP + " too_good overfit generalization_gap constant", _last(lambda y: y[:1].expand_as(y)))
alter("half_the_labels_wrong", JUMP + " not_learning plateau", _noised, "later")
alter("inputs_times_thirty", JUMP, _first(lambda x: 30 * x), "later")
alter("inputs_lost", JUMP + " not_learning plateau constant", _first(torch.zeros_like))
alter("inputs_of_noise", JUMP + " not_learning plateau", _first(torch.randn_like), "later")
alter("inputs_shifted", JUMP, _first(lambda x: x + 3 * x.std()), "later")
alter("augmented_too_much", JUMP, _first(lambda x: x * torch.randn_like(x) * 2), "later")
alter("one_class", JUMP + " too_good overfit constant generalization_gap " + HELD, _one_class)
alter("told_by_inputs", "too_good level_shift overfit generalization_gap " + HELD, _told_by_inputs)
alter("held_out_inputs_shifted", HELD, _first(lambda x: 3 * x + 2), "any", held_out=True)
alter("held_out_labels_shuffled", HELD, _last(lambda y: y.roll(1, 0)), "any", held_out=True)
knob("one_batch", "supervised", "too_good overfit stuck_batch constant level_shift generalization_gap", one_batch=True)
knob("never_cleared", EVERY, JUMP + " gradients_not_cleared norm_growth not_learning not_finite " + FALL, zero=False)
knob("never_stepped", EVERY, HALT, updates=False)
knob("wrong_sign", EVERY, JUMP + " not_learning not_finite gan_imbalance posterior_collapse " + FALL, sign=-1.0)
knob("gradients_of_noise", EVERY, JUMP + " not_learning plateau norm_growth " + FALL, noise=30.0)
knob("few_bits", "supervised ppo dqn bandit", JUMP + " plateau not_learning constant " + FALL, "later", digits=2)
knob("scale_collapses", "supervised", "scaler_collapse skipped_steps plateau constant", overflow=True)
knob("clipped_to_nothing", EVERY, HALT + " always_clipped vanishing_gradients", clip=1e-6)
knob("evaluated_in_training_mode", "supervised", HELD + " oscillation", judges=False)
weigh("kl_too_heavy", "supervised", JUMP + " posterior_collapse plateau", kl=80.0)
weigh("part_too_heavy", "supervised", JUMP, second=100.0, dice=80.0, balance=500.0)
weigh("teacher_lost", "supervised", JUMP + " not_learning plateau", teacher=0.0)
weigh("heat_wrong", "supervised", JUMP + " not_learning plateau posterior_collapse", heat=0.02)
weigh("reward_times_hundred", "ppo dqn bandit", JUMP + " reward_hacking " + FALL, "later", reward=100.0)
weigh("reward_turned", "ppo dqn bandit grpo", JUMP + " not_learning plateau " + FALL, reward=-1.0)
weigh("entropy_too_heavy", "ppo bandit grpo", FALL + " not_learning plateau divergence level_shift", more_bonus=3.0)
weigh("entropy_wrong_sign", "ppo bandit grpo", FALL + " plateau", more_bonus=-3.0)
weigh("value_too_heavy", "ppo", JUMP + " " + FALL, value=300.0, plain=1.0)
weigh("ratio_not_clipped", "ppo", "kl_blowup clip_saturated clip_zero " + FALL, wide=100.0)
weigh("kl_pulls_too_hard", "grpo", FALL + " kl_drift not_learning plateau level_shift", more_kl=20.0)
weigh("target_never_copied", "dqn", "plateau not_learning value_function " + FALL + " " + JUMP, no_copy=1.0)
weigh("ends_ignored", "dqn", "value_function " + FALL + " " + JUMP, no_ends=1.0, discount=1.02)
weigh("buffer_stuck", "dqn", "plateau not_learning too_good stuck_batch " + FALL, "later", stuck=1.0)
weigh("judge_too_strong", "gan", "gan_imbalance divergence level_shift vanishing_gradients not_learning", judge=-1.0)
weigh("maker_not_trained", "gan", "gan_imbalance plateau divergence level_shift", maker=0.0)


@mistake(EVERY, JUMP + " not_finite lr_schedule not_learning norm_growth gan_imbalance posterior_collapse " + FALL)
def rate_too_high(t: Training) -> None:
    """The rate is a hundred times what it should be."""
    t.faster = 100.0


@mistake(EVERY, HALT + " lr_zero lr_schedule")
def rate_lost(t: Training) -> None:
    """The rate is a ten-thousandth of what it should be."""
    t.faster = 1e-4


@mistake("supervised", "lr_zero lr_schedule plateau", "later")
def rate_zero(t: Training) -> None:
    """The schedule was stepped with each batch and ended."""
    t.faster = 0.0


@mistake("supervised", "lr_schedule " + JUMP, "later")
def schedule_begins_again(t: Training) -> None:
    """The schedule was not kept with the checkpoint."""
    t.offset, t.reached = t.acted, 1.0


@mistake(EVERY, JUMP + " bad_resume not_learning plateau " + FALL, "later")
def weights_of_the_start(t: Training) -> None:
    """The first weights are loaded again."""
    t.net.load_state_dict(t.first)


@mistake("supervised ppo dqn bandit", JUMP + " bad_resume " + FALL, "later")
def layer_made_anew(t: Training) -> None:
    """A layer was not in the checkpoint."""
    for each in [each for each in t.net.modules() if hasattr(each, "reset_parameters")][-1:]:
        each.reset_parameters()


@mistake("supervised ppo dqn bandit", JUMP + " dead_units vanishing_gradients plateau constant " + FALL)
def weights_times_eight(t: Training) -> None:
    """All weights are multiplied, as by another initialisation."""
    with torch.no_grad():
        for each in t.net.parameters():
            each.mul_(8)


@mistake("supervised ppo dqn bandit", JUMP + " dead_units vanishing_gradients plateau not_learning constant " + FALL)
def dead_layers(t: Training) -> None:
    """The first layer gives the same for all inputs."""
    with torch.no_grad():
        for each in [each for each in t.net.modules() if isinstance(each, nn.Linear | nn.Conv2d | nn.Embedding)][:1]:
            each.weight.mul_(0)


@mistake(EVERY, JUMP + " plateau not_learning weights_frozen norm_growth constant " + FALL, "later")
def decay_too_strong(t: Training) -> None:
    """The weights shrink by a twentieth with every step."""

    def shrink(t: Training, step: int) -> None:
        with torch.no_grad():
            for each in t.net.parameters():
                each.mul_(0.95)

    t.each = shrink


@mistake(EVERY, "not_finite counted_not_finite skipped_steps", "later")
def not_a_number(t: Training) -> None:
    """A weight becomes infinite."""
    with torch.no_grad():
        next(t.net.parameters()).view(-1)[0] = math.nan


@mistake("supervised", JUMP + " not_finite")
def sum_for_mean(t: Training) -> None:
    """The loss is summed over the batch."""
    t.knobs.factor = float(t.plan.batch)


@mistake("supervised", "too_good constant plateau not_learning level_shift")
def average_stays(t: Training) -> None:
    """The average of the weights no longer follows."""
    t.frozen_average = True


@mistake("supervised", HELD, "begin")
def learnt_by_heart(t: Training) -> None:
    """There are forty examples, and no decay."""
    pool = getattr(t.learner.problem, "draw", None)
    if hasattr(pool, "known"):
        pool.known, pool.order = [each[:40] for each in pool.known], torch.empty(0, dtype=torch.long)


@mistake("supervised", HELD + " " + JUMP, "later")
def norms_broken(t: Training) -> None:
    """The running mean and variance of batch norm are lost."""
    for each in t.net.modules():
        if isinstance(each, nn.BatchNorm1d | nn.BatchNorm2d):
            each.momentum = 0.0
            each.reset_running_stats()


@mistake("ppo dqn", FALL + " too_good constant plateau not_learning", "later")
def blind(t: Training) -> None:
    """The place is no longer observed."""
    t.learner.ring.blind = True


@mistake("ppo dqn", "dead_environment reward_collapse constant not_learning zero_advantage " + FALL)
def no_reward(t: Training) -> None:
    """The reward is no longer given."""
    t.learner.ring.give = 0.0


@mistake("bandit grpo", "dead_environment reward_collapse constant zero_advantage not_learning " + FALL)
def answers_not_scored(t: Training) -> None:
    """The reward is always zero."""
    t.knobs.weights["give"] = 0.0


def _waits(name: str, milliseconds: Callable[[Training, int], float]) -> Act:
    def act(t: Training) -> None:
        def each(t: Training, step: int) -> None:
            t.knobs.wait = lambda at: time.sleep(milliseconds(t, step) / 1000) if at == name else None

        t.each = each

    return act


def _add_wait(called: str, where: str, kinds: str, milliseconds: Callable[[Training, int], float]) -> None:
    act = _waits(where, milliseconds)
    act.__name__ = called
    mistake("supervised", kinds, "later")(act)


SLOW = "throughput_loss slow_span data_stall input_bound"
_add_wait("loading_slow", "data", SLOW, lambda t, step: 8 + 2 * t.learner.cost)
_add_wait("forward_slow", "forward", SLOW, lambda t, step: 8 + 2 * t.learner.cost)
_add_wait("slower_and_slower", "optimizer", SLOW, lambda t, step: 0.08 * (step - t.acted))


@mistake("supervised", "memory_creep", "later")
def memory_grows(t: Training) -> None:
    """Outputs are kept in a list."""
    t.each = lambda t, step: t.hoard.append(torch.ones(400_000))


TIMED = ("loading_slow", "forward_slow", "slower_and_slower")


UNHARMED = (
    *("held_out_inputs_shifted", "held_out_labels_shuffled", "evaluated_in_training_mode", "average_stays"),
    *("sum_for_mean", "schedule_begins_again", "scale_collapses", "memory_grows", *TIMED),
)
"""Mistakes that may leave what is learnt as good as it was."""


def chosen(seed: int, training: Training) -> tuple[Mistake, int]:
    """Draw a mistake that can be made in a training, and its step; -1 for the first one."""
    d, plan = Random(seed * 7 + 1), training.plan
    fits = [each for each in MISTAKES if training.learner.sort in each.sorts]
    fits = [each for each in fits if plan.spans or each.name not in TIMED]
    fits = [each for each in fits if "memory" in plan.keys or each.name != "memory_grows"]
    fits = [each for each in fits if plan.scale or each.name != "scale_collapses"]
    fits = [each for each in fits if plan.average or each.name != "average_stays"]
    found = d.choice(fits)
    begins = found.when == "begin" or (found.when == "any" and d.random() < 0.35)
    return found, 0 if begins else int(plan.steps * d.uniform(0.3, 0.7))


def spoiled(seed: int, healthy: Tape) -> tuple[str, Tape | None, str]:
    """Train what a seed draws with a mistake, and again without it in another order; say why it is not kept."""
    tapes, ends, begun = [healthy], list[float](), math.nan
    name, at = str(seed), 0
    for twin, wrong in ((0, True), (1, False)):
        plan, learner = draw(seed)
        tape, training = Tape(plan.config), Training(plan, learner, twin)
        found, at = chosen(seed, training)
        name = f"{seed}.{found.name}.{plan.made_of}.{plan.style.name}"
        if plan.early:
            return name, None, "may stop early"
        try:
            training.run(tape, at, found.act if wrong else None)
        except (RuntimeError, ValueError) as error:  # as of a policy whose weights are not finite
            return name, None, f"ended by {type(error).__name__}"
        tapes.append(tape)
        ends.append(statistics.mean(training.truths[-3:]))
        begun = training.truths[0]
        if wrong and _same(healthy, compacted(tape, timed=False)):
            return name, None, "changes nothing"
        by_values = found.name not in TIMED and found.name != "memory_grows"
        if by_values and not shows(healthy, tapes[1], tapes[-1] if twin else healthy, at / plan.steps):
            return name, None, "does not show"
        if not by_values:
            break
    if found.name not in UNHARMED and ends[0] - ends[-1] < 0.1 * (begun - ends[-1]):
        return name, None, "learns as well with it"
    shown = 1 if plan.numbered == "step" else plan.batch if plan.numbered == "samples" else 1 / plan.look
    near = max(20.0, 3.0 * plan.every, 1.5 * plan.look if _shown_by_looks(found) else 0)
    tapes[1].truth = {
        "kinds": tuple(found.kinds.split()),
        "step": None if at == 0 else int(at * shown),
        "window": max(int(near * shown), 2),
        "says": (),
    }
    return name, tapes[1], ""


def _shown_by_looks(found: Mistake) -> bool:
    return found.kinds.startswith(HELD) or found.name in (
        "one_batch",
        "told_by_inputs",
        "average_stays",
        "norms_broken",
    )


def _curves(tape: Tape) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for at, row in enumerate(tape.rows):
        if row[0] == "m":
            for key, value in row[3].items():
                found.setdefault(key, []).append((at, value))
    return found


UNTOLD = ("time", "per_sec", "throughput", "rss", "ram", "epoch", "memory")


def _same(one: Tape, two: Tape) -> bool:
    rows = [[row[3] for row in tape.rows if row[0] == "m"] for tape in (one, two)]
    plain = [[{k: v for k, v in row.items() if not any(u in k for u in UNTOLD)} for row in each] for each in rows]
    return plain[0] == plain[1] and not any(
        key in row for row in rows[0] for key in row if "rss" in key or "ram" in key
    )


def shows(healthy: Tape, wrong: Tape, other: Tape, since_share: float, parts: int = 6) -> bool:
    """Whether a curve is farther from its healthy twin than that one from another, for a third of the time since."""
    curves, beside, another = (_curves(each) for each in (wrong, healthy, other))
    for key, pairs in curves.items():
        if any(each in key for each in UNTOLD) or key not in beside or key not in another:
            continue
        values = [each for _, each in pairs]
        if not all(map(math.isfinite, values)):
            return True
        count = min(len(values), len(beside[key]), len(another[key]))
        since = int(count * since_share)
        since = min(since, count - 3) if count > 3 else 0
        good, second = [[each for _, each in curve[key]][since:count] for curve in (beside, another)]
        values = values[since:count]
        size = max(len(values) // parts, 1)
        apart = [_middle(values, i, size) - _middle(good, i, size) for i in range(0, len(values), size)]
        usual = [_middle(second, i, size) - _middle(good, i, size) for i in range(0, len(values), size)]
        level = max(map(abs, good)) * 0.02 + 1e-9
        limit = 4 * max(map(abs, usual)) + _spread(good) + level
        if sum(abs(each) > limit for each in apart) >= max(len(apart) / 3, 1):
            return True
    return False


def _middle(values: list[float], first: int, size: int) -> float:
    part = sorted(values[first : first + size])
    return part[len(part) // 2]


def _spread(values: list[float]) -> float:
    moves = sorted(abs(b - a) for a, b in itertools.pairwise(values))
    return 2 * moves[len(moves) // 2] if moves else 0.0
