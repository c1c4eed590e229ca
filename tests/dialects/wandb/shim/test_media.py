"""wandb's media classes can be created, distinguished and read."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
import stepscope.compat.wandb as wandb
from stepscope.dialects.wandb.shim.media import Media
from stepscope.model.records import Event, Histogram, Metric
from tests.dialects.wandb.shim.conftest import Read


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


def test_media_are_recorded(read: Read, tmp_path: Path) -> None:
    """What wandb's client would send is recorded under its key: media, figures, long arrays and texts."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pillow = pytest.importorskip("PIL.Image")
    figure, _ = pyplot.subplots(figsize=(1, 1), dpi=20)
    page = tmp_path / "page.html"
    page.write_text("<p>")
    image: Any = np.zeros((4, 5, 3), np.uint8)
    given = {
        "image": wandb.Image(image, caption="zero"),
        "again": wandb.Image(wandb.Image(image)),
        "images": [wandb.Image(image), wandb.Image(image)],
        "nested": {"pillow": wandb.Image(pillow.new("RGB", (5, 4)))},
        "sound": wandb.Audio(np.zeros(10), sample_rate=8000),
        "video": wandb.Video(np.zeros((2, 3, 4, 5), np.uint8), fps=2),
        "page": wandb.Html(str(page)),
        "markup": wandb.Html(io.StringIO("<b>")),
        "cloud": wandb.Object3D(np.zeros((2, 3))),
        "molecule": wandb.Molecule(io.StringIO("ATOM")),
        "plot": figure,
        "pil": pillow.new("L", (5, 4)),
    }
    wandb.init()
    wandb.log({**given, "long": np.arange(100), "text": "hello", "loss": 1.0})
    inner = stepscope.current_run()
    assert inner is not None
    pyplot.close(figure)
    assert inner.flush(300)
    wandb.finish()
    found: dict[str, list[str]] = {}
    for each in read(Event):
        if each.name == "stepscope.media":
            found.setdefault(each.attrs["key"], []).append(each.attrs["kind"])
    assert found == {
        "image": ["image"], "again": ["image"], "images": ["image", "image"], "nested/pillow": ["image"],
        "sound": ["audio"], "video": ["video"], "page": ["html"], "markup": ["html"], "cloud": ["file"],
        "molecule": ["file"], "plot": ["image"], "pil": ["image"],
    }  # fmt: skip
    values = {key: value for each in read(Metric) for key, value in each.values.items()}
    assert values["loss"] == 1.0
    assert isinstance(values["long"], Histogram)
    assert [each.attrs for each in read(Event) if each.name == "wandb.values"] == [{"text": "hello"}]
    assert not [name for name in inner.outcomes.snapshot() if name.startswith(("rejected", "dropped"))]


def test_boxes_and_masks(read: Read) -> None:
    """Boxes in parts or pixels of the image, and masks, are recorded with the names of their classes."""
    box = {"position": {"minX": 0, "maxX": 0.5, "minY": 0, "maxY": 1}, "class_id": 1, "scores": {"p": 0.5}}
    middle = {"position": {"middle": [2, 2], "width": 2, "height": 4}, "domain": "pixel", "box_caption": "tall"}
    image = wandb.Image(
        np.zeros((4, 4), np.uint8),
        boxes={"guess": {"box_data": [box, middle], "class_labels": {1: "cat"}}},
        masks={"truth": {"mask_data": np.ones((4, 4), int), "class_labels": {1: "cat"}}},
    )
    wandb.init()
    wandb.log({"a": image})
    inner = stepscope.current_run()
    assert inner is not None
    assert inner.flush(300)
    found = [each.attrs for each in read(Event) if each.name == "stepscope.media"]
    assert [(each["kind"], each.get("layer")) for each in found] == [
        ("image", None), ("boxes", "guess"), ("mask", "truth"),
    ]  # fmt: skip
    assert found[2]["labels"] == {"1": "cat"}
    assert not [name for name in inner.outcomes.snapshot() if name.startswith(("rejected", "dropped", "ignored"))]
