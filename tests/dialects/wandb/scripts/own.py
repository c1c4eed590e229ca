"""The same six runs with Stepscope's own calls, where it has them."""

import math
import os
import sys
from pathlib import Path

import numpy as np

import stepscope
from stepscope.sdk import checkpoints

checkpoints.COPY_SECONDS = 60.0
"""A slow machine copies the files of artifacts in time too."""
ID, PROJECT = os.environ["RUN_OF_TEST"], os.environ["PROJECT_OF_TEST"]


def scalars() -> None:
    """Numbers on the plain axis and on one of their own."""
    config = {"lr": 3e-4, "deep": {"a": [1, 2]}}
    with stepscope.init("same", "scalars", config, run_id=ID, tags=["one"]) as run:
        for step in range(6):
            odd = math.nan if step == 2 else math.inf
            run.log({"loss": 1 / (step + 1), "odd": odd, "nested": {"a": step, "b": {"c": 2}}}, step)
        for epoch in range(3):
            run.log({"epoch": epoch, "best": -abs(epoch - 1)}, 6 + epoch)
            run.log({"val/acc": epoch / 3}, epoch, axis="epoch")
        run.config["late"] = True


def tables() -> None:
    """Rows by step; an image beside them."""
    with stepscope.init("same", run_id=ID) as run:
        rows = [{"prompt": f"question {n}", "completion": f"answer {n}", "reward": n / 2} for n in range(4)]
        for row in rows:
            run.sample(row, step=0, table="predictions")
        run.log({"loss": 1.0}, 0)
        for step in range(3):
            run.sample({"prompt": f"prompt {step}", "reward": 0.5}, step=step, table="completions")
        run.sample({"text": "zero"}, step=4, table="pictures")
        run.log({"pictures/picture": stepscope.Image(np.zeros((4, 6, 3), np.uint8))}, 4)


def media() -> None:
    """Media of every kind."""
    array = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    with stepscope.init("same", run_id=ID) as run:
        for step in range(2):
            shown = stepscope.Image(array + step, caption=f"at {step}")
            run.log({"image": shown, "weights": stepscope.Histogram([1, 2, 2, 3 + step])}, step)
        boxes = {"guess": [{"box": (0.6, 0.8, 3, 3.6), "label": 1, "text": "cat"}]}
        masks = {"truth": np.ones((4, 6), np.uint8)}
        run.log(
            {
                "several": [stepscope.Image(array), stepscope.Image(255 - array)],
                "marked": stepscope.Image(array, boxes=boxes, masks=masks, labels={1: "cat"}),
                "page": stepscope.Html("<p>hello</p>"),
                "clip": stepscope.Video("clip.gif"),
                "sound": stepscope.Audio("sound.wav"),
                "counts": stepscope.Histogram(counts=[3, 1], edges=[0.0, 1.0, 2.0]),
            },
            2,
        )


def plots() -> None:
    """Curves and a confusion matrix."""
    truth, guesses = [0, 1, 1, 0, 1, 0], [0, 1, 0, 0, 1, 1]
    with stepscope.init("same", run_id=ID) as run:
        odd, even = range(1, 10, 2), range(0, 10, 2)
        squares = {"a": [n * n for n in odd], "b": [n * n for n in even]}
        run.log({"line": stepscope.Curve({"a": odd, "b": even}, squares, "squares")}, 0)
        run.log({"points": stepscope.Curve(range(10), [n * n for n in range(10)], style="points")}, 1)
        run.log({"bars": stepscope.Curve(["cat", "dog"], [3, 4], "counts", style="bars")}, 2)
        run.log({"lines": stepscope.Curve([0, 1, 2], {"up": [1, 2, 3], "down": [3, 2, 1]}, x_name="t")}, 4)
        run.log({"matrix": stepscope.Confusion(truth=truth, predictions=guesses, names=["no", "yes"])}, 5)


def artifacts() -> None:
    """Artifacts with copies of their files, and their use by another run."""
    Path("data").mkdir(exist_ok=True)
    Path("data/train.csv").write_text("a,b\n1,2\n")
    Path("data/valid.csv").write_text("a,b\n3,4\n")
    with stepscope.init(PROJECT, run_id=f"{ID}-made", job_type="make") as run:
        run.artifact("data", "dataset", "dataset", copy=True, aliases=["clean"])
        for epoch in range(2):
            folder = Path(f"epoch-{epoch}")
            (folder / "notes").mkdir(parents=True)
            (folder / "model.pt").write_text(f"weights {epoch}")
            (folder / "notes" / "readme.txt").write_text(f"epoch {epoch}")
            run.artifact(folder, "model", "model", copy=True, aliases=["best"] if epoch == 0 else [])
        run.artifact("epoch-1", "zoo", "model", copy=True, aliases=["prod"])
    with stepscope.init(PROJECT, run_id=f"{ID}-used", job_type="use") as run:
        run.use("model:latest", "model")
        run.use("dataset:clean")
        run.log({"loss": 1.0}, 0)


def forks() -> None:
    """A run that is restarted twice, and one that is forked from it."""
    for steps, top in ((range(10), 10), (range(10, 15), 10)):
        with stepscope.init("same", config={"lr": 1}, run_id=f"{ID}-first") as run:
            for step in steps:
                run.log({"loss": top - step}, step)
    with stepscope.init("same", run_id=f"{ID}-fork", parent=f"{ID}-first", from_step=5) as run:
        for step in range(6, 10):
            run.log({"loss": 100 - step}, step)
    with stepscope.init("same", config={"lr": 1}, run_id=f"{ID}-first") as run:
        for step in range(8, 12):
            run.log({"loss": 1000 - step}, step)


if __name__ == "__main__":
    {each.__name__: each for each in (scalars, tables, media, plots, artifacts, forks)}[sys.argv[1]]()
