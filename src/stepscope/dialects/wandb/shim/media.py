"""wandb's values other than numbers: media, histograms and tables."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import stepscope
from stepscope.dialects.wandb.shim import absent
from stepscope.dialects.wandb.shim.absent import Absent, missing, text


class WBValue:
    """The parent of wandb's values other than numbers."""


class Media(WBValue):
    """Keeps its arguments, because the script may read them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.arguments = arguments
        self.named = named
        self.__dict__.update(named)
        self.captured: Any = None
        """The same as one of our own media, which `log` takes; None for what is only counted."""

    def __getattr__(self, name: str) -> Absent:
        """Return a placeholder for an unsupported attribute, and count it."""
        if name.startswith("_"):
            raise AttributeError(name)
        return missing(f"{type(self).__name__}.{name}")


class Histogram(Media):
    """A distribution of a sequence of numbers, or of the result of `numpy.histogram`.

    Never raises: an invalid distribution is counted as rejected when it is logged. That of a tensor on a device is
    computed later, without blocking, so `histogram` and `bins` are empty.
    """

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64, **named: Any) -> None:
        super().__init__(sequence, **named)
        counts, edges = (None, None) if np_histogram is None else np_histogram
        self.captured = stepscope.Histogram(sequence, num_bins, counts=counts, edges=edges)
        self.histogram: list[int] = []
        self.bins: list[float] = []
        if getattr(sequence, "is_cpu", True):
            try:
                made = self.captured.recorded()
            except Exception:  # a user's sequence raised, or holds no numbers
                return
            self.histogram, self.bins = list(made.counts[1:-1]), list(made.bounds)


class Image(Media):
    """An image."""

    def __init__(self, data_or_path: Any = None, mode: Any = None, caption: Any = None, **named: Any) -> None:
        super().__init__(data_or_path, mode=mode, caption=caption, **named)
        kind = text(named.get("file_type")) or "png"
        boxes, masks = _layers(named.get("boxes")), _layers(named.get("masks"))
        self.captured = stepscope.Image(
            _plain(data_or_path, Image),
            caption,
            format=kind,
            boxes={group: _boxes(each) for group, each in boxes.items()} or None,
            masks={group: each.get("mask_data", each.get("path")) for group, each in masks.items()} or None,
            labels=_labels(named.get("classes"), *boxes.values(), *masks.values()),
        )


def _layers(given: Any) -> dict[Any, Mapping[str, Any]]:
    """Return boxes or masks by group; what is none is counted."""
    found: dict[Any, Mapping[str, Any]] = {}
    for group, each in given.items() if isinstance(given, Mapping) else ():
        plain = each.arguments[0] if isinstance(each, Media) and each.arguments else each
        if isinstance(plain, Mapping):
            found[group] = plain
        else:
            absent.report("Image.boxes")
    return found


def _boxes(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the boxes of a group as `stepscope.Image` takes them."""
    return [_box(each) for each in given.get("box_data") or () if isinstance(each, Mapping)]


def _box(given: Mapping[str, Any]) -> dict[str, Any]:
    at = given.get("position") or {}
    if "middle" in at:
        (x, y), width, height = at["middle"], at.get("width", 0), at.get("height", 0)
        edges = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
    else:
        edges = [at.get(name) for name in ("minX", "minY", "maxX", "maxY")]
    scores = given.get("scores")
    return {
        "box": edges,
        "parts": given.get("domain") != "pixel",
        "label": given.get("class_id"),
        "text": given.get("box_caption"),
        "score": next(iter(scores.values()), None) if isinstance(scores, Mapping) else None,
    }


def _labels(classes: Any, *groups: Mapping[str, Any]) -> dict[Any, Any] | None:
    """Return the names of classes, which each group and the image may have."""
    found: dict[Any, Any] = {}
    given = classes.arguments[0] if isinstance(classes, Classes) and classes.arguments else classes
    for each in given if isinstance(given, (list, tuple)) else ():
        if isinstance(each, Mapping) and "id" in each:
            found[each["id"]] = each.get("name")
    for group in groups:
        labels = group.get("class_labels")
        found |= labels if isinstance(labels, Mapping) else {}
    return found or None


class ImageMask(Media):
    """A segmentation mask of an image."""


class BoundingBoxes2D(Media):
    """Bounding boxes of an image."""


class Classes(Media):
    """The class labels of images."""


class Video(Media):
    """A video; arrays are of shape (time, channels, height, width), or have several such videos."""

    def __init__(self, data_or_path: Any = None, caption: Any = None, fps: Any = None, **named: Any) -> None:
        super().__init__(data_or_path, caption=caption, fps=fps, **named)
        self.captured = stepscope.Video(data_or_path, caption, fps=fps or 4)


class Audio(Media):
    """An audio clip."""

    def __init__(self, data_or_path: Any = None, sample_rate: Any = None, caption: Any = None, **named: Any) -> None:
        super().__init__(data_or_path, sample_rate=sample_rate, caption=caption, **named)
        self.captured = stepscope.Audio(data_or_path, sample_rate, caption)


class Html(Media):
    """An HTML document: its text, an open file, or the path of one that exists."""

    def __init__(self, data: Any = None, inject: bool = True, data_is_not_path: bool = False, **named: Any) -> None:
        super().__init__(data, **named)
        if hasattr(data, "read"):
            data = data.read()
        is_path = isinstance(data, str) and not data_is_not_path and len(data) < _LONGEST_PATH and os.path.isfile(data)
        self.captured = stepscope.Html(Path(data) if is_path else data, named.get("caption"))


