"""Media of every kind, alone, in lists and by step."""

import os

import numpy as np
import wandb

ID = os.environ["RUN_OF_TEST"]
run = wandb.init(project="same", id=ID)
array = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
for step in range(2):
    run.log({"image": wandb.Image(array + step, caption=f"at {step}"), "weights": wandb.Histogram([1, 2, 2, 3 + step])})
box = {"position": {"minX": 0.1, "maxX": 0.5, "minY": 0.2, "maxY": 0.9}, "class_id": 1, "box_caption": "cat"}
run.log(
    {
        "several": [wandb.Image(array), wandb.Image(255 - array)],
        "marked": wandb.Image(
            array,
            boxes={"guess": {"box_data": [box], "class_labels": {1: "cat"}}},
            masks={"truth": {"mask_data": np.ones((4, 6), np.uint8), "class_labels": {1: "cat"}}},
        ),
        "page": wandb.Html("<p>hello</p>", inject=False),
        "clip": wandb.Video("clip.gif"),
        "sound": wandb.Audio("sound.wav"),
        "words": "some text",
        "counts": wandb.Histogram(np_histogram=([3, 1], [0.0, 1.0, 2.0])),
    }
)
run.finish()
