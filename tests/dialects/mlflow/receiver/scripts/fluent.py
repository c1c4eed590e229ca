"""A script of MLflow's fluent API, as tutorials have it: nothing in it knows Stepscope."""

import json
import os
import tempfile

import mlflow


@mlflow.trace
def traced(x):
    """A span."""
    return x + 1


mlflow.set_experiment("fluent")
with mlflow.start_run(run_name="parent", tags={"team": "a"}, description="why") as run:
    mlflow.log_params({"lr": 0.1, "layers": [1, 2]})
    for step in range(3):
        mlflow.log_metrics({"loss": 1 / (step + 1), "nan": float("nan"), "inf": float("-inf")}, step=step)
    mlflow.log_metric("asynchronous", 1.0, synchronous=False)
    mlflow.flush_async_logging()
    mlflow.set_tags({"a": 1, "b": "two"})
    mlflow.log_text("hello", "notes/a.txt")
    mlflow.log_dict({"k": [1, 2]}, "d.json")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "w.bin"), "wb") as file:
            file.write(bytes(1000))
        mlflow.log_artifacts(folder, "weights")
    traced(1)
    mlflow.flush_trace_async_logging()
    with mlflow.start_run(run_name="child", nested=True):
        mlflow.log_metric("loss", 0.5)
client = mlflow.MlflowClient()
found = client.get_run(run.info.run_id)
children = mlflow.search_runs(filter_string=f"tags.mlflow.parentRunId = '{run.info.run_id}'", output_format="list")
with mlflow.start_run(run_id=run.info.run_id):
    mlflow.log_metric("loss", 0.01, step=3)
print(
    json.dumps(
        {
            "run": run.info.run_id,
            "status": found.info.status,
            "params": found.data.params,
            "metrics": {key: repr(value) for key, value in found.data.metrics.items()},
            "tags": {key: value for key, value in found.data.tags.items() if not key.startswith("mlflow.")},
            "history": [[each.step, each.value] for each in client.get_metric_history(run.info.run_id, "loss")],
            "children": [each.info.run_name for each in children],
            "artifacts": sorted(each.path for each in client.list_artifacts(run.info.run_id)),
            "text": mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/notes/a.txt"),
            "downloaded": len(os.listdir(mlflow.artifacts.download_artifacts(f"runs:/{run.info.run_id}/weights"))),
        }
    )
)
