"""What wandb can log beside numbers: histograms are recorded; media, tables and artifacts are counted and not kept."""

import os
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import IO, Any

from stepscope.compat.absent import Absent, missing, text
from stepscope.model import records

MOST_BINS = 512
"""wandb's own limit."""
DELTA = records.Instrument("histogram", cumulative=False)
"""Logged histograms are not cumulative."""


def from_values(sequence: Any, bins: int) -> records.Histogram | None:
    """Count the finite numbers of a list, an array or a tensor in this machine's own memory; None when there are none.

    ValueError for a tensor on a device, because reading it would block, and for anything but a sequence of numbers.
    """
    import numpy  # installed wherever distributions come from

    if hasattr(sequence, "detach"):
        if not getattr(sequence, "is_cpu", True):
            raise ValueError("a tensor on a device cannot be read without blocking")
        sequence = sequence.detach().float()
    array = numpy.asarray(sequence, dtype=float).ravel()
    array = array[numpy.isfinite(array)]
    if not array.size:
        return None
    counts, edges = numpy.histogram(array, bins=max(1, min(int(bins), MOST_BINS)))
    low, high = float(array.min()), float(array.max())
    return from_counts(counts, edges, low, high, None if low < 0 else float(array.sum()))


def from_counts(
    counts: Any, edges: Any, low: float | None = None, high: float | None = None, total: float | None = None
) -> records.Histogram | None:
    """Make a histogram from counts and bin edges, as numpy has them; None when they do not match."""
    numbers, bounds = tuple(int(count) for count in counts), tuple(float(edge) for edge in edges)
    rising = all(before < after for before, after in pairwise(bounds))
    if not numbers or len(bounds) != len(numbers) + 1 or not rising or min(numbers) < 0:
        return None
    ends = (bounds[0] if low is None else low, bounds[-1] if high is None else high)
    return records.Histogram(sum(numbers), total, *ends, bounds, (0, *numbers, 0))


class WBValue:
    """A value of wandb other than a number."""


class Media(WBValue):
    """Holds its arguments, because the script may read them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.arguments = arguments
        self.named = named
        self.__dict__.update(named)

    def __getattr__(self, name: str) -> Absent:
        """Other attributes of wandb's media are missing here, counted."""
        if name.startswith("_"):
            raise AttributeError(name)
        return missing(f"{type(self).__name__}.{name}")


class Histogram(Media):
    """A distribution: of a sequence of numbers, or counted before by `numpy.histogram`.

    Nothing is raised: an invalid distribution is counted as rejected when it is logged.
    """

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64, **named: Any) -> None:
        super().__init__(sequence, **named)
        self.recorded: records.Histogram | None = None
        try:
            self.recorded = from_values(sequence, num_bins) if np_histogram is None else from_counts(*np_histogram)
        except Exception:  # whatever a foreign sequence raises when it is read
            pass
        made = self.recorded
        self.histogram: list[int] = list(made.counts[1:-1]) if made is not None else []
        self.bins: list[float] = list(made.bounds) if made is not None else []


class Image(Media):
    """A picture."""


class ImageMask(Media):
    """What a picture shows, point by point."""


class BoundingBoxes2D(Media):
    """What a picture shows, box by box."""


class Classes(Media):
    """The names of what pictures show."""


class Video(Media):
    """Moving pictures."""


class Audio(Media):
    """A sound."""


class Html(Media):
    """A page."""


class Object3D(Media):
    """A body."""


class Molecule(Media):
    """A molecule."""


class Plotly(Media):
    """A plot of plotly."""


class Bokeh(Media):
    """A plot of bokeh."""


class Graph(Media):
    """A network."""


class JoinedTable(Media):
    """Two tables."""


class PartitionedTable(Media):
    """A table of many files."""


class Table(Media):
    """Rows under columns; the script can read them again."""

    def __init__(
        self, columns: Any = None, data: Any = None, rows: Any = None, dataframe: Any = None, **named: Any
    ) -> None:
        super().__init__(**named)
        given: Any = next((each for each in (dataframe, data, rows) if each is not None), ())
        if hasattr(given, "columns"):  # a frame of pandas
            columns, given = given.columns, given.values
        self.columns: list[Any] = ["Input", "Output", "Expected"] if columns is None else list(columns)
        self.data: list[list[Any]] = [list(row) for row in given]

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
        """List the values of a column; ValueError when there is none of that name."""
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
        """List the numbers of the rows."""
        return list(range(len(self.data)))

    def get_dataframe(self) -> Any:
        """Return the rows as a frame of pandas."""
        import pandas  # only called where it is installed

        return pandas.DataFrame.from_records(self.data, columns=self.columns)

    def add_computed_columns(self, compute: Callable[[int, dict[Any, Any]], dict[Any, Any]]) -> None:
        """Add columns that a function computes from each row and its index."""
        found = [compute(index, dict(zip(self.columns, row, strict=False))) for index, row in self.iterrows()]
        for name in found[0] if found else ():
            self.add_column(name, [each.get(name) for each in found])

    def cast(self, col_name: Any, dtype: Any, optional: bool = False) -> None:
        """Do nothing: columns have no types here."""

    def set_pk(self, col_name: Any) -> None:
        """Do nothing: rows are found by their numbers."""

    def set_fk(self, col_name: Any, table: Any, table_col: Any) -> None:
        """Do nothing: tables are not joined."""

    def __len__(self) -> int:
        return len(self.data)

    def __bool__(self) -> bool:
        return True


class Artifact:
    """Holds the description of files; other methods of wandb's artifacts do nothing here."""

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
        """Does nothing."""
        return self

    def download(self, root: Any = None, *arguments: Any, **named: Any) -> str:
        """Name the folder in which the files would be; there are none."""
        return os.path.join("artifacts", self.name) if text(root) is None else os.fspath(root)

    def new_file(self, name: str, mode: str = "x", encoding: str | None = None) -> IO[Any]:
        """Open a file that goes when it is closed."""
        return tempfile.TemporaryFile(f"{mode.replace('x', 'w').replace('+', '')}+", encoding=encoding)

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("_"):
            raise AttributeError(name)
        return Absent(f"artifact.{name}")


def artifact_of(given: Any, name: Any = None, type: Any = None) -> Artifact:
    """The artifact that was given, or one for the path or name that was."""
    if isinstance(given, Artifact):
        return given
    return Artifact(text(name) or os.path.basename(text(given) or ""), type)
