"""verl."""

from stepscope.diagnosis.vocabulary import Vocabulary

VERL = Vocabulary(
    "verl",
    signs=frozenset(
        ("critic/score/mean", "critic/rewards/mean", "actor/pg_loss", "timing_s/step", "perf/time_per_step")
    ),
    own={
        "entropy": ("actor/entropy_loss",),
        "reference_kl": ("actor/kl_loss", "actor/reward_kl_penalty"),
        "rare_clip_fraction": ("actor/pg_clipfrac_lower", "critic/vf_clipfrac"),
        "return": ("critic/returns/mean",),
        "advantage": ("critic/advantages/mean",),
        "value": ("critic/values/mean", "critic/vpred_mean"),
        "failure_share": ("response/aborted_ratio",),
        "turns": ("num_turns/mean",),
        "tool_calls": ("tool_call_counts/mean",),
        "step_time": ("timing_s/step", "perf/time_per_step"),
        "phase_time": ("timing_s/*", "timing_per_token_ms/*"),
        "tokens": ("perf/total_num_tokens",),
        "gpu_memory": ("perf/max_memory_allocated_gb", "perf/max_memory_reserved_gb"),
        "memory": ("perf/cpu_memory_used_gb",),
        "imbalance": ("global_seqlen/minmax_diff",),
        "load_mean": ("global_seqlen/mean",),
        "mismatch": ("training/rollout_probs_diff_mean", "training/rollout_probs_diff_max"),
        "match_ratio": (
            *("training/rollout_actor_probs_pearson_corr", "rollout_corr/ppl_ratio", "rollout_corr/rollout_is_mean"),
        ),
        "mismatch_kl": ("rollout_corr/kl", "rollout_corr/k3_kl"),
        "ess": ("rollout_corr/rollout_is_eff_sample_size",),
        "masked_share": ("rollout_corr/rollout_rs_masked_fraction",),
        "staleness": ("training/off_policy/trajectory_staleness/mean",),
        "idle_share": ("fully_async/trainer/idle_ratio", "fully_async/rollouter/idle_ratio"),
        "moe_balance": ("rollout/moe/max_vio/*",),
        "": ("rollout_corr/training_ppl", "rollout_corr/rollout_ppl", "rollout_corr/*_log_ppl"),
    },
    here={"side_loss": ("actor/loss",)},
)
