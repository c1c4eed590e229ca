"""What wandb can log beside numbers; here it is taken, counted as rejected, and not kept."""

from collections.abc import Iterator
from typing import Any


class WBValue:
    """Anything of wandb's that is no number."""


class Media(WBValue):
    """Holds what it was made of, for the script may look at it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.arguments = arguments
        self.named = named
        self.__dict__.update(named)


class Histogram(Media):
    """A distribution."""


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
        """Take a row."""
        self.data.append(list(row))

    add_row = add_data

    def add_column(self, name: Any, data: Any, optional: bool = False) -> None:
        """Take a column."""
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
        import numpy  # who asks for an array has it

        return numpy.array(values)

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Go through the rows with their numbers."""
        return iter(enumerate(self.data))
