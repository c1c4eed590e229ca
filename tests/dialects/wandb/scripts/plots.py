"""Charts of tables."""

import os

import numpy as np
import wandb

ID = os.environ["RUN_OF_TEST"]
run = wandb.init(project="same", id=ID)
table = wandb.Table(columns=["x", "y", "kind"], data=[[n, n * n, "a" if n % 2 else "b"] for n in range(10)])
named = wandb.Table(columns=["label", "value"], data=[["cat", 3], ["dog", 4]])
truth, scores = np.array([0, 1, 1, 0, 1, 0]), np.array([0.1, 0.9, 0.4, 0.3, 0.8, 0.6])
both = np.stack([1 - scores, scores], axis=1)
run.log({"line": wandb.plot.line(table, "x", "y", stroke="kind", title="squares")})
run.log({"points": wandb.plot.scatter(table, "x", "y")})
run.log({"bars": wandb.plot.bar(named, "label", "value", title="counts")})
run.log({"spread": wandb.plot.histogram(table, "y")})
run.log({"lines": wandb.plot.line_series([0, 1, 2], [[1, 2, 3], [3, 2, 1]], keys=["up", "down"], xname="t")})
guesses = [int(score > 0.5) for score in scores]
matrix = wandb.plot.confusion_matrix(y_true=truth.tolist(), preds=guesses, class_names=["no", "yes"])
run.log({"matrix": matrix})
run.log({"pr": wandb.plot.pr_curve(truth, both, labels=["no", "yes"])})
run.log({"roc": wandb.plot.roc_curve(truth, both, labels=["no", "yes"])})
run.finish()
