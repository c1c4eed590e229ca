"""Roles of metrics, by their names."""

import pytest

from stepscope.diagnosis.roles import Role, role_of

KNOWN = {
    "loss": Role("loss"),
    "trainer/loss": Role("loss"),
    "train/lm_loss": Role("loss"),
    "train_loss": Role("loss"),
    "perplexity": Role("loss"),
    "contrastive_loss": Role("loss"),
    "val_mae": Role("loss", held_out=True),
    "train_error": Role("loss"),
    "http/error": Role(""),
    "bits_per_dim": Role("loss"),
    "wer": Role("loss"),
    "td_error": Role("side_loss"),
    "errD": Role("side_loss"),
    "total_norm": Role("grad_norm"),
    "q_values": Role("value_estimate"),
    "mean_q": Role("value_estimate"),
    "moe/max_load": Role("moe_load"),
    "val_f1_score": Role("accuracy", held_out=True),
    "r2_score": Role("accuracy"),
    "val/mIoU": Role("accuracy", held_out=True),
    "mAP": Role("accuracy"),
    "train/top1": Role("accuracy"),
    "exact_match": Role("accuracy"),
    "success_rate": Role("accuracy"),
    "ndcg@10": Role("accuracy"),
    "psnr": Role("accuracy"),
    "val/loss": Role("loss", held_out=True),
    "eval/cross_entropy": Role("loss", held_out=True),
    "policy_loss": Role("side_loss"),
    "train/value_loss": Role("side_loss"),
    "g_loss": Role("side_loss"),
    "loss_scale": Role("loss_scale"),
    "loss_weight": Role(""),
    "lr": Role("lr"),
    "misc/learning_rate": Role("lr"),
    "global_grad_norm": Role("grad_norm"),
    "grad_norm/layers.3": Role("grad_norm"),
    "approx_kl": Role("kl"),
    "kl_coef": Role(""),
    "target_kl": Role(""),
    "entropy": Role("entropy"),
    "entropy_coef": Role(""),
    "clipfrac": Role("clip_fraction"),
    "clip_fraction": Role("clip_fraction"),
    "explained_variance": Role("explained_variance"),
    "ep_rew_mean": Role("reward"),
    "mean_return": Role("reward"),
    "reward_std": Role(""),
    "response_length": Role("length"),
    "eval/acc": Role("accuracy", held_out=True),
    "tokens_per_second": Role("throughput"),
    "perf/samples_per_sec": Role("throughput"),
    "step_time": Role("step_time"),
    "seq_len": Role("stage"),
    "epoch": Role("stage"),
    "system/memory/used_bytes": Role("memory"),
    "system/gpu/0/memory_used_bytes": Role("gpu_memory"),
    "system/gpu/0/utilization": Role("gpu_use"),
    "system/disk/free_bytes": Role("disk_free"),
    "queue_depth": Role(""),
}


@pytest.mark.parametrize(("key", "role"), KNOWN.items(), ids=KNOWN.keys())
def test_role_by_name(key: str, role: Role) -> None:
    """A metric's name gives its role; coefficients and scales that sound like metrics have none or their own."""
    assert role_of(key) == role
