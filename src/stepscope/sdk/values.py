"""Convert the values given to `log` to numbers, or give the reason for rejecting them."""

import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from stepscope.model.records import ExponentialHistogram, Histogram, Summary
from stepscope.sdk import tensors
from stepscope.sdk.context import text_of
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.tensors import Number, Refused, plain

if TYPE_CHECKING:
    from stepscope.sdk.media_values.medium import Medium
    from stepscope.sdk.sample_records import Table

DEPTH = 16
"""Depth to which nested dicts are flattened."""
MAX_NESTED = 10_000
"""Nested dicts per call of `log`; bounds self-referencing ones."""

Reader = Callable[[str, Any], "Number | tensors.Held"]
_readers: dict[type, Reader] = {}
_DISTRIBUTIONS = (Histogram, ExponentialHistogram, Summary)


class Captured(Exception):
    """Raised by the readers of media, which are no numbers and are recorded in another way."""

    def __init__(self, media: "list[Medium]") -> None:
        super().__init__("media")
        self.media = media


def read(key: str, value: Any) -> "Number | tensors.Held":
    """Convert a value to a number, or a device tensor to a `Held` that is read later; raise Refused otherwise."""
    return (_readers.get(type(value)) or _reader_for(type(value)))(key, value)


def flatten(
    metrics: Mapping[Any, Any],
    refuse: Callable[[str, str], None],
    take_table: "Callable[[str, Table], None] | None" = None,
) -> "tuple[dict[str, Any], list[tensors.Held], list[tuple[str, Medium]]]":
    """Flatten nested metrics into one dict of numbers, keys joined by `/`; also return the device values among them,
    and the media, which are not in the dict.

    `refuse` is called with key and reason for each value that is neither, `take_table` for each table, if given.
    """
    flat: dict[str, Any] = {}
    media: list[tuple[str, Medium]] = []
    _flatten("", metrics, flat, media, refuse, take_table, DEPTH, [MAX_NESTED])
    held = [value for value in flat.values() if type(value) is tensors.Held]
    if held:
        tensors.freeze(held)
    return flat, held, media


def _flatten(
    prefix: str,
    metrics: Mapping[Any, Any],
    flat: dict[str, Any],
    media: "list[tuple[str, Medium]]",
    refuse: Callable[[str, str], None],
    take_table: "Callable[[str, Table], None] | None",
    depth: int,
    left: list[int],
) -> None:
    for raw, value in metrics.items():
        kind = type(value)
        key = f"{prefix}{_text(raw)}"
        read = _readers.get(kind) or _reader_for(kind)
        try:
            if read is _table and take_table is not None:
                take_table(key, value)
            elif read is not _nested:
                if not key:
                    raise Refused("empty key")
                if key in flat:
                    refuse(key, "given twice")
                flat[key] = read(key, value)
            elif depth == 0:
                refuse(key, "too deep")
            elif left[0] == 0:
                refuse(key, "too many dicts")
            else:
                left[0] -= 1
                _flatten(f"{key}/", value, flat, media, refuse, take_table, depth - 1, left)
        except Captured as found:
            media += [(key, each) for each in found.media]
        except Refused as reason:
            refuse(key, str(reason))
        except BaseException as error:
            pass_on(error)
            refuse(key, f"unreadable {type(error).__name__}")


def _text(key: Any) -> str:
    """Return a key of any type as a string that can be encoded."""
    text = key if type(key) is str else text_of(key)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _nested(key: str, value: Any) -> Number:
    """Marks the type of a mapping, which is flattened instead of read."""
    raise Refused("mapping")


def _table(key: str, value: Any) -> Number:
    """Marks the type of a table, whose rows are records of their own."""
    raise Refused("table")


def _reader_for(kind: type) -> Reader:
    """Choose how to read a type, once per type."""
    samples = sys.modules.get("stepscope.sdk.sample_records")  # who has not imported it has no table
    is_table = samples is not None and issubclass(kind, samples.Table)
    chosen = _readers[kind] = _nested if issubclass(kind, Mapping) else _table if is_table else _choose(kind)
    return chosen


def _choose(kind: type) -> Reader:
    if kind is float or kind is bool:
        return _as_is
    if kind in _DISTRIBUTIONS:
        return _as_int
    if issubclass(kind, int):
        return _integer
    if issubclass(kind, (float, Decimal)) or _is_fraction(kind):
        return _as_float
    if issubclass(kind, (str, bytes, bytearray)):
        return _refuse("string")
    if kind is type(None):
        return _refuse("none")
    if issubclass(kind, complex):
        return _refuse("complex")
    if issubclass(kind, (list, tuple)):
        return _several
    if issubclass(kind, (set, frozenset)):
        return _refuse("vector")
    return _foreign_reader(kind)


def _is_fraction(kind: type) -> bool:
    fractions = sys.modules.get("fractions")  # who has not imported it has no fraction
    return fractions is not None and issubclass(kind, fractions.Fraction)


def _foreign_reader(kind: type) -> Reader:
    """Choose how to read a type of another library, or of media, without importing either."""
    if (medium := _medium()) is not None and issubclass(kind, medium):
        return _capture
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, (numpy.generic, numpy.ndarray)):
        return _array
    by_library = tensors.reader_for(kind)
    if by_library is not None:
        return by_library
    if hasattr(kind, "__index__"):
        return _integer
    if hasattr(kind, "__float__"):
        return _as_float
    return _refuse(f"type {kind.__name__}")


def _medium() -> "type[Medium] | None":
    """The class of media; None when nothing has imported it, so that there are none."""
    found = sys.modules.get("stepscope.sdk.media_values.medium")
    return None if found is None else found.Medium


def is_apart(kind: type) -> bool:
    """Return whether a type that was read before is one of media or a table, which are recorded apart from numbers."""
    return _readers.get(kind) in (_capture, _table)


def _capture(key: str, value: Any) -> Number:
    raise Captured([value])


def _several(key: str, value: Any) -> Number:
    """Take a list of media; any other list is no number."""
    medium = _medium()
    if medium is None or not value or not all(isinstance(each, medium) for each in value):
        raise Refused("vector")
    raise Captured(list(value))


def _refuse(reason: str) -> Reader:
    def refuse(key: str, value: Any) -> Number:
        raise Refused(reason)

    return refuse


def _as_int(key: str, value: Any) -> Any:
    return value


def _as_is(key: str, value: Any) -> Number:
    return value + 0 if value is True or value is False else value


def _as_float(key: str, value: Any) -> Number:
    try:
        return float(value)
    except OverflowError:
        raise Refused("too large") from None


def _integer(key: str, value: Any) -> Number:
    """Keep an integer that fits into 64 bits exact; convert a larger one to float."""
    number = value.__index__()
    return number if -(2**63) <= number < 2**64 else _as_float(key, number)


def _array(key: str, value: Any) -> Number:
    """Read a numpy scalar or an array of one element at once, since an array may change later."""
    if value.size != 1:
        raise Refused("vector")
    return plain(value.item())
