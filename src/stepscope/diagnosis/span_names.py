"""The traits of a span (step, data loading, checkpoint, ...), inferred from its name."""

import re
from dataclasses import dataclass
from functools import lru_cache

_WAITING = re.compile(r"wait|barrier|all_?reduce|all_?gather|reduce_?scatter|broadcast|collective|grad_?sync|sync")
_SAVING = re.compile(r"checkpoint|save")
_LOADING = re.compile(r"data|load(er|ing)?|fetch|input|batch_prep|tokeni[sz]e")
_RARE = re.compile(r"(?<!ri)eval|valid|checkpoint|save|compile|setup|init|(?<!la)test|warm")


@dataclass(frozen=True, slots=True)
class Traits:
    """The traits of a span."""

    waiting: bool
    """Ranks wait for each other in it: the rank that is long in it is not the late one."""
    saving: bool
    loading: bool
    rare: bool
    """It comes seldom and may take long: an evaluation, a checkpoint, a compilation."""
    step: bool
    """Without a parent, it is a step of the loop."""


@lru_cache(maxsize=4096)
def traits(name: str) -> Traits:
    """Return the traits of a span name."""
    lower = name.lower()
    is_step = "step" in lower or "iteration" in lower or lower.endswith(("update", "batch", "batch_processing"))
    return Traits(
        waiting=bool(_WAITING.search(lower)),
        saving=bool(_SAVING.search(lower)),
        loading=bool(_LOADING.search(lower)),
        rare=bool(_RARE.search(lower)),
        step=is_step,
    )
