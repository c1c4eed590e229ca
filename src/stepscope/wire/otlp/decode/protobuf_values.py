"""The values of OTLP's protobuf messages."""

from typing import Any

from stepscope.model.records import Attrs
from stepscope.wire.otlp.decode.raw import MOST_PAIRS


def attributes(pairs: Any) -> Attrs:
    """Read key-values; one without a key is left out, one without a value is None."""
    attrs = {}
    for pair in pairs[:MOST_PAIRS]:
        value = pair.value
        # Only one of these is ever set, so the first that is true is the value: cheaper than WhichOneof.
        attrs[pair.key] = (
            value.string_value or value.int_value or value.double_value or value.bool_value or any_value(value)
        )
    attrs.pop("", None)
    return attrs


def any_value(value: Any) -> Any:
    """Read an AnyValue of any kind; None when nothing known is set."""
    kind = value.WhichOneof("value")
    if kind is None or kind == "string_value_strindex":
        return None
    if kind == "array_value":
        return [any_value(inner) for inner in value.array_value.values]
    if kind == "kvlist_value":
        return attributes(value.kvlist_value.values)
    return getattr(value, kind)
