"""What metrics are called on the console: defaults, and what a person says in a variable."""

import os
from collections.abc import Mapping
from typing import Any

from stepscope.extend import number_of, text_of
from stepscope.model import metric_labels
from stepscope.model.records import ExponentialHistogram, Histogram, Summary
from stepscope.training.trainer.categories import normalize


class MetricRegistry:
    """Labels by metric. They change what people read, never a metric's key."""

    def __init__(self, labels: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        self.labels: dict[str, str] = dict(metric_labels.LABELS)
        for name in metric_labels.VARIABLES:
            self.labels.update(metric_labels.parse_labels(env.get(name, "")))
        self._own: dict[str, str] = {}
        for key, label in (labels or {}).items():
            self.register(key, label)

    def register(self, key: str, label: str) -> None:
        """Give a metric its label; an empty one is passed over."""
        if key and label:
            self.labels[text_of(key)] = self._own[text_of(key)] = text_of(label)

    def configure(self, labels: Mapping[str, str]) -> None:
        """Take the labels of a config: they stand above the variables, and below those given in code."""
        self.labels.update({text_of(key): text_of(label) for key, label in labels.items()})
        self.labels.update(self._own)

    def label(self, key: str) -> str:
        """What a metric is called: its label, else its own words with the first letter raised."""
        return metric_labels.label(key, self.labels)

    def line(self, category: Any, numbers: Mapping[str, Any]) -> str:
        """The numbers of one event as one line: `TRAINER - Grad norm: 2.300000 | Critic loss: 0.500000`.

        What is no number is there as its text; one on a device is waited for.
        """
        parts = [f"{self.label(text_of(key))}: {_shown(value)}" for key, value in numbers.items()]
        return f"{normalize(category).name} - {' | '.join(parts) or 'No metrics'}"


def _shown(value: Any) -> str:
    if isinstance(value, (Histogram, ExponentialHistogram, Summary)):
        return metric_labels.number(value)
    try:
        number = number_of(value)
    except Exception:  # Refused, or whatever a foreign object raises when it is read: no number
        return text_of(value)
    return metric_labels.number(number) if isinstance(number, (int, float)) else text_of(value)
