"""A run that is resumed, one that is forked from it, and one that continues from an earlier step."""

import os

import wandb

ID = os.environ["RUN_OF_TEST"]
with wandb.init(project="same", id=ID + "-first", config={"lr": 1}) as run:
    for step in range(10):
        run.log({"loss": 10 - step})
with wandb.init(project="same", id=ID + "-first", resume="allow") as run:
    for step in range(10, 15):
        run.log({"loss": 10 - step})
with wandb.init(project="same", id=ID + "-fork", fork_from=f"{ID}-first?_step=5") as run:
    for step in range(6, 10):
        run.log({"loss": 100 - step})
with wandb.init(project="same", id=ID + "-first", resume_from=f"{ID}-first?_step=7") as run:
    for step in range(8, 12):
        run.log({"loss": 1000 - step})
