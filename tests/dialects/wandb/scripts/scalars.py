"""Numbers, a configuration that changes, a summary, and an axis of their own for some."""

import math
import os

import wandb

ID = os.environ["RUN_OF_TEST"]
run = wandb.init(project="same", id=ID, name="scalars", config={"lr": 3e-4, "deep": {"a": [1, 2]}}, tags=["one"])
run.define_metric("val/*", step_metric="epoch")
run.define_metric("best", summary="max")
for step in range(6):
    run.log({"loss": 1 / (step + 1), "odd": math.nan if step == 2 else math.inf, "nested": {"a": step, "b": {"c": 2}}})
for epoch in range(3):
    run.log({"epoch": epoch, "val/acc": epoch / 3, "best": -abs(epoch - 1)})
run.config.update({"late": True})
run.summary["final"] = 0.5
run.finish()
