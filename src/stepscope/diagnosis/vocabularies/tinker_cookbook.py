"""tinker-cookbook."""

from stepscope.diagnosis.vocabulary import Vocabulary

TINKER_COOKBOOK = Vocabulary(
    "tinker-cookbook",
    signs=frozenset(
        ("env/all/reward/total", "optim/kl_sample_train_v1", "env/all/by_group/frac_mixed", "progress/done_frac")
    ),
    own={
        "length": ("env/all/ac_tokens_per_turn", "env/all/ob_tokens_per_turn"),
        "turns": ("env/all/turns_per_episode",),
        "mixed_groups": ("env/all/by_group/frac_mixed",),
        "equal_groups": ("env/all/by_group/frac_all_bad", "env/all/by_group/frac_all_good"),
        "truncation": ("env/all/stop/max_tokens",),
        "accuracy": ("env/all/correct",),
        "mismatch_kl": ("optim/kl_sample_train_v1", "optim/kl_sample_train_v2"),
        "reference_kl": ("kl_policy_base",),
        "kl": ("kl_pre_post_v1", "kl_pre_post_v2"),
    },
    here={
        "step_time": ("time/total",),
        "phase_time": ("time/*",),
        "margin": ("margin",),
        "dpo_reward": ("chosen_reward", "rejected_reward"),
        "preference_accuracy": ("accuracy",),
    },
)