class FileMedia(Media):
    """A medium that is kept as a file: one that exists, or the JSON or text of an object."""

    def __init__(self, data_or_path: Any = None, caption: Any = None, **named: Any) -> None:
        super().__init__(data_or_path, caption=caption, **named)
        self.captured = _file_of(type(self).__name__.lower(), data_or_path, caption)


class Object3D(FileMedia):
    """A 3D object."""


class Molecule(FileMedia):
    """A molecule."""


class Plotly(FileMedia):
    """A plotly figure."""


class Bokeh(FileMedia):
    """A bokeh plot."""


class Graph(Media):
    """A computation graph."""


_LONGEST_PATH = 4096


def _plain(value: Any, kind: type[Media]) -> Any:
    """Return the data of an image that was made from another one."""
    return value.arguments[0] if isinstance(value, kind) and value.arguments else value


def _file_of(name: str, data: Any, caption: Any) -> Any:
    """Return a path as file, and an object as its JSON, as wandb's client sends it."""
    if isinstance(data, (str, os.PathLike)) and os.path.isfile(data):
        return stepscope.File(data, caption=caption)
    if hasattr(data, "read"):
        found = data.read()
        return stepscope.File(found if isinstance(found, bytes) else str(found).encode(), f"{name}.txt", caption)
    if callable(getattr(data, "to_json", None)):
        return stepscope.File(str(data.to_json()).encode(), f"{name}.json", caption)
    if hasattr(data, "tolist"):
        data = data.tolist()
    written = data if isinstance(data, str) else json.dumps(data, default=str)
    return stepscope.File(written.encode(), f"{name}.json", caption)


def as_medium(value: Any) -> Any:
    """Return one of our own media for a value that wandb's client would send as media; else the value itself."""
    if isinstance(value, Media):
        return value.captured or value
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, Media) for each in value):
        return [each.captured or each for each in value]
    library = type(value).__module__.partition(".")[0]
    if library in ("matplotlib", "plotly") and (hasattr(value, "savefig") or hasattr(value, "to_json")):
        return stepscope.Figure(value)
    if library == "PIL" and hasattr(value, "getbands"):
        return stepscope.Image(value)
    if library in ("numpy", "torch") and _count(value) > 1:
        return stepscope.Histogram(value)
    return value


def _count(value: Any) -> int:
    """Return the number of elements of an array or a tensor."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return int(value.size)
    return int(value.numel()) if torch is not None and isinstance(value, torch.Tensor) else 0


class JoinedTable(Media):
    """A join of two tables."""


class PartitionedTable(Media):
    """A table split over several files."""


class Table(Media):
    """A table in memory, which the script can read."""

    def __init__(
        self, columns: Any = None, data: Any = None, rows: Any = None, dataframe: Any = None, **named: Any
    ) -> None:
        super().__init__(**named)
        given: Any = next((each for each in (dataframe, data, rows) if each is not None), ())
        if hasattr(given, "columns"):  # a pandas DataFrame
            columns, given = given.columns, given.values
        self.columns: list[Any] = ["Input", "Output", "Expected"] if columns is None else list(columns)
        self.data: list[list[Any]] = [list(row) for row in given]
        self.recorded = 0
        """How many rows of it were recorded as samples."""

    def add_data(self, *row: Any) -> None:
        """Add a row."""
        self.data.append(list(row))

    add_row = add_data

    def add_column(self, name: Any, data: Any, optional: bool = False) -> None:
        """Add a column."""
        values = list(data)
        self.data = self.data or [[None] * len(self.columns) for _ in values]
        for row, value in zip(self.data, values, strict=False):
            row.append(value)
        self.columns.append(name)

    def get_column(self, name: Any, convert_to: str | None = None) -> Any:
        """Return the values of a column; ValueError for an unknown name."""
        index = self.columns.index(name)
        values = [row[index] for row in self.data]
        if convert_to != "numpy":
            return values
        import numpy  # needed only for arrays

        return numpy.array(values)

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Iterate over the rows with their indices."""
        return iter(enumerate(self.data))

    def get_index(self) -> list[int]:
        """Return the indices of the rows."""
        return list(range(len(self.data)))

    def get_dataframe(self) -> Any:
        """Return the rows as a pandas DataFrame."""
        import pandas  # needed only here

        return pandas.DataFrame.from_records(self.data, columns=self.columns)

    def add_computed_columns(self, compute: Callable[[int, dict[Any, Any]], dict[Any, Any]]) -> None:
        """Add columns that a function computes from each row and its index."""
        found = [compute(index, dict(zip(self.columns, row, strict=False))) for index, row in self.iterrows()]
        for name in found[0] if found else ():
            self.add_column(name, [each.get(name) for each in found])

    def cast(self, col_name: Any, dtype: Any, optional: bool = False) -> None:
        """Do nothing: columns have no types."""

    def set_pk(self, col_name: Any) -> None:
        """Do nothing: tables have no primary keys."""

    def set_fk(self, col_name: Any, table: Any, table_col: Any) -> None:
        """Do nothing: tables are not joined."""

    def __len__(self) -> int:
        return len(self.data)

    def __bool__(self) -> bool:
        return True
