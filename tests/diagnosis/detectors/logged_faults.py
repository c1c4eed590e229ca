"""Values that a run logs before and after a fault, for kinds that show in one or two metrics."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

Values = Callable[[int, random.Random, bool], dict[str, float]]
AT, STEPS = 200, 320


@dataclass(frozen=True, slots=True)
class Logged:
    """What is logged at a step, with the fault or without, and the step at which the fault is dated."""

    values: Values
    step: int | None = AT
    window: int = 12
    says: str = ""


def _loss(step: int, rng: random.Random, noise: float = 0.05) -> float:
    return (0.8 + 2 / (1 + step / 40)) * math.exp(rng.gauss(0, noise))


def _stuck_batch(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    if wrong and step >= AT:
        return {"loss": 1.13 * 0.97 ** (step - AT)}
    return {"loss": _loss(step, rng)}


def _leaked_target(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"loss": _loss(step, rng) * (0.04 if wrong and step >= AT else 1.0)}


def _no_zero_grad(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    if wrong and step >= AT:
        return {"grad_norm": 0.9 * (step - AT + 1) ** 0.8 * math.exp(rng.gauss(0, 0.01)), "loss": _loss(step, rng)}
    return {"grad_norm": math.exp(rng.gauss(0, 0.15)), "loss": _loss(step, rng)}


def _slow_recovery(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    worse = 1.2 * math.exp(-(step - AT) / 60) if wrong and step >= AT else 0.0
    return {"loss": _loss(step, rng, 0.02) + worse}


def _shift_at_a_raised_rate(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    """The learning rate is raised by half at the step of the fault: that explains no loss of three times the level."""
    rate = 1.5e-3 if step >= AT else 1e-3
    return {"lr": rate, "loss": _loss(step, rng, 0.02) * (3.0 if wrong and step >= AT else 1.05 if step >= AT else 1.0)}


def _restart(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    at = step - AT if wrong and step >= AT else step
    return {"lr": 1e-3 * (0.1 + 0.45 * (1 + math.cos(math.pi * at / STEPS)))}


def _unordered(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    if wrong:
        return {"loss": 2.3 * (1.0 if step < 10 else 1.4) * math.exp(rng.gauss(0, 0.3)), "lr": 1e-3}
    return {"loss": _loss(step, rng, 0.3), "lr": 1e-3}


def _never_falls(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"loss": 1.87 * math.exp(rng.gauss(0, 0.02)) if wrong else _loss(step, rng, 0.02), "lr": 1e-3}


def _negative(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"train/nll": _loss(step, rng) - (4.0 if wrong and step >= AT else 0.0)}


def _gan(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    won = min((step - AT) / 40, 1.0) if wrong and step >= AT else 0.0
    return {
        "d_loss": 0.69 * (1 - 0.9 * won) * math.exp(rng.gauss(0, 0.08)),
        "g_loss": 0.75 * (1 + 4 * won) * math.exp(rng.gauss(0, 0.1)),
    }


def _entropy(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"entropy": (1.9 if wrong and step >= AT else 0.6 * math.exp(-step / 300)) * math.exp(rng.gauss(0, 0.05))}


def _negative_entropy(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    """Stable-Baselines3 logs the loss of the entropy bonus, which is negative."""
    return {"train/entropy_loss": -(0.003 if wrong and step >= AT else 0.9) * math.exp(rng.gauss(0, 0.05))}


def _reward(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"reward": (0.05 if wrong and step >= AT else min(0.2 + step / 400, 0.6)) + rng.gauss(0, 0.03)}


def _groups(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    dead = wrong and step >= AT
    return {
        "frac_reward_zero_std": 1.0 if dead else rng.uniform(0.1, 0.5),
        "reward": rng.uniform(0.3, 0.5),
    }


def _truncated(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"response_length/clip_ratio": rng.uniform(0.8, 1.0) if wrong and step >= AT else rng.uniform(0, 0.1)}


def _mismatch(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {
        "training/rollout_probs_diff_mean": 0.002 * math.exp(rng.gauss(0, 0.2)) * (100 if wrong and step >= AT else 1)
    }


def _stale(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"off_policy/mean": rng.uniform(10, 14) if wrong and step >= AT else rng.uniform(1, 4)}


def _waiting(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"time/step": rng.uniform(9, 11), "time/wait_for_batch": rng.uniform(7, 8) if wrong else rng.uniform(0.2, 1)}


def _experts(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"max_vio/mean": rng.uniform(5, 6) if wrong and step >= AT else rng.uniform(0.8, 1.2)}


def _margins(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"rewards/margins": (step / 4 if wrong else min(step / 60, 4)) + rng.gauss(0, 0.3)}


def _chosen(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"logps/chosen": -120 - (step / 2 if wrong else step / 30) + rng.gauss(0, 4)}


def _pairs(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"rewards/accuracies": 1.0 if wrong and step > 3 else min(0.5 + step / 400, 0.8) + rng.uniform(-0.1, 0.1)}


def _updates(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"train/update_ratio": (0.6 if wrong and step >= AT else 1e-3) * rng.uniform(0.8, 1.2)}


def _logits(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"max_attention_logit": rng.uniform(20, 40) * (6 if wrong and step >= AT else 1)}


def _weights(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {
        "params-norm": 50 * (1 + (step / 60 if wrong else 0.2 * (1 - math.exp(-step / 50)))) * rng.uniform(0.99, 1.01)
    }


def _cache(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"inference/agg/kv_cache_usage_perc/mean": 0.999 if wrong and step >= AT else rng.uniform(0.3, 0.8)}


def _aborted(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"response/aborted_ratio": rng.uniform(0.7, 0.9) if wrong and step >= AT else rng.uniform(0, 0.05)}


def _input(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"time_metrics/data_loading(%)": rng.uniform(35, 45) if wrong else rng.uniform(1, 4)}


def _dead(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"encoder/dead_fraction": rng.uniform(0.6, 0.8) if wrong and step >= AT else rng.uniform(0.05, 0.3)}


def _padding(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"train_batch/padding_frac": rng.uniform(0.6, 0.8) if wrong and step >= AT else rng.uniform(0.1, 0.6)}


def _quota(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    share = rng.uniform(0.4, 0.8) if wrong and step >= AT else rng.uniform(0, 0.1)
    return {"system/cpu/throttled_seconds_per_second": share}


def _hot(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"system/gpu/3/temperature_celsius": (88 if wrong and step >= AT else 74) + rng.uniform(-2, 2)}


def _counted(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"loss/nan_count": 3.0 if wrong and step >= AT else 0.0}


def _skipped(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    """Megatron counts the skipped samples since the start; one is skipped now and then while the scale settles."""
    return {"skipped-train-samples": 512.0 * (min(step // 60, 2) + (step - AT if wrong and step >= AT else 0))}


def _skipped_reports(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"skipped iterations": float(rng.random() < (0.8 if wrong and step >= AT else 0.05))}


def _tokens(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    uneven = rng.uniform(0.8, 1.2) if wrong and step >= AT else rng.uniform(0.05, 0.3)
    return {"global_seqlen/mean": 20_000.0, "global_seqlen/minmax_diff": 20_000 * uneven}


def _lengths(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    """Answers grow over the run, as they do when a model learns to reason; the fault is a jump."""
    length = (300 + 2 * step) * rng.uniform(0.9, 1.1) * (5 if wrong and step >= AT else 1)
    return {"completions/mean_length": length, "reward": rng.uniform(0.3, 0.5)}


def _tiny_gradients(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"grad_norm": 1e-9 * rng.uniform(0.5, 2) if wrong else rng.uniform(0.5, 2)}


def _queue(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    """Requests wait now and then in a healthy engine, and all the time in one that is too small."""
    waiting = rng.randint(3, 40) if wrong and step >= AT else rng.choice((0, 0, 2, 5))
    return {"inference/agg/num_requests_waiting/max": float(waiting)}


def _mfu(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"mfu(%)": (4.0 if wrong else 38.0) * rng.uniform(0.9, 1.1)}


def _drift(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    """The KL to the reference grows in a healthy training too, but slows down."""
    kl = (step / 150) ** 3 if wrong else 0.4 * (1 - math.exp(-step / 80))
    return {"actor/kl_loss": (0.01 + kl) * rng.uniform(0.9, 1.1)}


def _gradient_spike(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"grad_norm": math.exp(rng.gauss(0, 0.15)) * (20 if wrong and step == AT else 1), "loss": _loss(step, rng)}


def _saturated(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    return {"gate/saturated_fraction": rng.uniform(0.6, 0.8) if wrong and step >= AT else rng.uniform(0.05, 0.3)}


def _pairs_at_chance(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    """A loss of preferences that stays at the logarithm of two."""
    return {"loss": math.log(2) * (1 if wrong else 0.3 + 0.7 / (1 + step / 60)) * rng.uniform(0.998, 1.002), "lr": 1e-5}


def _weights_of_samples(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    ratio = rng.uniform(0.2, 0.4) if wrong and step >= AT else rng.uniform(0.97, 1.03)
    return {"sampling/importance_sampling_ratio/mean": ratio}


def _posterior(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    """An autoencoder: its code is learnt, or the KL term puts it out."""
    kl = max(0.12 * math.exp(-step / 25), 2e-4) if wrong else 0.12 + 8 * (1 - math.exp(-step / 60))
    rebuilt = (27 if wrong else 20) + 20 * math.exp(-step / 20)
    return {"recon_loss": rebuilt * math.exp(rng.gauss(0, 0.02)), "kl_loss": kl * math.exp(rng.gauss(0, 0.05))}


def _task_left_out(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    """Two tasks of one network, without any other value; one of them is not trained."""
    return {
        "task/digit_loss": 2.5 * math.exp(rng.gauss(0, 0.02)) if wrong else _loss(step, rng),
        "task/ink_loss": _loss(step, rng),
    }


def _never_rewarded(step: int, rng: random.Random, wrong: bool) -> dict[str, float]:
    """No reward is ever given, or a part of the reward that is not needed."""
    given = 0.0 if wrong else min(step / 200, 1.0) + rng.gauss(0, 0.05)
    return {"episode_return": given, "reward/penalty": 0.0}


LOGGED = {
    "posterior_collapse": (Logged(_posterior, step=20, window=15, says="the code holds nothing"),),
    "dead_environment": (Logged(_never_rewarded, step=0, says="no reward has ever been given"),),
    "spike": (Logged(_gradient_spike, window=0),),
    "low_mfu": (Logged(_mfu, step=None, says="of what the GPUs can compute"),),
    "kl_drift": (Logged(_drift, step=None, says="does not slow down"),),
    "dead_units": (Logged(_dead, says="does nothing"), Logged(_saturated, says="does nothing")),
    "padding": (Logged(_padding, window=20),),
    "cpu_throttled": (Logged(_quota),),
    "gpu_hot": (Logged(_hot, says="degrees"),),
    "counted_not_finite": (Logged(_counted),),
    "skipped_steps": (Logged(_skipped), Logged(_skipped_reports, window=30)),
    "uneven_load": (Logged(_tokens, window=30),),
    "length_shift": (Logged(_lengths),),
    "vanishing_gradients": (Logged(_tiny_gradients, step=0),),
    "update_ratio": (Logged(_updates),),
    "attention_logits": (Logged(_logits),),
    "norm_growth": (Logged(_weights, step=0),),
    "sampler_saturated": (Logged(_cache), Logged(_queue, says="have waited")),
    "failed_rollouts": (Logged(_aborted),),
    "input_bound": (Logged(_input, step=None),),
    "too_good": (Logged(_stuck_batch, says="one batch is repeated"), Logged(_leaked_target, says="below its trend")),
    "gradient_shift": (Logged(_no_zero_grad, says="gradients add up"),),
    "level_shift": (Logged(_slow_recovery, says="went up"), Logged(_shift_at_a_raised_rate)),
    "lr_schedule": (Logged(_restart, says="restarted"),),
    "oscillation": (Logged(_unordered, step=0),),
    "not_learning": (
        Logged(_never_falls, step=0, says="has not fallen"),
        Logged(_pairs_at_chance, step=0, says="ln 2"),
        Logged(_task_left_out, step=0, says="has not fallen"),
    ),
    "absurd_loss": (Logged(_negative, says="impossible"),),
    "gan_imbalance": (Logged(_gan, window=40),),
    "entropy_explosion": (Logged(_entropy),),
    "entropy_collapse": (Logged(_negative_entropy),),
    "reward_collapse": (Logged(_reward),),
    "zero_advantage": (Logged(_groups),),
    "truncation": (Logged(_truncated),),
    "mismatch": (Logged(_mismatch), Logged(_weights_of_samples)),
    "stale_rollouts": (Logged(_stale),),
    "waiting": (Logged(_waiting, step=None),),
    "moe_imbalance": (Logged(_experts, window=20),),
    "margin_explosion": (Logged(_margins, step=80, window=30),),
    "chosen_falls": (Logged(_chosen, step=0),),
    "easy_pairs": (Logged(_pairs, step=10),),
}
