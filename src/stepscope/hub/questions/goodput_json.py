"""Goodput as JSON: what the time of a run was good for."""

from typing import Any

from stepscope.model.goodput import Goodput


def goodput(run: str, found: Goodput) -> dict[str, Any]:
    """The shares and rates of a run; seconds to the microsecond."""
    return {
        "run": run,
        "goodput": found.goodput,
        "seconds": round(found.seconds, 6),
        "shares": found.shares,
        "buckets": {bucket: round(spent, 6) for bucket, spent in found.buckets.items()},
        "phases": {name: round(spent, 6) for name, spent in sorted(found.phases.items())},
        "steps": found.steps,
        "steps_per_second": found.steps_per_second,
        "tokens": found.tokens,
        "tokens_per_second": found.tokens_per_second,
        "tokens_counted": found.tokens_counted,
    }
