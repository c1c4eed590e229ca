"""Display labels of metrics: defaults, those set by users, and the format of values beside them."""

import math
from collections.abc import Mapping

from stepscope.model.records import Value

LABELS = {
    "global_grad_norm": "Grad norm",
    "grad_norm": "Grad norm",
    "steps_per_second": "Steps per second",
    "learning_rate": "Learning rate",
    "lr": "Learning rate",
    "critic_loss": "Critic loss",
    "episode_length_mean": "Episode length mean",
    "episode_length_max": "Episode length max",
    "episode_length_min": "Episode length min",
}
"""Labels by key; any other key is shown with spaces for underscores."""
VARIABLES = ("RUST_RL_METRIC_LABELS", "STEPSCOPE_METRIC_LABELS")
"""Variables that hold labels, `key=Label,key=Label`; the last one wins."""


def parse_labels(text: str) -> dict[str, str]:
    """Read `key=Label,key=Label`; parts that are not pairs are skipped."""
    pairs = [part.partition("=") for part in text.split(",")]
    return {key.strip(): name.strip() for key, equals, name in pairs if equals and key.strip() and name.strip()}


def label(key: str, labels: Mapping[str, str]) -> str:
    """Return the label of a key: the one that is set, else the key's own words, capitalised."""
    known = labels.get(key)
    if known is None:
        words = key.replace("_", " ")
        known = words[:1].upper() + words[1:]
    return known


def number(value: Value) -> str:
    """Format a number with six decimals, or with an exponent when it is very small or large."""
    if isinstance(value, (bool, int)):
        return str(int(value))
    if not isinstance(value, float):
        return f"{value.count} values"
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
    return f"{value:.6f}" if 1e-3 <= abs(value) < 1e4 else f"{value:.6e}"
