"""Artifacts: logged, versioned, linked, used and downloaded."""

import os
from pathlib import Path

import wandb

ID, PROJECT = os.environ["RUN_OF_TEST"], os.environ["PROJECT_OF_TEST"]
Path("data").mkdir(exist_ok=True)
Path("data/train.csv").write_text("a,b\n1,2\n")
Path("data/valid.csv").write_text("a,b\n3,4\n")
with wandb.init(project=PROJECT, id=ID + "-made", job_type="make") as run:
    data = wandb.Artifact("dataset", type="dataset", metadata={"rows": 2})
    data.add_dir("data")
    run.log_artifact(data, aliases=["clean"]).wait()
    for epoch in range(2):
        Path("model.pt").write_text(f"weights {epoch}")
        model = wandb.Artifact("model", type="model")
        model.add_file("model.pt")
        with model.new_file("notes/readme.txt") as file:
            file.write(f"epoch {epoch}")
        run.log_artifact(model, aliases=["best"] if epoch == 0 else []).wait()
    run.link_artifact(model, f"{PROJECT}/zoo", aliases=["prod"])
with wandb.init(project=PROJECT, id=ID + "-used", job_type="use") as run:
    used = run.use_artifact("model:latest", type="model")
    folder = used.download()
    assert Path(folder, "model.pt").read_text() == "weights 1", os.listdir(folder)
    run.use_artifact("dataset:clean")
    run.log({"loss": 1.0})
