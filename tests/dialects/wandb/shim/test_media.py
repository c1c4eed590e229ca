"""wandb's media classes can be created, distinguished and read."""

import pytest

import stepscope.compat.wandb as wandb
from stepscope.dialects.wandb.shim.media import Media


def test_kinds_are_told_apart() -> None:
    """`data_types` has wandb's classes; each is one of its own."""
    image = wandb.Image([[0]], caption="a cat")
    assert isinstance(image, wandb.data_types.Image)
    assert isinstance(image, Media)
    assert not isinstance(image, wandb.data_types.Table | wandb.Histogram)
    assert not isinstance(1, wandb.data_types.WBValue)
    assert image.__dict__["caption"] == "a cat"


def test_a_table() -> None:
    """Rows and columns are there again."""
    table = wandb.Table(columns=["a"], data=[[1], [2]])
    table.add_data(3)
    table.add_column("b", ["x", "y", "z"])
    assert (table.columns, table.data) == (["a", "b"], [[1, "x"], [2, "y"], [3, "z"]])
    assert table.get_column("b") == ["x", "y", "z"]
    assert table.get_column("a", convert_to="numpy").sum() == 6
    assert list(table.iterrows())[2] == (2, [3, "z"])
    empty = wandb.Table(columns=["a"])
    empty.add_column("b", [1])
    assert empty.data == [[None, 1]]
    with pytest.raises(ValueError, match="'c' is not in list"):
        table.get_column("c")


def test_a_table_of_pandas() -> None:
    """A frame gives its columns, under either name."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": [3, 4]})
    for table in (wandb.Table(dataframe=frame), wandb.Table(data=frame)):
        assert (table.columns, table.data) == (["a", "b"], [[1, 3], [2, 4]])


def test_the_methods_of_a_table() -> None:
    """Rows, columns and frames, as scripts ask for them."""
    table = wandb.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]])
    table.add_computed_columns(lambda index, row: {"c": index + row["a"]})
    assert table.get_column("c") == [1, 3]
    assert (table.get_index(), len(table)) == ([0, 1], 2)
    frame = table.get_dataframe()
    assert (list(frame.columns), frame["a"].sum()) == (["a", "b", "c"], 3)
    table.cast("a", int)
    assert wandb.Table(columns=["a"])
