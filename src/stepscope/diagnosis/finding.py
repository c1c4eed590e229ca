"""A finding: what went wrong, where, since when, what was expected, the likely cause and what to do about it."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["WARN", "ERROR", "FATAL"]
SEVERITIES: tuple[Severity, ...] = ("FATAL", "ERROR", "WARN")
"""The worst first."""
KINDS = (
    *("crash", "dead_rank", "hang", "error", "alert"),
    *("not_finite", "spike", "divergence", "level_shift", "plateau", "not_learning", "constant"),
    *("vanishing_gradients", "exploding_gradients", "lr_zero", "lr_schedule", "scaler_collapse"),
    *("accuracy_drop", "overfit", "bad_resume"),
    *("kl_blowup", "entropy_collapse", "clip_saturated", "clip_zero", "value_function", "reward_hacking"),
    *("dead_environment", "data_stall", "slow_span", "periodic_stall", "straggler", "intermittent_straggler"),
    *("slow_link", "checkpoint_growth", "throughput_loss", "gpu_idle", "desync", "config_differs", "code_differs"),
    *("clock_skew", "memory_creep", "gpu_memory_creep", "disk_filling", "retry_storm", "log_burst", "new_error"),
    *("duplicate_steps", "missing_steps", "lost_records"),
)
"""All that a finding can be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that went wrong. A newer finding with the same `identity` replaces the older one."""

    kind: str
    severity: Severity
    text: str
    step: int | None = None
    """Where it began, or for a single event where it was."""
    last: int | None = None
    """The last step it was seen at."""
    ranks: tuple[int, ...] = ()
    key: str | None = None
    also: tuple[str, ...] = ()
    """Other metrics that it showed in."""
    span: str | None = None
    value: float | None = None
    expected: tuple[float, float] | None = None
    """The band the value was expected in."""
    cause: str = ""
    advice: str = ""
    symptoms: tuple[str, ...] = ()
    """Other findings that this one explains, in words."""
    time: int = 0
    """When it was noticed: the time of the record that decided it, in ns."""
    attempt: int = 1
    weight: float = 0.0
    """How far out it is; orders findings of one kind."""

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells it from other findings of the run."""
        return self.kind, self.key, self.span, self.ranks, self.step, self.attempt


def withdrawn(kind: str, key: str, rank: int, step: int, attempt: int = 1) -> Finding:
    """Take back a finding: what looked like it turned out to be something else."""
    return Finding(kind, "WARN", "", step=step, ranks=(rank,), key=key, attempt=attempt, weight=-1.0)


def number(value: float) -> str:
    """Spell a value in a sentence."""
    return f"{value:.4g}"


def seconds(value: float) -> str:
    """Spell a duration in a sentence."""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min" if value < 7200 else f"{value / 3600:.3g} h"


def on_ranks(ranks: tuple[int, ...], everyone: int) -> str:
    """Name the ranks in a sentence; nothing where all or the only one are meant."""
    if everyone <= 1 or not ranks:
        return ""
    if len(ranks) >= everyone:
        return " on every rank"
    if len(ranks) == 1:
        return f" on rank {ranks[0]}"
    named = ", ".join(str(rank) for rank in ranks[:4])
    return f" on ranks {named}" + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
