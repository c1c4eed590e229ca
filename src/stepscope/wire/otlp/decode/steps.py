"""The step of a record, taken out of its attributes."""

from stepscope.model.names import ATTR_STEP
from stepscope.model.records import Attrs
from stepscope.wire.otlp.names import ATTR_STEP_NAME, PLAIN_STEPS, STEPS

_AXES = {alias: None if alias in PLAIN_STEPS else alias for alias in STEPS}
_INT64 = 2**63


def take_step(attrs: Attrs) -> tuple[int | None, str | None]:
    """Remove the strongest step among the attributes and return it with the name of its axis.

    Only a whole number is a step; anything else under such a name stays an attribute.
    """
    step = attrs.get(ATTR_STEP)
    if type(step) is int:
        del attrs[ATTR_STEP]
        return step, _name(attrs) if attrs else None
    for alias, axis in _AXES.items():
        if alias not in attrs:
            continue
        value = attrs[alias]
        if type(value) is float and value.is_integer() and abs(value) < _INT64:
            value = int(value)
        if type(value) is int:
            del attrs[alias]
            return value, axis or _name(attrs)
    return None, None


def _name(attrs: Attrs) -> str | None:
    """Remove the axis that stands beside a plain step."""
    name = attrs.pop(ATTR_STEP_NAME, None)
    return name if type(name) is str and name else None
