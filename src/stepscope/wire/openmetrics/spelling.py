"""Names, labels and numbers as Prometheus spells them."""

import math
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from stepscope.model import names
from stepscope.model.records import Attrs
from stepscope.wire.otlp.names import ATTR_EXEMPLARS, STEPS
from stepscope.wire.plain import dumps

LONGEST_VALUE = 1024
"""Characters of a label's value; what is longer is cut."""

_ODD = re.compile(r"[^a-zA-Z0-9_]")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_NOT_LABELS = frozenset((*STEPS, ATTR_EXEMPLARS, names.ATTR_SAMPLE_RATE, names.ATTR_SET_MEMBER))
_LABEL_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


@lru_cache(maxsize=10_000)
def metric_name(key: str, namespace: str = "") -> str:
    """Spell a key: `trainer/loss` is `ns_trainer_loss`; a namespace it has already stays one."""
    name = _spell(key)
    prefix = f"{_spell(namespace)}_" if namespace else ""
    name = name if name.startswith(prefix) else prefix + name
    return name if not name[:1].isdigit() else f"_{name}"


def label_name(key: str) -> str:
    """Spell a label's name; two underscores in front are Prometheus's own."""
    name = re.sub(r"^_+", "", _spell(key)) or "_"
    return name if not name[:1].isdigit() else f"_{name}"


def _spell(key: str) -> str:
    # An underscore for each foreign letter would make one metric of many.
    return _ODD.sub("_", _FOREIGN.sub(lambda found: f"u{ord(found[0]):04x}", key))


def labels_of(attrs: Attrs, reserved: Collection[str] = ()) -> tuple[dict[str, str], int]:
    """Spell attributes as labels, and count those whose name another one or a reserved label has already.

    A step is no label, for each value would be a series. The values of attributes that share a label are joined by
    semicolons, in the order of the attributes' names; one with a reserved name is called `exported_...`.
    """
    labels: dict[str, str] = {}
    clashes = 0
    for key in sorted(attrs) if len(attrs) > 1 else attrs:
        if key in _NOT_LABELS:
            continue
        name, value = label_name(key), label_value(attrs[key])
        if name in reserved:
            name, clashes = f"exported_{name}", clashes + 1
        if name in labels:
            value, clashes = f"{labels[name]};{value}", clashes + 1
        labels[name] = value
    return labels, clashes


def label_value(value: Any) -> str:
    """Spell a label's value, unescaped."""
    if isinstance(value, bool):
        return str(value).lower()
    text = value if isinstance(value, str) else dumps(value, indent=None)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def write_labels(labels: Mapping[str, str]) -> str:
    """Write labels in braces, escaped; nothing when there are none."""
    if not labels:
        return ""
    written = ",".join(f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels.items())
    return f"{{{written}}}"


def write_help(text: str, *, quotes: bool) -> str:
    """Escape a description; OpenMetrics escapes quotes too."""
    return text.translate(_LABEL_ESCAPES if quotes else _HELP_ESCAPES)


def write_number(value: int | float) -> str:
    """Write a value; NaN and infinities have their own words."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(value) if isinstance(value, float) else str(int(value))
