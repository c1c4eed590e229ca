"""What JSON can spell and MessagePack cannot: integers beyond 64 bits and halves of surrogate pairs, as text."""

from typing import Any

from msgspec import Struct, structs

from stepscope.model.records import Metric

_LEAST, _MOST = -(2**63), 2**64


def packable(value: Struct) -> Any:
    """Copy a record so that it can be packed: texts, attributes and bodies, not times and steps."""
    changed = {name: _field(value, name) for name in value.__struct_fields__}
    return structs.replace(value, **changed)


def _field(value: Struct, name: str) -> Any:
    found = getattr(value, name)
    if isinstance(value, Metric) and name == "values":
        return {_text(key): _number(each) for key, each in found.items()}
    return found if type(found) is int and name != "body" else _nested(found)


def _nested(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Struct):
        return packable(value)
    if isinstance(value, dict):
        return {_nested(key): _nested(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_nested(inner) for inner in value)
    return str(value) if type(value) is int and not _LEAST <= value < _MOST else value


def _number(value: Any) -> Any:
    if type(value) is not int or _LEAST <= value < _MOST:
        return _nested(value)
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _text(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
