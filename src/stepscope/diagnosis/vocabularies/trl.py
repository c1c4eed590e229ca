"""TRL: SFT, DPO, GRPO, PPO and reward models."""

from stepscope.diagnosis.vocabulary import Vocabulary

TRL = Vocabulary(
    "trl",
    signs=frozenset(
        (
            *("frac_reward_zero_std", "completions/clipped_ratio", "completions/mean_length", "rewards/margins"),
            *("objective/kl", "objective/rlhf_reward", "policy/approxkl_avg"),
        )
    ),
    own={
        "clip_fraction": ("clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"),
        "zero_advantage": ("frac_reward_zero_std",),
        "reference_kl": ("objective/kl",),
        "mismatch": ("sampling/sampling_logp_difference/mean",),
        "match_ratio": ("sampling/importance_sampling_ratio/mean",),
        "dpo_reward": ("rewards/chosen", "rewards/rejected"),
        "margin": ("rewards/margins",),
        "preference_accuracy": ("rewards/accuracies",),
        "chosen_logps": ("logps/chosen",),
        "logps": ("logps/rejected", "logps/ref_chosen", "logps/ref_rejected"),
        "logits": ("logits/chosen", "logits/rejected"),
        "side_loss": ("loss/policy_avg", "loss/value_avg"),
        "failure_share": ("tools/failure_frequency",),
        "reward": ("objective/rlhf_reward", "objective/scores"),
    },
    here={
        "reference_kl": ("kl",),
        "rare_clip_fraction": ("val/clipfrac_avg",),
        "match_ratio": ("val/ratio",),
        "tokens": ("num_tokens",),
    },
)

TRL_REWARD = Vocabulary(
    "trl_reward",
    signs=frozenset(("margin",)),
    here={"": ("mean_reward", "max_reward", "min_reward")},
)
"""A reward model: what it says of both answers has no zero, so that its mean goes where it likes."""
