"""wandb's values other than numbers: histograms and tables are recorded; media and artifacts are only counted."""

import os
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import IO, Any

from stepscope.dialects.wandb.shim.absent import Absent, missing, text
from stepscope.model import records

MAX_BINS = 512
"""wandb's own limit."""
DELTA = records.Instrument("histogram", cumulative=False)
"""Logged histograms are not cumulative."""


def from_values(sequence: Any, bins: int) -> records.Histogram | None:
    """Make a histogram of the finite numbers of a list, an array or a CPU tensor; None when there are none.

    ValueError for a tensor on a device, because reading it would block, and for anything else.
    """
    import numpy  # only needed for histograms

    if hasattr(sequence, "detach"):
        if not getattr(sequence, "is_cpu", True):
            raise ValueError("a tensor on a device cannot be read without blocking")
        sequence = sequence.detach().float()
    array = numpy.asarray(sequence, dtype=float).ravel()
    array = array[numpy.isfinite(array)]
    if not array.size:
        return None
    counts, edges = numpy.histogram(array, bins=max(1, min(int(bins), MAX_BINS)))
    low, high = float(array.min()), float(array.max())
    return from_counts(counts, edges, low, high, None if low < 0 else float(array.sum()))


def from_counts(
    counts: Any, edges: Any, low: float | None = None, high: float | None = None, total: float | None = None
) -> records.Histogram | None:
    """Make a histogram from numpy's counts and bin edges; None when they do not match."""
    numbers, bounds = tuple(int(count) for count in counts), tuple(float(edge) for edge in edges)
    rising = all(before < after for before, after in pairwise(bounds))
    if not numbers or len(bounds) != len(numbers) + 1 or not rising or min(numbers) < 0:
        return None
    ends = (bounds[0] if low is None else low, bounds[-1] if high is None else high)
    return records.Histogram(sum(numbers), total, *ends, bounds, (0, *numbers, 0))


class WBValue:
    """The parent of wandb's values other than numbers."""


class Media(WBValue):
    """Keeps its arguments, because the script may read them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.arguments = arguments
        self.named = named
        self.__dict__.update(named)

    def __getattr__(self, name: str) -> Absent:
        """Return a placeholder for an unsupported attribute, and count it."""
        if name.startswith("_"):
            raise AttributeError(name)
        return missing(f"{type(self).__name__}.{name}")


class Histogram(Media):
    """A distribution of a sequence of numbers, or of the result of `numpy.histogram`.

    Never raises: an invalid distribution is counted as rejected when it is logged.
    """

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64, **named: Any) -> None:
        super().__init__(sequence, **named)
        self.recorded: records.Histogram | None = None
        try:
            self.recorded = from_values(sequence, num_bins) if np_histogram is None else from_counts(*np_histogram)
        except Exception:  # a user's sequence raised
            pass
        made = self.recorded
        self.histogram: list[int] = list(made.counts[1:-1]) if made is not None else []
        self.bins: list[float] = list(made.bounds) if made is not None else []


class Image(Media):
    """An image."""


class ImageMask(Media):
    """A segmentation mask of an image."""


class BoundingBoxes2D(Media):
    """Bounding boxes of an image."""


class Classes(Media):
    """The class labels of images."""


class Video(Media):
    """A video."""


class Audio(Media):
    """An audio clip."""


class Html(Media):
    """An HTML document."""


class Object3D(Media):
    """A 3D object."""


class Molecule(Media):
    """A molecule."""


class Plotly(Media):
    """A plotly figure."""


class Bokeh(Media):
    """A bokeh plot."""


class Graph(Media):
    """A computation graph."""


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


class Artifact:
    """The description of an artifact; wandb's other artifact methods do nothing."""

    version = "v0"

    def __init__(
        self, name: Any = None, type: Any = None, description: Any = None, metadata: Any = None, **named: Any
    ) -> None:
        self.name = text(name) or "artifact"
        self.type = text(type) or "unspecified"
        self.description = description
        self.metadata: Any = {} if metadata is None else metadata
        self.aliases: list[str] = []

    def wait(self, timeout: float | None = None) -> "Artifact":
        """Do nothing."""
        return self

    def download(self, root: Any = None, *arguments: Any, **named: Any) -> str:
        """Return the folder where the files would be; it has none."""
        return os.path.join("artifacts", self.name) if text(root) is None else os.fspath(root)

    def new_file(self, name: str, mode: str = "x", encoding: str | None = None) -> IO[Any]:
        """Open a temporary file, deleted when it is closed."""
        return tempfile.TemporaryFile(f"{mode.replace('x', 'w').replace('+', '')}+", encoding=encoding)

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("_"):
            raise AttributeError(name)
        return Absent(f"artifact.{name}")


def artifact_of(given: Any, name: Any = None, type: Any = None) -> Artifact:
    """Return the artifact, or make one from a path or name."""
    if isinstance(given, Artifact):
        return given
    return Artifact(text(name) or os.path.basename(text(given) or ""), type)
