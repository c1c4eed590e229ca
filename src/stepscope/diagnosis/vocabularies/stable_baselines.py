"""Stable-Baselines3."""

from stepscope.diagnosis.vocabulary import Vocabulary

STABLE_BASELINES = Vocabulary(
    "stable-baselines3",
    signs=frozenset(("rollout/ep_rew_mean", "train/policy_gradient_loss")),
    own={
        "reward": ("rollout/ep_rew_mean",),
        "held_out_reward": ("eval/mean_reward",),
        "length": ("rollout/ep_len_mean",),
        "entropy": ("train/entropy_loss",),
        "accuracy": ("rollout/success_rate",),
        "": ("train/ent_coef", "train/n_updates", "time/total_timesteps", "time/iterations", "time/time_elapsed"),
    },
    here={"side_loss": ("train/loss",)},
)
