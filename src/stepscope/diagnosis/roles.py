"""The role of a metric, by its name: a loss is judged differently from a learning rate."""

import re
from dataclasses import dataclass
from functools import lru_cache

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SETTINGS = frozenset(
    ("coef", "coeff", "coefficient", "weight", "target", "beta", "threshold", "limit", "eps", "epsilon")
)
_SPREADS = frozenset(("std", "min", "max", "var", "p95", "p99", "p50", "stderr", "count", "num"))
_HELD_OUT = frozenset(("val", "valid", "validation", "eval", "evaluator", "evaluation", "test", "dev", "heldout"))
_SIDE_LOSSES = frozenset(
    (
        "policy",
        "actor",
        "pg",
        "pi",
        "value",
        "critic",
        "vf",
        "v",
        "q",
        "qf",
        "td",
        "alpha",
        "temperature",
        "entropy",
        "d",
        "g",
        "gen",
        "disc",
        "discriminator",
        "generator",
        "adv",
        "adversarial",
        "aux",
        "auxiliary",
        "surrogate",
        "kl",
        "reward",
        "mpo",
        "baseline",
        "imitation",
        "contrastive",
        "commitment",
        "codebook",
        "gan",
    )
)
_ACCURACIES = frozenset(
    ("acc", "accuracy", "f1", "auc", "auroc", "top1", "top5", "precision", "recall", "map", "iou", "miou")
)
_STAGES = frozenset(
    ("seq_len", "sequence_length", "seqlen", "context_length", "batch_size", "global_batch_size", "difficulty")
)
"""Settings that may change during a run: a change explains what follows."""
_RATES = re.compile(
    r"(per_s(ec(ond)?)?|_per_s$|/s$|throughput|\b(tps|sps|fps|tflops|mfu|wps)\b|tokens_s$|samples_s$|it_s$|items_s$)"
)
_TIMES = re.compile(
    r"\b(step|iter|iteration|batch)[ _](time|duration|seconds|ms)\b|^(time_per_step|step_s|sec_per_step|s_it)$"
)


@dataclass(frozen=True, slots=True)
class Role:
    """What a metric measures, and whether on held-out data."""

    name: str
    held_out: bool = False


UNKNOWN = Role("")


_RECORDED = {
    "torch/update_ratio": Role("update_ratio"),
    "torch/stale_gradient": Role("stale_gradient"),
    "torch/input_checksum": Role("input_checksum"),
    "torch/memory_allocated_bytes": Role("gpu_memory"),
    "torch/alloc_retries": Role("alloc_retries"),
    "torch/weights_checksum": UNKNOWN,
    "torch/gc_pause_ms": UNKNOWN,
}
"""What `stepscope.integrations.torch` records, by its full name."""


@lru_cache(maxsize=16384)
def role_of(key: str) -> Role:
    """Return the role of a metric by its name, or `UNKNOWN`."""
    if key in _RECORDED:
        return _RECORDED[key]
    words = [word.lower() for word in _WORDS.findall(key)]
    if not words:
        return UNKNOWN
    last = [word.lower() for word in _WORDS.findall(key.rsplit("/", 1)[-1])] or words
    held_out = not _HELD_OUT.isdisjoint(words)
    if key.startswith(("system/", "system.")):
        return Role(_resource(key))
    name = _meaning(set(words), set(last), " ".join(last), "_".join(last))
    return Role(name, held_out) if name else UNKNOWN


def _resource(key: str) -> str:
    if key.endswith(("memory/used_bytes", "memory_used_bytes", "process/rss_bytes")):
        return "gpu_memory" if "gpu" in key else "memory"
    if "gpu" in key and ("utilization" in key or key.endswith("util")) and "memory" not in key:
        return "gpu_use"
    if key.endswith(("/thermal_slowdown", "/power_brake")):
        return "gpu_slowdown"
    if key.endswith(("/ecc_uncorrected", "/rows_remap_pending", "/rows_remap_failed")):
        return "gpu_errors"
    if key.endswith("disk/free_bytes"):
        return "disk_free"
    if key.endswith(("limit_bytes", "total_bytes")):
        return "limit"
    return ""


def _meaning(words: set[str], last: set[str], spaced: str, joined: str) -> str:
    """Return the role from the words of the whole key and of its last part."""
    if last & _SETTINGS:
        return ""
    if ("loss" in last and last & {"scale", "scaler", "scaling"}) or joined in ("grad_scale", "scaler_scale", "scale"):
        return "loss_scale"
    if "lr" in last or "learning_rate" in joined or spaced == "learning rate":
        return "lr"
    if any(word.startswith("grad") or word == "gnorm" for word in words) and ({"norm", "gnorm"} & words):
        return "grad_norm"
    if _RATES.search(joined):
        return "throughput"
    if _TIMES.search(spaced) or _TIMES.search(joined):
        return "step_time"
    if last & _SPREADS:
        return ""
    return _training(words, last, joined)


def _training(words: set[str], last: set[str], joined: str) -> str:
    if "clip" in joined and ("frac" in joined or "ratio" in joined) and "grad" not in joined:
        return "clip_fraction"
    if "explained" in last and ("variance" in last or "var" in joined):
        return "explained_variance"
    if "cross_entropy" in joined:
        return "loss"
    if last & {"loss", "losses", "nll", "ce", "perplexity", "ppl", "bpb", "xent"}:
        return "side_loss" if (last | words) & _SIDE_LOSSES - {"value"} or "value" in last else "loss"
    if "kl" in last or "kld" in last:
        return "kl"
    if "entropy" in last:
        return "entropy"
    if last & {"stage", "phase", "curriculum", "epoch"} or joined in _STAGES:
        return "stage"
    if last & {"length", "len", "lengths"}:
        return "length"
    if last & {"reward", "rewards", "rew", "return", "returns", "score"}:
        return "reward"
    if last & _ACCURACIES:
        return "accuracy"
    if last & {"retries", "retry", "timeouts", "errors", "failures"}:
        return "failures"
    return ""
