"""TensorBoard's events: protobuf messages, read without a generated schema."""

import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from stepscope.model.records import Histogram
from stepscope.wire.protobuf_fields import fields, signed, text, varint

_STEP, _FILE_VERSION, _SUMMARY = 2, 3, 5
_TYPES = {1: ("f", 4), 2: ("d", 8), 3: ("i", 4), 9: ("q", 8), 10: ("?", 1)}
"""Tensor types as struct spells them: float, double, int32, int64, bool."""
_LEFT_OUT = {
    "pr_curves": "PR curves",
    "mesh": "meshes",
    "custom_scalars": "layouts of custom scalars",
    "graph_keras_model": "graphs of Keras models",
    "graph_run_metadata": "graphs",
    "graph_run_metadata_graph": "graphs",
    "projector": "embeddings",
}
"""Kinds of values that have no place here, by the plugin that shows them."""
_EVENTS_LEFT_OUT = {4: "graphs", 6: "log messages", 8: "run metadata", 9: "graphs"}
"""The same of whole events, by the number of their field."""
_REPEATED = {5: "<f", 6: "<d"}
"""Fields of a tensor that hold packed numbers of fixed size."""


class Media(NamedTuple):
    """An image or a sound, as the file it would be."""

    kind: str
    """`images` or `audio`."""
    data: bytes


class Value(NamedTuple):
    """One value of an event: a scalar, a histogram, a text or media, else only its kind."""

    tag: str
    scalar: float | None = None
    histogram: Histogram | None = None
    text: tuple[str, ...] | None = None
    hyperparameters: dict[str, Any] | None = None
    media: tuple[Media, ...] = ()
    kind: str = ""
    """The kind of any other value, to count what was left out."""


class Event(NamedTuple):
    """One event: when, at which step, and its values; events without values are kept empty."""

    time: float
    step: int
    values: tuple[Value, ...]


def parse_event(data: bytes) -> Event:
    """Read an event; ValueError when it is broken."""
    time, step, values = 0.0, 0, []
    try:
        for number, field in fields(data):
            if number == 1:
                (time,) = struct.unpack("<d", field)
            elif number == _STEP:
                step = signed(field)
            elif number == _SUMMARY:
                values += [_value(inner) for part, inner in fields(field) if part == 1]
            elif number in _EVENTS_LEFT_OUT:
                values.append(Value("", kind=_EVENTS_LEFT_OUT[number]))
    except (struct.error, TypeError, IndexError, OverflowError) as error:
        raise ValueError(str(error)) from None
    return Event(time if math.isfinite(time) else 0.0, step, tuple(values))


def _value(data: bytes) -> Value:
    found: dict[int, Any] = dict(fields(data))
    tag = text(found.get(1, b""))
    if 2 in found:
        return Value(tag, scalar=struct.unpack("<f", found[2])[0])
    if 5 in found:
        return Value(tag, histogram=_histogram(found[5]))
    for number, kind in ((4, "images"), (6, "audio")):
        if number in found:
            return _media(tag, kind, [dict(fields(found[number])).get(4, b"")])
    plugin, content = _plugin(found.get(9, b""))
    if plugin == "hparams":
        return Value(tag, hyperparameters=_hyperparameters(content))
    if 8 in found:
        return _tensor_value(tag, plugin, found[8])
    return Value(tag, kind=_LEFT_OUT.get(plugin, "other values"))


def _media(tag: str, kind: str, files: Sequence[Any]) -> Value:
    found = tuple(Media(kind, data) for data in files if isinstance(data, bytes) and data)
    return Value(tag, media=found, kind="" if found else kind)


def _tensor_value(tag: str, plugin: str, data: bytes) -> Value:
    if plugin in _LEFT_OUT:
        return Value(tag, kind=_LEFT_OUT[plugin])
    numbers, texts = _tensor(data)
    if plugin == "images":  # width, height, and a file for each image
        return _media(tag, plugin, texts[2:])
    if plugin == "audio":  # pairs of a file and a label
        return _media(tag, plugin, texts[0::2])
    if texts:
        return Value(tag, text=tuple(map(text, texts)))
    if plugin == "histograms" or (len(numbers) > 1 and len(numbers) % 3 == 0 and plugin == ""):
        return Value(tag, histogram=_from_buckets(numbers))
    if len(numbers) == 1:
        return Value(tag, scalar=float(numbers[0]))
    return Value(tag, kind="tensors")


def _plugin(data: bytes) -> tuple[str, bytes]:
    for number, field in fields(data):
        if number == 1:
            inner = dict(fields(field))
            return text(inner.get(1, b"")), inner.get(2, b"")
    return "", b""


def _tensor(data: bytes) -> tuple[Sequence[float], list[bytes]]:
    """Read the numbers or the strings of a tensor."""
    kind, content, numbers, texts = 0, b"", [], []
    for number, field in fields(data):
        if number == 1:
            kind = field
        elif number == 4:
            content = field
        elif number == 8:
            texts.append(field)
        elif number in _REPEATED:
            numbers += [each for (each,) in struct.iter_unpack(_REPEATED[number], field)]
        elif number in (7, 10, 11):
            numbers += [signed(field)] if isinstance(field, int) else _packed(field)
    if content and kind in _TYPES:
        letter, size = _TYPES[kind]
        return struct.unpack(f"<{len(content) // size}{letter}", content[: len(content) // size * size]), texts
    return numbers, texts


def _packed(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        found.append(signed(value))
    return found


def _histogram(data: bytes) -> Histogram:
    """Read TensorBoard's first form of a histogram: upper limits of buckets, and how many values each has."""
    found: dict[int, list[float]] = {}
    for number, field in fields(data):
        found.setdefault(number, []).extend(each for (each,) in struct.iter_unpack("<d", field))
    limits, counts = found.get(6, []), [int(each) for each in found.get(7, [])]
    low, high, total = (found.get(number, [0.0])[0] if counts else None for number in (1, 2, 4))  # zeros are left out
    bounds = tuple(limits[:-1])
    return Histogram(sum(counts), total, low, high, bounds, tuple(counts[: len(bounds) + 1]))


def _from_buckets(numbers: Sequence[float]) -> Histogram:
    """Read the second form: rows of left edge, right edge and count."""
    rows = list(zip(numbers[0::3], numbers[1::3], numbers[2::3], strict=False))
    counts = tuple(int(count) for _, _, count in rows)
    total = sum((left + right) / 2 * count for left, right, count in rows)
    full = [(left, right) for left, right, count in rows if count]
    low, high = (full[0][0], full[-1][1]) if full else (None, None)
    return Histogram(sum(counts), total, low, high, tuple(right for _, right, _ in rows[:-1]), counts)


def _hyperparameters(content: bytes) -> dict[str, Any] | None:
    """Read the hyperparameters of a session's start; None when the summary holds something else."""
    for number, field in fields(content):
        if number == 3:
            entries = [dict(fields(entry)) for part, entry in fields(field) if part == 1]
            return {text(entry.get(1, b"")): _struct_value(entry.get(2, b"")) for entry in entries}
    return None


def _struct_value(data: bytes) -> Any:
    for number, field in fields(data):
        if number == 2:
            (value,) = struct.unpack("<d", field)
            return int(value) if value.is_integer() and abs(value) < 2**53 else value
        if number == 3:
            return text(field)
        if number == 4:
            return bool(field)
    return None
