"""Curves, confusion matrices, and boxes and masks over images: recorded as they were, and refused in words."""

import json
from itertools import count
from typing import Any

import numpy as np
import pytest

import stepscope
from tests.sdk.media_values.test_media import Logged, counts, logged

__all__ = ["logged"]


def table(medium: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """The table of a chart."""
    found = json.loads(medium["data"])
    return found["columns"], found["data"]


def test_a_curve(run: stepscope.Run, logged: Logged) -> None:
    """Its points are those of the moment of the call; one that is not finite is a gap."""
    x, y = [0.0, 0.5, 1.0], np.array([0, np.nan, 1.0])
    run.log({"roc": stepscope.Curve(x, y, "area 0.5", x_name="false", y_name="true")}, step=3)
    x[1], y[0] = 9, 9
    (found,) = logged()
    assert (found["kind"], found["step"], found["caption"]) == ("chart", 3, "area 0.5")
    assert found["chart"] == {"style": "line", "x": "false", "y": "true", "by": "line"}
    assert table(found) == (["false", "true", "line"], [[0.0, 0.0, ""], [0.5, None, ""], [1.0, 1.0, ""]])
    assert found["name"].endswith(".table.json")


def test_several_lines(run: stepscope.Run, logged: Logged) -> None:
    """Lines by name, over one x or each over its own; tensors; bars over texts; y alone is counted."""
    torch = pytest.importorskip("torch")
    run.log(
        {
            "shared": stepscope.Curve([1, 2], {"a": [3, 4], "b": torch.tensor([5.0, 6.0])}),
            "own": stepscope.Curve({"a": [1], "b": range(2)}, {"a": [3], "b": [5, 6]}, style="points"),
            "bars": stepscope.Curve(["cat", "dog"], [1, 2], style="bars"),
            "alone": stepscope.Curve([7, 8]),
        },
        step=0,
    )
    found = {each["key"]: table(each)[1] for each in logged()}
    assert found["shared"] == [[1, 3, "a"], [2, 4, "a"], [1, 5.0, "b"], [2, 6.0, "b"]]
    assert found["own"] == [[1, 3, "a"], [0, 5, "b"], [1, 6, "b"]]
    assert found["bars"] == [["cat", 1, ""], ["dog", 2, ""]]
    assert found["alone"] == [[0, 7, ""], [1, 8, ""]]


def test_a_confusion_matrix(run: stepscope.Run, logged: Logged) -> None:
    """Given as counts, or counted from numbers or texts; classes that never occur have rows of zeros."""
    run.log(
        {
            "given": stepscope.Confusion([[2, 1], [0, 3]], names=["cat", "dog"]),
            "counted": stepscope.Confusion(truth=np.array([0, 1, 1]), predictions=[0, 1, 0]),
            "texts": stepscope.Confusion(truth=["b", "a"], predictions=["b", "b"]),
            "named": stepscope.Confusion(truth=[0], predictions=[0], names=["x", "y"]),
        },
        step=0,
    )
    found = {each["key"]: table(each)[1] for each in logged()}
    assert found["given"] == [["cat", "cat", 2], ["cat", "dog", 1], ["dog", "cat", 0], ["dog", "dog", 3]]
    assert found["counted"] == [["0", "0", 1], ["0", "1", 0], ["1", "0", 1], ["1", "1", 1]]
    assert found["texts"] == [["a", "a", 0], ["a", "b", 1], ["b", "a", 0], ["b", "b", 1]]
    assert [row[2] for row in found["named"]] == [1, 0, 0, 0]
    assert not counts(run, "rejected", "dropped")


def test_many_samples_are_counted(run: stepscope.Run, logged: Logged) -> None:
    """Arrays, lists and texts of many samples, each or mixed, give the same counts."""
    truth, guesses = np.arange(30_000) % 3, np.arange(30_000) % 2
    texts = [["a", "b", "c"][each] for each in truth], [["a", "b"][each] for each in guesses]
    run.log(
        {
            "arrays": stepscope.Confusion(truth=truth.astype(np.uint8), predictions=guesses.astype(float)),
            "lists": stepscope.Confusion(truth=truth.tolist(), predictions=iter(guesses.tolist())),
            "mixed": stepscope.Confusion(truth=truth, predictions=guesses.tolist()),
            "texts": stepscope.Confusion(truth=texts[0], predictions=texts[1]),
        },
        step=0,
    )
    found = {each["key"]: [row[2] for row in table(each)[1]] for each in logged()}
    assert found == dict.fromkeys(("arrays", "lists", "mixed", "texts"), [5000, 5000, 0] * 3)


def test_too_many_samples_are_refused_before_they_are_copied(run: stepscope.Run, logged: Logged) -> None:
    """The reason is the limit: on lists, on arrays, on sequences without an end, and on memory."""

    class Long(list[int]):
        def __len__(self) -> int:
            return 1_000_001

        def __iter__(self) -> Any:
            raise AssertionError("it was read")

    run.log(
        {
            "list": stepscope.Confusion(truth=Long(), predictions=[0]),
            "array": stepscope.Confusion(truth=np.zeros(10_000_001, np.uint8), predictions=np.zeros(1)),
            "endless": stepscope.Confusion(truth=count(), predictions=[0]),
            "memory": stepscope.Confusion(truth=np.zeros(9_000_000), predictions=[0]),
        },
        step=0,
    )
    assert logged() == []
    reasons = {name.split("/", 1)[1]: number for name, number in counts(run, "rejected", "dropped").items()}
    assert reasons == {
        "value/more than 1000000 samples": 2,
        "value/more than 10000000 samples": 1,
        "value/more than 64 MiB in memory": 1,
    }


HOSTILE: dict[str, Any] = {
    "lengths": lambda: stepscope.Curve([1, 2], [1]),
    "endless": lambda: stepscope.Curve(count()),
    "texts": lambda: stepscope.Curve([1, 2], ["a", "b"]),
    "a text": lambda: stepscope.Curve("abc", "abc"),
    "a number": lambda: stepscope.Curve(3),
    "flat": lambda: stepscope.Curve(np.zeros((2, 2))),
    "style": lambda: stepscope.Curve([1], style="pie"),
    "lines": lambda: stepscope.Curve([1], {str(n): [1] for n in range(65)}),
    "oblong": lambda: stepscope.Confusion(np.zeros((2, 3))),
    "negative": lambda: stepscope.Confusion([[1, -1], [0, 0]]),
    "not finite": lambda: stepscope.Confusion([[np.nan]]),
    "huge class": lambda: stepscope.Confusion(truth=[10**9], predictions=[0]),
    "half class": lambda: stepscope.Confusion(truth=[0.5], predictions=[0]),
    "negative classes": lambda: stepscope.Confusion(truth=np.array([-1]), predictions=np.array([0])),
    "half classes": lambda: stepscope.Confusion(truth=np.array([0.5]), predictions=np.array([np.nan])),
    "huge classes": lambda: stepscope.Confusion(truth=np.array([10**9]), predictions=np.array([0])),
    "many texts": lambda: stepscope.Confusion(truth=[str(n) for n in range(201)], predictions=["0"] * 201),
    "mixed kinds": lambda: stepscope.Confusion(truth=["a", 1], predictions=[0, 1]),
    "no predictions": lambda: stepscope.Confusion(truth=[0]),
    "few names": lambda: stepscope.Confusion([[1, 0], [0, 1]], names=["a"]),
    "nothing": lambda: stepscope.Confusion(truth=[], predictions=[]),
    "many classes": lambda: stepscope.Confusion(np.zeros((201, 201))),
}


@pytest.mark.parametrize("key", HOSTILE)
def test_what_cannot_be_drawn_is_rejected(run: stepscope.Run, logged: Logged, key: str) -> None:
    """Nothing raises, nothing hangs, and each is counted once, with a reason."""
    run.log({key: HOSTILE[key](), "loss": 1.0}, step=0)
    assert logged() == []
    (name,) = counts(run, "rejected")
    assert counts(run, "rejected")[name] == 1


def test_boxes_and_masks(run: stepscope.Run, logged: Logged) -> None:
    """Each group is a file of its own, recorded with the key, the time and the place of its image."""
    mask = np.array([[0, 1], [2, 0]])
    image = stepscope.Image(
        np.zeros((2, 2), np.uint8),
        boxes={"truth": [{"box": (0, 0, 1, 2), "label": 1, "score": 0.5}], "guess": np.array([[0, 0, 1.0, 1.0]])},
        masks={"truth": mask},
        labels={1: "cat", 2: "dog"},
    )
    mask[:] = 0
    run.log({"seen": [stepscope.Image(np.zeros((2, 2), np.uint8)), image]}, step=4)
    found = logged()
    layers = {(each["kind"], each["layer"]): each for each in found if "layer" in each}
    assert set(layers) == {("boxes", "truth"), ("boxes", "guess"), ("mask", "truth")}
    assert {each["index"] for each in layers.values()} == {1}
    boxes = json.loads(layers["boxes", "truth"]["data"])
    assert boxes["class_labels"] == {"1": "cat", "2": "dog"}
    assert boxes["box_data"] == [
        {
            "position": {"minX": 0.0, "minY": 0.0, "maxX": 1.0, "maxY": 2.0},
            "domain": "pixel",
            "class_id": 1,
            "scores": {"score": 0.5},
        }
    ]
    assert layers["mask", "truth"]["labels"] == {"1": "cat", "2": "dog"}
    pillow = pytest.importorskip("PIL.Image")
    import io

    kept = np.asarray(pillow.open(io.BytesIO(layers["mask", "truth"]["data"])))
    assert kept.tolist() == [[0, 1], [2, 0]]
    assert not counts(run, "rejected", "dropped")


def test_wrong_layers_leave_the_image(run: stepscope.Run, logged: Logged) -> None:
    """The image is recorded, and what cannot be drawn over it is counted."""
    wrong: list[Any] = [[{"box": (0, 1)}], [{"box": (0, 0, np.inf, 1)}], "no boxes", 3, [(0, 0, 1, 1)] * 1001]
    boxes = {str(at): each for at, each in enumerate(wrong)}
    masks = {"float": np.zeros((2, 2)), "cube": np.zeros((2, 2, 2), int), "large": np.full((2, 2), 256)}
    run.log({"a": stepscope.Image(np.zeros((2, 2), np.uint8), boxes=boxes, masks=masks, labels=7)}, step=0)
    assert [each["kind"] for each in logged()] == ["image"]
    assert sum(counts(run, "rejected").values()) == len(wrong) + len(masks)
