"""Tables of samples: one at a step, one that grows and is logged whole again, one from a frame."""

import os

import numpy as np
import wandb

ID = os.environ["RUN_OF_TEST"]
run = wandb.init(project="same", id=ID)
rows = [[f"question {n}", f"answer {n}", n / 2] for n in range(4)]
run.log({"predictions": wandb.Table(columns=["prompt", "completion", "reward"], data=rows), "loss": 1.0})
growing = []
for step in range(3):
    growing.append([step, f"prompt {step}", 0.5])
    run.log({"completions": wandb.Table(columns=["step", "prompt", "reward"], data=list(growing))})
pictures = wandb.Table(columns=["text", "picture"])
pictures.add_data("zero", wandb.Image(np.zeros((4, 6, 3), np.uint8)))
run.log({"pictures": pictures})
run.finish()
