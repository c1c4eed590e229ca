"""torchtitan."""

from stepscope.diagnosis.vocabulary import Vocabulary

TORCHTITAN = Vocabulary(
    "torchtitan",
    signs=frozenset(("loss_metrics/global_avg_loss", "time_metrics/end_to_end(s)", "trainer/entropy/mean")),
    own={
        "loss": ("loss_metrics/global_max_loss",),
        "step_time": ("time_metrics/end_to_end(s)",),
        "phase_time": ("time_metrics/data_loading(s)",),
        "data_share": ("time_metrics/data_loading(%)",),
        "gpu_memory": (
            "memory/max_active(GiB)",
            "memory/max_reserved(GiB)",
            "memory/max_active(%)",
            "memory/max_reserved(%)",
        ),
        "failures": ("memory/num_alloc_retries", "memory/num_ooms"),
        "mismatch": ("bit_wise/logprob_diff/mean",),
        "zero_advantage": ("rollout_reward/group_zero_std_frac",),
        "staleness": ("train_batch/policy_age",),
        "padding": ("train_batch/padding_frac",),
    },
)
