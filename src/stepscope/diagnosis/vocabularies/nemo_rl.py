"""NeMo-RL."""

from stepscope.diagnosis.vocabulary import Vocabulary

NEMO_RL = Vocabulary(
    "nemo-rl",
    signs=frozenset(("train/token_mult_prob_error", "train/mean_gen_tokens_per_sample", "train/gen_kl_error")),
    own={
        "match_ratio": ("train/token_mult_prob_error", "train/sampling_importance_ratio"),
        "mismatch_kl": ("train/gen_kl_error", "train/policy_kl_error", "train/js_divergence_error"),
        "length": ("train/mean_gen_tokens_per_sample", "train/mean_prompt_length"),
        "truncation": ("train/truncation_rate",),
        "equal_groups": ("train/baseline_reward/pct_0", "train/baseline_reward/pct_1"),
        "step_time": ("timing/train/total_step_time",),
        "phase_time": ("timing/train/*",),
        "reference_kl": ("train/kl_penalty",),
    },
)
