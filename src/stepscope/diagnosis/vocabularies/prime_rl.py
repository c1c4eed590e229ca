"""prime-rl."""

from stepscope.diagnosis.vocabulary import Vocabulary

PRIME_RL = Vocabulary(
    "prime-rl",
    signs=frozenset(("mismatch_kl/all/mean", "time/wait_for_batch", "off_policy/mean", "entropy/all/mean")),
    own={
        "mismatch_kl": ("mismatch_kl/all/mean", "mismatch_kl/mean"),
        "idle_time": ("time/wait_for_batch", "time/wait_for_policy", "time/wait_for_ckpt"),
        "gpu_memory": ("perf/peak_memory",),
        "moe_balance": ("max_vio/mean",),
        "staleness": ("off_policy/mean", "off_policy/max"),
        "equal_groups": ("*/solved_none", "*/solved_all"),
        "failure_share": ("*/has_error/mean",),
        "truncation": ("*/is_truncated/mean",),
        "length": ("*/num_total_tokens/mean", "*/num_output_tokens/mean"),
        "kv_cache": ("*/kv_cache_usage_perc/mean",),
        "queue": ("*/num_requests_waiting/max",),
        "failures": ("*/num_preemptions_total:rate/sum",),
        "nan_count": ("loss/nan_count",),
        "": ("kl_ent_ratio/mean",),
    },
    here={"side_loss": ("loss/mean",), "phase_time": ("time/*",), "step_time": ("time/step",)},
)
