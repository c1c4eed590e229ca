"""The fields of one event of a trainer, sorted: the step and its name, and the numbers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from stepscope.extend import Refused, number_of, step_number, text_of
from stepscope.model.names import STEP_FIELDS as STEP_FIELDS


class Fields(NamedTuple):
    """What an event has; `axis` is the field that gave the step."""

    step: int | None
    axis: str | None
    numbers: dict[str, Any]


def sort(given: Mapping[str, Any]) -> Fields:
    """Sort fields. The step must be an integer; a float of that name is a number, as is a weaker step."""
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
    """Tell whether a field is exported as a metric: numbers and scalar tensors are; truth values and texts are not."""
    if isinstance(value, (int, float)):
        return not isinstance(value, bool)
    try:
        if "bool" in str(getattr(value, "dtype", "")):
            return False
        number_of(value)
    except Exception:  # Refused, or whatever a foreign object raises when it is read: no number
        return False
    return True
