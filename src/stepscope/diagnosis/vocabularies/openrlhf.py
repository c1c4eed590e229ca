"""OpenRLHF."""

from stepscope.diagnosis.vocabulary import Vocabulary

OPENRLHF = Vocabulary(
    "openrlhf",
    signs=frozenset(("train/actor_loss", "train/response_length", "train/ppo_clip_ratio", "train/total_length")),
    own={
        "rare_clip_fraction": ("train/vf_clip_ratio",),
        "truncation": ("train/truncated", "truncated"),
        "reference_kl": ("train/kl", "train/kl_loss"),
        "mismatch_kl": ("train/vllm_kl",),
    },
)
