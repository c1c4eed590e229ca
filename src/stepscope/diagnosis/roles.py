"""The role of a metric, by its name: a framework's own table first, then rules that hold for all."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from stepscope.diagnosis.vocabularies import ALL
from stepscope.diagnosis.vocabulary import Vocabulary

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SETTINGS = frozenset(
    ("coef", "coeff", "coefficient", "weight", "target", "beta", "threshold", "limit", "eps", "epsilon")
)
_WEIGHTS = frozenset(("coef", "coeff", "coefficient", "weight", "beta"))
_FOR_UPDATES = frozenset(("adam", "momentum", "decay", "optimizer", "opt"))
"""Settings that weigh a part of a loss, and what they are not then."""
_MEANS = frozenset(("mean", "avg", "average", "total", "pooled", "all", "step"))
"""Statistics at the end of a key that say nothing about what is measured."""
_SPREADS = frozenset(("std", "min", "max", "var", "p10", "p90", "p95", "p99", "p50", "stderr", "count", "num"))
_HELD_OUT = frozenset(("val", "valid", "validation", "eval", "evaluator", "evaluation", "test", "dev", "heldout"))
_PARTS = _MEANS | _HELD_OUT | {"train", "training"}
"""What says in a part of its own, at the end of a key, which data were used: `Loss/train`, `Accuracy/test`."""
_PER = frozenset(("epoch", "iteration", "iter", "batch", "smooth", "smoothed", "ema", "running"))
"""What says there over what it was taken, if a loss or an accuracy stands before it: `loss/epoch`."""
_OF_MANY = re.compile(
    r"^(task|dataloader|loader|fold|domain|client|head|split|dataset|experience|exp|lang|language)[_-]?\d+$",
    re.IGNORECASE,
)
"""What tells, in a part of its own at the end of a key, on which of many it was measured: `acc/task_0`."""
_OF_RANK = re.compile(r"(^|[/_.-])(rank|worker|node|host|device|gpu)[_-]?\d+($|[/_.-])", re.IGNORECASE)
_RANK_PART = re.compile(r"^(rank|worker|node|host|device|gpu)[_-]?\d+$", re.IGNORECASE)
"""What tells, in a part of its own at the end of a key, on which rank a loss was measured: `loss/rank_1`."""
_CHECKSUM = re.compile(r"(^|[/_.-])(param\w*|weights?|model)[/_.-](checksum|hash)($|[/_.-])", re.IGNORECASE)
_DURATIONS = re.compile(r"(^|[/_.-])(time|duration|latency|ms|seconds|secs)($|[/_.(-])", re.IGNORECASE)
"""What tells how long something took on one of several ranks: `step_time_ms/rank_2`."""
_TASKS = frozenset(("task", "task_id", "current_task", "experience", "experience_id"))
_ROUNDS = frozenset(("round", "active_round", "al_round", "cycle", "generation"))
"""What begins anew with other data, where it lasts."""
_OF_OPTIMIZER = re.compile(r"/(param_?)?(group|pg)_?\d+$")
"""A group of parameters that has a value of its own: `lr/group0`."""
_SIDE_LOSSES = frozenset(
    (
        *("policy", "actor", "pg", "pi", "value", "critic", "vf", "v", "q", "qf", "td", "alpha", "temperature"),
        *("entropy", "d", "g", "gen", "disc", "discriminator", "generator", "adv", "adversarial", "aux", "auxiliary"),
        *("surrogate", "kl", "reward", "mpo", "baseline", "imitation", "commitment", "codebook", "gan"),
        *("z", "balancing", "balance", "router", "mtp", "indexer", "draft"),
    )
)
_ACCURACIES = frozenset(
    (
        *("acc", "accuracy", "f1", "auc", "auroc", "top1", "top5", "prec", "precision", "recall", "map", "iou", "miou"),
        *(
            "dice",
            "jaccard",
            "ndcg",
            "mrr",
            "hr",
            "bleu",
            "rouge",
            "chrf",
            "meteor",
            "ssim",
            "psnr",
            "kappa",
            "mcc",
            "r2",
        ),
        *("hits", "ap", "pearson", "spearman"),
    )
)
_QUALITIES = re.compile(
    r"(^|_)(exact_match|(success|win|hit|solve|pass)_rate|m_(io_u|ap)|[fr]_[12]|top_\d+|em|success|pass_at_\d+)(_(score|macro|micro|weighted))?$"
)
"""Accuracies whose names have two words, or are taken for two: `mIoU`, `f1`, `r2`."""
_STAGES = frozenset(
    ("seq_len", "sequence_length", "seqlen", "context_length", "batch_size", "global_batch_size", "difficulty")
)
"""Settings that may change during a run: a change explains what follows."""
_RATES = re.compile(
    r"(per_s(ec(ond)?)?(?=$|_per_)|/s$|throughput|\b(tps|sps|fps|tflops|mfu|wps)\b|(tokens|samples|it|items)_s$)"
)
_TIMES = re.compile(
    r"\b(step|iter|iteration|batch)[ _](time|duration|seconds|ms)\b|^((sec|seconds|time)_per_step|step_s|s_it)$"
)
_ANSWERS = frozenset(
    ("completion", "completions", "response", "responses", "prompt", "prompts", "length", "generation")
)
"""What is cut off when it is too long: a clip ratio of these is no clip fraction of updates."""
_ROUTERS = frozenset(("expert", "experts", "router", "routing", "gate", "gating", "moe"))
"""What shares tokens out: its entropy is none of a policy."""
_EMBEDDINGS = frozenset(
    ("embedding", "embeddings", "embed", "emb", "feature", "features", "representation", "representations", "repr")
)
_SAMPLES = frozenset(("sample", "samples", "fake", "fakes", "generated"))
"""What a generator makes: where they hardly differ it has collapsed."""
_GROUPS = frozenset(("reward", "rewards", "advantage", "advantages", "adv", "group", "groups"))
_SPELLED = (
    *("info_nce", "neg_log_lik", "negative_log_likelihood", "neg_ll", "bits_per_char", "error_rate", "recon"),
    *("reconstruction", "objective", "noise_mse", "eps_mse"),
)
"""Losses that are named by no word of their own."""
_SIZES = frozenset(("b", "bytes", "kb", "kib", "mb", "mib", "gb", "gib"))
_LOSSES = frozenset(
    (
        *(
            "loss",
            "losses",
            "nll",
            "ce",
            "perplexity",
            "ppl",
            "bpb",
            "bpd",
            "xent",
            "rmse",
            "mse",
            "mae",
            "mape",
            "smape",
        ),
        *("logloss", "wer", "cer", "infonce", "bpc", "huber", "hinge"),
    )
)
_ESTIMATES = frozenset(("q", "qs", "qf", "value", "values", "mean", "avg", "average", "max", "estimate", "1", "2"))
_ERRORS = frozenset(("error", "err", "train", "training", "td", "bellman", "recon", "reconstruction", "mean", "avg"))
"""The words of an error that is a loss; others are counted."""


@dataclass(frozen=True, slots=True)
class Role:
    """What a metric measures, and whether on held-out data."""

    name: str
    held_out: bool = False


UNKNOWN = Role("")
_IN_HELD_OUT = "held_out_"
"""Before a role in a vocabulary: the name is of held-out data, though none of its words says so."""


def recognised(keys: Iterable[str]) -> Vocabulary | None:
    """Return the vocabulary of the framework that logs these keys."""
    return next((found for key in keys if (found := _SIGNS.get(key)) is not None), None)


_RECORDED = {
    "torch/update_ratio": Role("update_ratio"),
    "torch/stale_gradient": Role("stale_gradient"),
    "torch/input_checksum": Role("input_checksum"),
    "torch/memory_allocated_bytes": Role("gpu_memory"),
    "torch/alloc_retries": Role("alloc_retries"),
    "torch/weights_checksum": UNKNOWN,
    "torch/gc_pause_ms": Role("gc_pause"),
    "torch/forward_gpu_ms": Role("gpu_time"),
}
"""What `stepscope.integrations.torch` records, by its full name."""


@lru_cache(maxsize=16384)
def role_of(key: str, framework: str = "") -> Role:
    """Return the role of a metric by its name, and the name of the framework that logs it; or `UNKNOWN`."""
    if key in _RECORDED:
        return _RECORDED[key]
    words = [word.lower() for word in _WORDS.findall(key)]
    if not words:
        return UNKNOWN
    if key.startswith(("system/", "system.")):
        return Role(_resource(key))
    held_out = not _HELD_OUT.isdisjoint(words)
    if framework in _HERE and key not in _OWN.exact and (here := _told(_HERE[framework], key)) is not None:
        return Role(here)  # `val/clipfrac_avg` is of the value function: not held-out data
    told = _told(_OWN, key)
    if told is None and held_out and "/" in key:
        told = _told(_OWN, key.split("/", 1)[1])  # `test/env/all/reward/total`
    if told is not None:
        name = told.removeprefix(_IN_HELD_OUT)
        return Role(name, held_out or name != told) if name else UNKNOWN
    last = _last(key) or words
    name = _meaning(set(words), set(last), " ".join(last), "_".join(last), key)
    if name in ("", "step_time") and not held_out and _OF_RANK.search(key) and _DURATIONS.search(key):
        name = "rank_time"
    if not name and _OF_RANK.search(key) and _CHECKSUM.search(key):
        name = "rank_checksum"
    return Role(name, held_out) if name else UNKNOWN


@lru_cache(maxsize=4096)
def is_of_one_task(key: str) -> bool:
    """Return whether a name says on which of several tasks or data sets it was measured."""
    return bool(_OF_MANY.match(key.rsplit("/", 1)[-1]))


@lru_cache(maxsize=4096)
def measure(key: str) -> frozenset[str]:
    """Return the words that say what is measured, without those of the data it is measured on."""
    words = {word.lower() for word in _WORDS.findall(key)}
    return frozenset(words - _HELD_OUT - _MEANS - {"train", "training", "trainer", "running"})


def _last(key: str) -> list[str]:
    """The words of the last part of a key that says what is measured, without a statistic at its end."""
    parts = _OF_OPTIMIZER.sub("", key).split("/")
    while len(parts) > 1:
        words = [word.lower() for word in _WORDS.findall(parts[-1].split("@", 1)[0])]
        counted = _PER.issuperset(words) or _OF_MANY.match(parts[-1]) or _RANK_PART.match(parts[-1])
        beside = counted and _is_measure(parts[-2])
        if words and not _PARTS.issuperset(words) and not beside:
            break
        parts.pop()
    words = [word.lower() for word in _WORDS.findall(parts[-1])]
    while len(words) > 1 and words[-1] in ("mean", "avg", "average"):
        words.pop()
    return words


def _is_measure(part: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(part)]
    return not (_LOSSES | _ACCURACIES).isdisjoint(words) or _QUALITIES.search("_".join(words)) is not None


class _Table:
    """Names by role, for lookup."""

    def __init__(self, tables: Iterable[Mapping[str, tuple[str, ...]]]) -> None:
        self.exact: dict[str, str] = {}
        self.begins: list[tuple[str, str]] = []
        self.ends: list[tuple[str, str]] = []
        for table in tables:
            for role, names in table.items():
                for name in names:
                    self._add(name, role)

    def _add(self, name: str, role: str) -> None:
        if name.endswith("*"):
            self.begins.append((name[:-1], role))
        elif name.startswith("*"):
            self.ends.append((name[1:], role))
        else:
            self.exact[name] = role


def _told(table: _Table, key: str) -> str | None:
    """The role of a key in a table; None when it is not there."""
    found = table.exact.get(key)
    if found is None:
        found = next((role for prefix, role in table.begins if key.startswith(prefix)), None)
    if found is None:
        found = next((role for suffix, role in table.ends if key.endswith(suffix)), None)
    return found


_OWN = _Table(each.own for each in ALL)
_HERE = {each.name: _Table([each.here]) for each in ALL}
_SIGNS = {sign: each for each in ALL for sign in each.signs}


def _resource(key: str) -> str:
    if key.endswith(("memory/used_bytes", "memory_used_bytes", "process/rss_bytes")):
        return "gpu_memory" if "gpu" in key else "memory"
    if "gpu" in key and ("utilization" in key or key.endswith("util")) and "memory" not in key:
        return "gpu_use"
    if key.endswith(("/thermal_slowdown", "/power_brake")):
        return "gpu_slowdown"
    if key.endswith(("/ecc_uncorrected", "/rows_remap_pending", "/rows_remap_failed")):
        return "gpu_errors"
    if "gpu" in key and key.endswith("temperature_celsius"):
        return "gpu_temperature"
    if "gpu" in key and key.endswith("clock_mhz"):
        return "gpu_clock"
    if "gpu" in key and key.endswith("memory_utilization"):
        return "gpu_memory_use"
    if key.endswith("disk/free_bytes"):
        return "disk_free"
    if key.endswith(("limit_bytes", "total_bytes")):
        return "limit"
    return _HOST.get(key.replace(".", "/"), "")


_HOST = {
    "system/cpu/load_1m": "host_load",
    "system/cpu/count": "host_cpus",
    "system/cpu/utilization": "host_cpu_use",
    "system/psi/cpu": "host_pressure",
    "system/psi/io": "host_io_pressure",
    "system/psi/memory": "host_memory_pressure",
    "system/cpu/throttled_seconds_per_second": "host_throttled",
}


def _meaning(words: set[str], last: set[str], spaced: str, joined: str, key: str) -> str:
    """Return the role from the words of the whole key and of the part that says what is measured."""
    if joined in ("exploration_rate", "exploration", "epsilon", "eps_greedy", "exploration_epsilon"):
        return "exploration"
    if last & {"param", "params", "parameter", "weight", "weights", "w"} and "norm" in last:
        return "param_norm"
    if joined.removeprefix("train_").removesuffix("_mean") in _SPELLED:
        return "loss"
    if last & _SETTINGS:
        return "loss_weight" if last & _WEIGHTS and not words & _FOR_UPDATES else ""
    if ("loss" in last and last & {"scale", "scaler", "scaling"}) or joined in (
        "grad_scale",
        "scaler_scale",
        "amp_scale",
        "scale",
    ):
        return "loss_scale"
    if "lr" in last or "learning_rate" in joined or spaced == "learning rate":
        return "lr"
    if last & {"best", "lowest"}:  # a record that is kept, and not measured anew
        return ""
    if joined in ("total_norm", "global_norm"):  # what clipping returns
        return "grad_norm"
    if any(word.startswith("grad") or word == "gnorm" for word in words) and (
        {"norm", "gnorm", "gradnorm"} & words or joined.endswith("_l_2")
    ):
        return "grad_norm"
    if "update" in last and last & {"ratio", "weight"}:
        return "update_ratio"
    if _RATES.search(joined) or "mfu" in words:
        return "throughput"
    if _TIMES.search(spaced) or _TIMES.search(joined) or key in ("time/step", "timing/step", "dt"):
        return "step_time"
    if words & _ROUTERS and last & {"load", "imbalance"} and not last & _LOSSES:
        return "moe_load"
    if words & _EMBEDDINGS and last & {"std", "spread", "variance", "rank"} and not last & _LOSSES:
        return "embedding_spread"
    if words & _SAMPLES and last & {"std", "spread", "variance", "diversity"} and not last & _LOSSES:
        return "sample_spread"
    if words & {"real", "fake"} and last & {"score", "scores"}:
        return ""  # what a discriminator says of them
    if words & _GROUPS and last & {"std", "spread"} and not last & {"zero"}:
        return "reward_spread"
    if _SPREADS & last and "explained" not in last and not last & {"zero"}:
        return ""
    return _policies(words, last, joined) or _training(words, last, joined, key)


def _policies(words: set[str], last: set[str], joined: str) -> str:
    """Roles of reinforcement learning and preference optimisation."""
    if ("trunc" in joined or joined in ("clip_ratio", "clipped_ratio")) and (words & _ANSWERS or "trunc" in joined):
        return "truncation" if not last & {"length", "len"} else "length"
    if "clip" in joined and ("frac" in joined or "ratio" in joined) and "grad" not in joined:
        return "rare_clip_fraction" if last & {"vf", "value", "lower"} else "clip_fraction"
    if "explained" in last and ("variance" in last or "var" in last):
        return "explained_variance"
    if "zero" in last and last & {"std", "advantage", "spread"}:
        return "zero_advantage"
    if "mismatch" in last:
        return "mismatch_kl" if "kl" in last else "mismatch"
    if last & {"staleness", "stale"} or joined in ("policy_age", "off_policy_steps"):
        return "staleness"
    if last & {"margin", "margins"}:
        return "margin"
    if last & {"q", "qs", "qf"} and last <= _ESTIMATES:
        return "value_estimate"
    return ""


def _training(words: set[str], last: set[str], joined: str, key: str) -> str:
    if "cross_entropy" in joined:
        return "loss"
    if last & _LOSSES or (last <= {"policy", "value", "discriminator", "generator"} and "loss" in words):
        return "side_loss" if _is_side(words, last, key) else "loss"
    if last & {"error", "err"} and words - _HELD_OUT <= _ERRORS:
        return "side_loss" if last & {"td", "bellman"} else "loss"
    if joined in ("err_d", "err_g", "bits_per_dim", "neg_elbo", "negative_elbo"):
        return "side_loss" if joined.startswith("err") else "loss"
    if last & _ACCURACIES or _QUALITIES.search(joined):
        return "accuracy"
    if last & {"kl", "kld", "approxkl"}:
        return "reference_kl" if last & {"ref", "reference", "base"} else "kl"
    if "entropy" in last:
        return "router_entropy" if words & _ROUTERS else "" if words & {"attn", "attention"} else "entropy"
    if last & {"stage", "phase", "epoch"} or "curriculum" in words or joined in _STAGES or joined in _TASKS | _ROUNDS:
        return "stage"
    if last & {"length", "len", "lengths"}:
        return "length"
    if last & {"reward", "rewards"} and last & {"chosen", "reject", "rejected"}:
        return "dpo_reward"
    if last & {"reward", "rewards", "rew", "return", "returns", "score"} or {"ep", "ret"} <= last:
        return "reward"
    if last & {"retries", "retry", "timeouts", "errors", "failures"}:
        return "failures"
    if "skipped" in last:
        return "skipped"
    if last & {"dead", "saturated", "dormant"} and last & {"frac", "fraction", "share", "ratio"}:
        return "dead_units"
    if "padding" in last and last & {"frac", "fraction", "share", "ratio"}:
        return "padding"
    if joined in ("tokens", "num_tokens", "tokens_seen", "total_tokens"):
        return "tokens"
    if "nan" in last and last & {"count", "frac", "fraction"}:
        return "nan_count"
    return _memory(words, last)


def _memory(words: set[str], last: set[str]) -> str:
    """The memory that a program reads of itself: `rss_mb`, `ram_used_gb`; a peak only of the GPU's allocator."""
    if not last & {"rss", "memory", "mem", "ram", "vram"} or last & {"free", "available", "bandwidth", "limit"}:
        return ""
    of_allocator = bool(last & {"active", "alloc", "allocated", "reserved"})
    if "peak" in last and not of_allocator:
        return ""
    if not ("rss" in last or last & _SIZES or last & {"used", "usage"} or of_allocator):
        return ""
    return "gpu_memory" if words & {"gpu", "cuda", "vram", "device", "hbm", "peak"} else "memory"


def _is_side(words: set[str], last: set[str], key: str) -> bool:
    if any(part in ("d", "g") for part in key.lower().split("/")):  # `Loss/D/loss`
        return True
    return bool((last | words) & _SIDE_LOSSES - {"value", "z", "d", "g", "v", "q"}) or bool(
        last & {"value", "z", "d", "g", "v", "q"}
    )
