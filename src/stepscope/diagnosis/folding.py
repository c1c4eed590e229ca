"""One cause, one finding: symptoms are folded into the finding that explains them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from stepscope.diagnosis.finding import Finding

EXPLAINS: dict[str, frozenset[str]] = {
    "dead_rank": frozenset(("hang", "data_stall", "slow_span", "missing_steps", "straggler", "new_error")),
    "crash": frozenset(("new_error", "data_stall", "slow_span")),
    "error": frozenset(("new_error",)),
    "hang": frozenset(("data_stall", "slow_span", "gpu_idle")),
    "not_finite": frozenset(
        (
            "spike",
            "divergence",
            "level_shift",
            "constant",
            "exploding_gradients",
            "vanishing_gradients",
            "accuracy_drop",
            "scaler_collapse",
            "kl_blowup",
            "entropy_collapse",
            "plateau",
            "overfit",
            "dead_environment",
            "value_function",
            "new_error",
            "desync",
            "clip_saturated",
            "clip_zero",
            "not_learning",
        )
    ),
    "lr_schedule": frozenset(("spike", "divergence", "level_shift", "exploding_gradients", "plateau", "accuracy_drop")),
    "lr_zero": frozenset(("plateau", "constant", "vanishing_gradients", "clip_zero")),
    "bad_resume": frozenset(
        ("spike", "level_shift", "divergence", "exploding_gradients", "accuracy_drop", "duplicate_steps")
    ),
    "exploding_gradients": frozenset(("spike", "divergence", "level_shift", "accuracy_drop")),
    "vanishing_gradients": frozenset(("plateau", "constant", "clip_zero")),
    "scaler_collapse": frozenset(("plateau", "constant", "not_finite")),
    "divergence": frozenset(("spike", "level_shift", "accuracy_drop", "exploding_gradients", "overfit")),
    "level_shift": frozenset(("spike", "accuracy_drop", "divergence")),
    "spike": frozenset(("spike", "accuracy_drop")),
    "kl_blowup": frozenset(("spike", "clip_saturated", "entropy_collapse", "value_function")),
    "entropy_collapse": frozenset(("kl_blowup", "clip_zero", "dead_environment", "spike")),
    "dead_environment": frozenset(("entropy_collapse", "value_function", "constant", "clip_zero", "spike")),
    "reward_hacking": frozenset(("kl_blowup", "entropy_collapse")),
    "straggler": frozenset(
        (
            "throughput_loss",
            "slow_link",
            "intermittent_straggler",
            "gpu_idle",
            "data_stall",
            "slow_span",
            "periodic_stall",
        )
    ),
    "intermittent_straggler": frozenset(("data_stall", "slow_span", "throughput_loss", "slow_link", "periodic_stall")),
    "slow_link": frozenset(("throughput_loss",)),
    "periodic_stall": frozenset(("data_stall", "slow_span", "gpu_idle", "throughput_loss", "intermittent_straggler")),
    "data_stall": frozenset(("slow_span", "gpu_idle")),
    "throughput_loss": frozenset(("throughput_loss", "gpu_idle")),
    "retry_storm": frozenset(("log_burst", "new_error", "data_stall", "slow_span", "throughput_loss")),
    "log_burst": frozenset(("new_error",)),
    "config_differs": frozenset(("desync", "straggler")),
    "duplicate_steps": frozenset(("missing_steps",)),
    "clock_skew": frozenset(),
}
"""What each kind explains, when it comes at about the same step or after it."""
BEFORE = 3
"""A symptom may be noticed so many steps before its cause began."""
LASTS = frozenset(
    (
        "not_finite",
        "lr_zero",
        "lr_schedule",
        "bad_resume",
        "exploding_gradients",
        "hang",
        "straggler",
        "divergence",
        "level_shift",
        "vanishing_gradients",
        "scaler_collapse",
        "slow_link",
        "config_differs",
        "intermittent_straggler",
        "periodic_stall",
        "throughput_loss",
        "dead_environment",
        "entropy_collapse",
        "reward_hacking",
    )
)
"""Causes that go on: everything they explain after them is theirs."""
NEAR = 8
"""Symptoms of others are within so many steps."""


def fold(findings: Iterable[Finding], hosts: dict[int, str] | None = None) -> list[Finding]:
    """Merge the same finding of several ranks, then fold symptoms into causes; what came first comes first."""
    merged = _slow_hosts(_over_ranks(list(findings)), hosts or {})
    merged.sort(key=_began)
    kept = list(merged)
    for cause in sorted(merged, key=lambda each: (-len(EXPLAINS.get(each.kind, ())), _began(each))):
        if cause not in kept:
            continue
        symptoms = [each for each in kept if each is not cause and _explains(cause, each)]
        if symptoms:
            words = (*cause.symptoms, *(each.text for each in symptoms))
            keys = dict.fromkeys((*cause.also, *(each.key for each in symptoms if each.key and each.key != cause.key)))
            kept = [each for each in kept if each not in symptoms]
            kept[kept.index(cause)] = replace(cause, symptoms=words[:16], also=tuple(keys)[:16])
    return kept


def _began(finding: Finding) -> tuple[float, int]:
    return (finding.step if finding.step is not None else -1, finding.time)


def _explains(cause: Finding, other: Finding) -> bool:
    if other.kind not in EXPLAINS.get(cause.kind, frozenset()):
        return False
    if cause.step is None or other.step is None:
        return True
    if cause.kind == other.kind == "spike" and _leads(other) and not _leads(cause):
        return False
    window = 40 if other.kind in ("throughput_loss", "slow_link") else BEFORE
    if other.step < cause.step - window:
        return False
    return cause.kind in LASTS or other.step <= (cause.last or cause.step) + NEAR


def _leads(finding: Finding) -> bool:
    return finding.severity == "ERROR"


def _over_ranks(findings: Sequence[Finding]) -> list[Finding]:
    """The same kind, key and span at about the same step on several ranks is one finding."""
    merged: list[Finding] = []
    for finding in sorted(findings, key=_began):
        at = next((at for at, each in enumerate(merged) if _alike(each, finding)), None)
        if at is None:
            merged.append(finding)
            continue
        each = merged[at]
        ranks = tuple(sorted({*each.ranks, *finding.ranks}))
        last = max((step for step in (each.last, finding.last) if step is not None), default=None)
        text = finding.text if finding.kind == "periodic_stall" or finding.weight > 1.5 * each.weight else each.text
        kind_text = finding if text is finding.text else each
        merged[at] = replace(
            each,
            ranks=ranks,
            last=last,
            text=text,
            value=kind_text.value,
            symptoms=tuple(dict.fromkeys((*each.symptoms, *finding.symptoms))),
            also=tuple(dict.fromkeys((*each.also, *finding.also))),
            weight=max(each.weight, finding.weight),
        )
    return merged


def _alike(a: Finding, b: Finding) -> bool:
    if (a.kind, a.key, a.span) != (b.kind, b.key, b.span) or a.attempt != b.attempt:
        return False
    if a.kind in ("straggler", "intermittent_straggler", "dead_rank", "clock_skew"):
        return a.ranks == b.ranks
    if a.step is None or b.step is None:
        return True
    return (
        b.step <= (a.last or a.step) + NEAR
        or a.kind in LASTS
        or a.kind in ("periodic_stall", "checkpoint_growth", "memory_creep")
    )


def _slow_hosts(findings: list[Finding], hosts: dict[int, str]) -> list[Finding]:
    """Stragglers that share a machine are one finding of that machine."""
    slow = [each for each in findings if each.kind in ("straggler", "intermittent_straggler")]
    groups: dict[str, list[Finding]] = {}
    for each in slow:
        groups.setdefault(hosts.get(each.ranks[0], ""), []).append(each)
    for host, group in groups.items():
        ranks = tuple(sorted({rank for each in group for rank in each.ranks}))
        if not host or len(ranks) < 2 or len(set(hosts.values())) < 2:
            continue
        head = min(group, key=_began)
        named = ", ".join(map(str, ranks))
        text = f"the ranks of {host} ({named}) are slower than the others since step {head.step}: {head.span}"
        made = replace(
            head,
            kind="straggler",
            ranks=ranks,
            text=text,
            cause="something that these ranks share: the machine, its power, its network",
        )
        findings = [made if each is head else each for each in findings if each is head or each not in group]
    by_rank: dict[tuple[int, ...], Finding] = {}
    result = []
    for each in findings:
        if each.kind == "straggler" and each.ranks in by_rank:
            continue
        if each.kind == "straggler":
            by_rank[each.ranks] = each
        result.append(each)
    return result
