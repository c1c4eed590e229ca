"""What metrics are called on the console: defaults, and what a person says in a variable."""

import os
from collections.abc import Mapping
from typing import Any

from stepscope.model.records import Value
from stepscope.sinks import console
from stepscope.training.trainer.categories import normalize


class MetricRegistry:
    """Labels by metric. They change what people read, never a metric's key."""

    def __init__(self, labels: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        self.labels: dict[str, str] = dict(console.LABELS)
        for name in console.VARIABLES:
            self.labels.update(console.parse_labels(env.get(name, "")))
        self.labels.update({str(key): str(label) for key, label in (labels or {}).items()})

    def register(self, key: str, label: str) -> None:
        """Give a metric its label; an empty one is passed over."""
        if key and label:
            self.labels[str(key)] = str(label)

    def label(self, key: str) -> str:
        """What a metric is called: its label, else its own words with the first letter raised."""
        return console.label(key, self.labels)

    def line(self, category: Any, numbers: Mapping[str, Value]) -> str:
        """The numbers of one event as one line: `TRAINER - Grad norm: 2.300000 | Critic loss: 0.500000`."""
        parts = [f"{self.label(key)}: {console.number(value)}" for key, value in numbers.items()]
        return f"{normalize(category).name} - {' | '.join(parts) or 'No metrics'}"
