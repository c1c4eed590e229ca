"""What is drawn over an image: boxes and masks, in groups such as predictions and ground truth."""

import json
import math
import numbers
from collections.abc import Mapping
from itertools import islice
from typing import Any

from stepscope.sdk.attributes import safe_text
from stepscope.sdk.context import text_of
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.media_values import encoding
from stepscope.sdk.media_values.capture import Captured, Unusable, capture
from stepscope.sdk.media_values.medium import Encoded, Medium

MAX_BOXES = 1000
MAX_GROUPS = 16
MAX_LABELS = 256
"""Names of classes; a mask has no more."""
_LONGEST = 200


class Layer(Medium):
    """Something drawn over an image."""

    __slots__ = ("group", "labels")

    def __init__(self, group: Any, data: Any, labels: Mapping[str, str]) -> None:
        self.group = _short(group)
        self.labels = labels
        super().__init__(data)


class Mask(Layer):
    """The class of each pixel: an array of shape (height, width) with numbers from 0 to 255; or its PNG."""

    KIND = "mask"
    __slots__ = ()

    def _encode(self, source: Captured, fast: bool) -> Encoded:
        import numpy  # whoever has an array has it

        array = source.read()
        if array.ndim != 2 or array.dtype.kind not in "biu":
            raise Unusable(f"a mask of shape {array.shape} and type {array.dtype}")
        if array.size and not (array.min() >= 0 and array.max() < MAX_LABELS):
            raise Unusable("a mask with classes beyond 0 to 255")
        found = encoding.pixels(array.astype(numpy.uint8), channels_first=False)
        facts: dict[str, Any] = {"labels": dict(self.labels)} if self.labels else {}
        return Encoded(encoding.png(found, fast=fast), "png", facts)


class Boxes(Layer):
    """Boxes in pixels: dicts with `box` (left, top, right, bottom), and `label`, `score` or `text`; or an array of such
    rows of four. With `parts` a box is in parts of the image, from 0 to 1.
    """

    KIND = "boxes"
    __slots__ = ()

    def _capture(self, data: Any) -> Any:
        if hasattr(data, "__array__"):
            return capture(data)
        made = [_box(each) for each in islice(iter(data), MAX_BOXES + 1)]
        return self._file(made)

    def _encode(self, source: Captured, fast: bool) -> Encoded:
        array = source.read()
        if array.ndim != 2 or array.shape[1] != 4:
            raise Unusable(f"boxes of shape {array.shape}")
        return Encoded(self._file([_box({"box": row}) for row in array[: MAX_BOXES + 1].tolist()]), "json")

    def _file(self, boxes: list[dict[str, Any]]) -> bytes:
        if len(boxes) > MAX_BOXES:
            raise Unusable(f"more than {MAX_BOXES} boxes")
        return json.dumps({"box_data": boxes, "class_labels": dict(self.labels)}, allow_nan=False).encode()

    def _format_of(self, data: bytes) -> str:
        return "json"


def _box(given: Any) -> dict[str, Any]:
    """Return a box as the page reads it; Unusable when it is none."""
    if not isinstance(given, Mapping):
        given = {"box": given}
    edges = list(islice(iter(given.get("box", ())), 5))
    if len(edges) != 4 or not all(isinstance(edge, numbers.Real) and math.isfinite(edge) for edge in edges):
        raise Unusable("a box that is not four finite numbers")
    names = ("minX", "minY", "maxX", "maxY")
    made: dict[str, Any] = {
        "position": {name: float(edge) for name, edge in zip(names, edges, strict=True)},
        **({} if given.get("parts") else {"domain": "pixel"}),
    }
    label, score, text = given.get("label"), given.get("score"), given.get("text")
    if isinstance(label, numbers.Integral):
        made["class_id"] = int(label)
    elif label is not None:
        made["box_caption"] = _short(label)
    if text is not None:
        made["box_caption"] = _short(text)
    if isinstance(score, numbers.Real) and math.isfinite(score):
        made["scores"] = {"score": float(score)}
    return made


def _short(value: Any) -> str:
    return safe_text(text_of(value)[:_LONGEST])


def layers_of(boxes: Any, masks: Any, labels: Any) -> tuple[Layer, ...]:
    """Return the layers of an image; never raises: what cannot be used has its reason in `problem`."""
    names: dict[str, str] = {}
    try:
        if labels is not None:
            pairs = labels.items() if isinstance(labels, Mapping) else enumerate(labels)
            names = {_short(key): _short(value) for key, value in islice(pairs, MAX_LABELS)}
    except BaseException as error:
        pass_on(error)
    found: list[Layer] = [Boxes(group, data, names) for group, data in _groups(boxes, "boxes")]
    found += [Mask(group, data, names) for group, data in _groups(masks, "mask")]
    return tuple(found)


def _groups(given: Any, name: str) -> list[tuple[Any, Any]]:
    if given is None:
        return []
    if not isinstance(given, Mapping):
        return [(name, given)]
    return list(islice(given.items(), MAX_GROUPS))
