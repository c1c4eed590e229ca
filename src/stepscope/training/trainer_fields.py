"""The fields of a trainer's event: category, step, numbers, and their labels."""

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from stepscope.extend import Refused, number_of, step_number, text_of
from stepscope.model import metric_labels, names
from stepscope.model.names import STEP_FIELDS as STEP_FIELDS
from stepscope.model.records import ExponentialHistogram, Histogram, Summary


class Category(StrEnum):
    """A category; its value is the prefix of its metrics' keys, without the slash."""

    TRAINER = "trainer"
    ACTOR = "actor"
    EVALUATOR = "evaluator"
    MISC = "misc"


_KNOWN = frozenset(Category)


def known(word: Any) -> Category | None:
    """The category of a name or alias (TRAIN, ACT, EVAL) in any case; None if unknown."""
    if not isinstance(word, str):
        return None
    prefix = names.CATEGORIES.get(word.strip().strip("/").lower())
    return Category(prefix) if prefix in _KNOWN else None


def normalize(word: Any) -> Category:
    """The category of a name; MISC if unknown."""
    return known(word) or Category.MISC


class Fields(NamedTuple):
    """The sorted fields of an event; `axis` is the field that the step was read from."""

    step: int | None
    axis: str | None
    numbers: dict[str, Any]


def sort(given: Mapping[str, Any]) -> Fields:
    """Sort fields. The step must be an integer; a float in a step field, or a second step field, is a metric."""
    step, axis = _step(given)
    numbers = {text_of(key): value for key, value in given.items() if key != axis and is_number(value)}
    return Fields(step, axis, numbers)


def _step(given: Mapping[str, Any]) -> tuple[int | None, str | None]:
    for name in STEP_FIELDS:
        value = given.get(name)
        if value is None or isinstance(value, bool):
            continue
        try:
            return step_number(value), name
        except Refused:
            continue
    return None, None


def is_number(value: Any) -> bool:
    """Return whether a field is exported as a metric: numbers and scalar tensors are; booleans and strings are not."""
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    try:
        if "bool" in str(getattr(value, "dtype", "")):
            return False
        number_of(value)
    except Exception:  # not a number, or a user's object raised
        return False
    return True


class MetricRegistry:
    """Display labels of metrics; they never change a metric's key."""

    def __init__(self, labels: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        self.labels: dict[str, str] = dict(metric_labels.LABELS)
        for name in metric_labels.VARIABLES:
            self.labels.update(metric_labels.parse_labels(env.get(name, "")))
        self._set_labels: dict[str, str] = {}
        for key, label in (labels or {}).items():
            self.register(key, label)

    def register(self, key: str, label: str) -> None:
        """Set the label of a metric; an empty label is ignored."""
        if key and label:
            self.labels[text_of(key)] = self._set_labels[text_of(key)] = text_of(label)

    def configure(self, labels: Mapping[str, str]) -> None:
        """Add the labels of a config: they override environment variables, and labels set in code override them."""
        self.labels.update({text_of(key): text_of(label) for key, label in labels.items()})
        self.labels.update(self._set_labels)

    def label(self, key: str) -> str:
        """The display name of a metric: its label, else its key as capitalised words."""
        return metric_labels.label(key, self.labels)

    def line(self, category: Any, numbers: Mapping[str, Any]) -> str:
        """Format the numbers of an event as one line: `TRAINER - Grad norm: 2.300000 | Critic loss: 0.500000`.

        A value that is not a number is shown as text. Waits for values on a device.
        """
        parts = [f"{self.label(text_of(key))}: {_shown(value)}" for key, value in numbers.items()]
        return f"{normalize(category).name} - {' | '.join(parts) or 'No metrics'}"


def _shown(value: Any) -> str:
    if isinstance(value, (Histogram, ExponentialHistogram, Summary)):
        return metric_labels.number(value)
    try:
        number = number_of(value)
    except Exception:  # not a number, or a user's object raised
        return text_of(value)
    return metric_labels.number(number) if isinstance(number, (int, float)) else text_of(value)
