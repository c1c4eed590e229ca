"""Files that real clients wrote become runs with the same values, once, also while they grow or are damaged."""

import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from stepscope.cli.import_runs import TABLES_BESIDE
from stepscope.cli.main import main
from stepscope.dialects.mlflow.media import MlflowImages
from stepscope.hub.runs.run_files import RunFile
from stepscope.model.names import SCOPE_SAMPLES
from stepscope.model.records import Alert, Event, Histogram, Log, Metric
from stepscope.testing import read_run
from tests.imports.clients import run_client
from tests.imports.importing import bring, check_finds_differences, is_same, series
from tests.late import late

tensorboardX = late("tensorboardX")
mlflow = late("mlflow")


def write_events(folder: Path, first: int, last: int, suffix: str = "") -> None:
    """Write scalars with the real writer: one float that is no number among them."""
    with tensorboardX.SummaryWriter(str(folder), filename_suffix=suffix) as writer:
        for step in range(first, last):
            writer.add_scalar("loss", math.nan if step == 7 else 1.5 * step, step)
            writer.add_scalar("train/acc", step / 64, step)


def test_event_files_of_tensorboard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scalars, histograms, texts and hyperparameters arrive; what is left out is named."""
    logs = tmp_path / "logs"
    write_events(logs / "a", 0, 300)
    with tensorboardX.SummaryWriter(str(logs / "b")) as writer:
        writer.add_histogram("weights", [1.0, 2.0, 2.0, 5.0], 3)
        writer.add_text("note", "a | b", 4)
        writer.add_image("picture", [[[0.0, 1.0]] * 2] * 3, 5, dataformats="CHW")
        writer.add_hparams({"lr": 0.5, "optimizer": "adam", "nested": True}, {"final": 2.0}, name="trial")
    home = tmp_path / "home"
    done = bring(capsys, home, logs)
    names = {each["name"]: each["run"] for each in done["runs"]}
    assert set(names) == {"a", "b", "b/trial"}
    assert done["left_out"] == {}
    records = list(read_run(home, names["a"]))
    losses = series(records, "loss")
    assert len(losses) == 300
    assert math.isnan(losses.pop(7))
    assert all(value == 1.5 * (step or 0) for step, value in losses.items())
    assert series(records, "train/acc")[64] == 1.0
    others = list(read_run(home, names["b"]))
    histogram = series(others, "weights")[3]
    assert isinstance(histogram, Histogram)
    assert (histogram.count, histogram.low, histogram.high, histogram.total) == (4, 1.0, 5.0, 10.0)
    assert [each.body for each in others if isinstance(each, Log)] == ["a | b"]
    trial = [each.attrs for each in read_run(home, names["b/trial"]) if isinstance(each, Event)]
    assert any(attrs.get("config") == {"lr": 0.5, "optimizer": "adam", "nested": True} for attrs in trial)
    check_finds_differences(home, logs, names["a"])


def test_values_are_what_tensorboard_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps, times and values equal those of TensorBoard's own reader."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write_events(tmp_path / "logs" / "a", 0, 200)
    done = bring(capsys, tmp_path / "home", tmp_path / "logs")
    theirs = accumulator.EventAccumulator(str(tmp_path / "logs" / "a"), size_guidance={"scalars": 0})
    theirs.Reload()
    ours = [each for each in read_run(tmp_path / "home", done["runs"][0]["run"]) if isinstance(each, Metric)]
    for key in ("loss", "train/acc"):
        read = [(each.time, each.step, repr(each.values[key])) for each in ours if key in each.values]
        assert read == [(int(each.wall_time * 1e9), each.step, repr(each.value)) for each in theirs.Scalars(key)]


def test_nothing_comes_twice_and_growth_is_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second import takes what is new, in the same file and in a file of a restarted program."""
    folder, home = tmp_path / "logs" / "a", tmp_path / "home"
    write_events(folder, 0, 2)
    (file,) = folder.glob("*.tfevents.*")
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])  # the last of four events is being written
    assert bring(capsys, home, folder)["runs"][0]["values"] == 3
    assert bring(capsys, home, folder)["runs"][0]["values"] == 0
    file.write_bytes(whole)
    assert bring(capsys, home, folder)["runs"][0]["values"] == 1
    write_events(folder, 2, 4, suffix=".restarted")
    done = bring(capsys, home, folder)
    assert done["runs"][0]["values"] == 4
    assert series(read_run(home, done["runs"][0]["run"]), "loss") == {0: 0.0, 1: 1.5, 2: 3.0, 3: 4.5}
    assert is_same(home, folder)


def test_a_killed_import_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGKILL in the middle of an import costs nothing and doubles nothing."""
    folder, home = tmp_path / "logs", tmp_path / "home"
    write_events(folder, 0, 20_000)
    process = subprocess.Popen([sys.executable, "-m", "stepscope", "import", str(folder), "--home", str(home)])
    while not list(home.glob("runs/*/*/*.seg")) and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.wait()
    bring(capsys, home, folder)
    assert is_same(home, folder)


def test_a_damaged_event_costs_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flipped bit in a value is noticed by its checksum and counted; the values around it arrive."""
    folder, home = tmp_path / "logs", tmp_path / "home"
    write_events(folder, 0, 100)
    (file,) = folder.glob("*.tfevents.*")
    data = bytearray(file.read_bytes())
    data[-3 - 4 - 2] ^= 1  # in the value of the last event, before its checksum
    file.write_bytes(data)
    done = bring(capsys, home, folder)
    assert done["left_out"] == {"damaged events": 1}
    assert done["runs"][0]["values"] == 199


@pytest.mark.parametrize("store", ["sqlite", "files"])
def test_stores_of_mlflow(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics with NaN and infinities, parameters, tags, the status and artifacts arrive; the rest is counted."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"weights")
    place = tmp_path / ("mlflow.db" if store == "sqlite" else "mlruns")
    client = mlflow.MlflowClient(f"sqlite:///{place}" if store == "sqlite" else place.as_uri())
    experiment = client.create_experiment("exp", (tmp_path / "artifacts").as_uri())
    run = client.create_run(experiment, run_name="first", start_time=1_700_000_000_000)
    client.log_param(run.info.run_id, "lr", 0.1)
    client.set_tag(run.info.run_id, "team", "red")
    for step, value in enumerate([1.5, math.nan, math.inf, -math.inf]):
        client.log_metric(run.info.run_id, "train/loss", value, timestamp=1_700_000_000_000 + step, step=step)
    client.set_terminated(run.info.run_id, "FAILED")
    home = tmp_path / "home"
    done = bring(capsys, home, place)
    assert [(each["run"], each["name"], each["values"]) for each in done["runs"]] == [(run.info.run_id, "first", 4)]
    records = list(read_run(home, run.info.run_id))
    assert repr(series(records, "train/loss")) == "{0: 1.5, 1: nan, 2: inf, 3: -inf}"
    times = [each.time for each in records if isinstance(each, Metric)]
    assert times == [(1_700_000_000_000 + step) * 10**6 for step in range(4)]
    events = {each.name: each.attrs for each in records if isinstance(each, Event)}
    assert events["train.run.started"]["config"] == {"lr": "0.1"}
    assert events["train.run.started"]["tags"] == ["team=red"]
    assert events["train.run.finished"] == {"status": "failed"}
    assert bring(capsys, home, place)["runs"][0]["values"] == 0
    check_finds_differences(home, place, run.info.run_id)
    client.log_metric(run.info.run_id, "train/loss", 7.5, timestamp=1_700_000_000_009, step=9)
    client.log_metric(run.info.run_id, "other", 1.0, timestamp=1_700_000_000_009, step=9)
    client.log_param(run.info.run_id, "depth", 3)
    assert not is_same(home, place)
    gone = client.create_experiment("gone")
    deleted = client.create_run(gone).info.run_id
    killed = client.create_run(experiment, tags={"mlflow.parentRunId": run.info.run_id}).info.run_id
    client.log_text(killed, "text", "folder/a.txt")
    client.log_image(killed, np.zeros((4, 4, 3), np.uint8), key="shot", step=3)
    model = client.create_logged_model(experiment, name="net", source_run_id=killed)
    client.log_model_artifact(model.model_id, str(weights))
    client.set_terminated(killed, "KILLED")
    client.delete_experiment(gone)
    client.delete_run(client.create_run(experiment).info.run_id)
    again = bring(capsys, home, place)
    assert {each["run"]: each["values"] for each in again["runs"]} == {run.info.run_id: 2, killed: 0}
    assert again["left_out"] == {"deleted runs": 2}
    files = home / "runs" / killed / "files"
    assert (files / "folder" / "a.txt").read_text() == "text"
    assert (files / "models" / f"net-{model.model_id[-8:]}" / "weights.bin").read_bytes() == b"weights"
    (image,) = (path for path in files.glob("images/*") if path.suffix == ".png")
    found = MlflowImages().in_file(RunFile(image.relative_to(files).as_posix(), image, 1, 0.0))
    assert found is not None
    assert (found["key"], found["step"]) == ("shot", 3)
    assert deleted not in {each["run"] for each in again["runs"]}
    ends = [each.attrs for each in read_run(home, killed) if isinstance(each, Event) and "status" in each.attrs]
    assert ends == [{"status": "preempted"}] * 2, "of the metrics, and of the files"
    events = [each for each in read_run(home, killed) if isinstance(each, Event)]
    assert {each.attrs["parent"] for each in events if "parent" in each.attrs} == {run.info.run_id}
    assert is_same(home, place)
    (files / "folder" / "a.txt").write_text("other")
    assert not is_same(home, place)


WANDB = """
import numpy as np
import wandb
about = {"config": {"lr": 0.5}, "tags": ["a"], "notes": "hello", "group": "g", "job_type": "eval"}
run = wandb.init(mode="offline", project="proj", name="nm", dir=".", **about)
for step in range(20):
    run.log({"loss": float("nan") if step == 3 else step / 4, "nested": {"x": step}, "word": "text"})
run.log({"bins": wandb.Histogram([1, 2, 3])})
run.define_metric("val/*", step_metric="epoch")
for epoch in range(3):
    run.log({"epoch": epoch, "val/loss": epoch / 2})
run.alert("title", "text", level="ERROR")
print("a line of output")
picture = wandb.Image(np.zeros((4, 4, 3), np.uint8), caption="black")
run.log({"picture": picture, "table": wandb.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]])})
run.summary["best"] = 0.75
with open("weights.bin", "wb") as file:
    file.write(b"weights")
artifact = wandb.Artifact("net", "model")
artifact.add_file("weights.bin")
run.log_artifact(artifact)
run.finish()
"""


def test_offline_runs_of_wandb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """History with nested values, NaN and axes of its own, texts, media, tables, artifacts, the rest: all arrives."""
    run_client("wandb", WANDB, tmp_path)
    done = bring(capsys, tmp_path / "home", tmp_path / "wandb")
    assert [each["name"] for each in done["runs"]] == ["nm"]
    assert done["left_out"] == {}
    records = list(read_run(tmp_path / "home", done["runs"][0]["run"]))
    losses = series(records, "loss")
    assert math.isnan(losses.pop(3))
    assert losses == {step: step / 4 for step in range(20) if step != 3}
    assert series(records, "nested/x")[19] == 19
    assert series(records, "bins")[20].count == 3
    by_epoch = [(each.axis, each.step, each.values) for each in records if isinstance(each, Metric) and each.axis]
    assert by_epoch == [("epoch", epoch, {"val/loss": epoch / 2}) for epoch in range(3)]
    started = next(each for each in records if isinstance(each, Event)).attrs
    assert (started["config"]["lr"], started["tags"], started["notes"]) == (0.5, ["a"], "hello")
    assert (started["group"], started["job_type"]) == ("g", "eval")
    assert [(each.name, each.message) for each in records if isinstance(each, Alert)] == [("title", "text")]
    assert "a line of output" in [each.body for each in records if isinstance(each, Log)]
    samples = [(each.body, each.attrs) for each in records if isinstance(each, Log) and each.scope == SCOPE_SAMPLES]
    assert samples == [("table", {"a": 1, "b": "x"}), ("table", {"a": 2, "b": "y"})]
    others = [each.attrs for each in records if isinstance(each, Event) and each.name == "wandb.values"]
    assert [each["word"] for each in others[:20]] == ["text"] * 20
    files = tmp_path / "home" / "runs" / done["runs"][0]["run"] / "files"
    assert others[-1]["picture"]["caption"] == "black"
    assert (files / others[-1]["picture"]["path"]).read_bytes().startswith(b"\x89PNG")
    (weights,) = (files / "artifacts" / "net").iterdir()
    assert weights.read_bytes() == b"weights"
    summary = next(each.attrs for each in records if isinstance(each, Event) and each.name == "train.summary")
    assert summary["best"] == 0.75
    check_finds_differences(tmp_path / "home", tmp_path / "wandb", done["runs"][0]["run"])


TRACKIO = """
import numpy as np
import trackio
trackio.init(project="pj", name="r1", config={"lr": 0.5})
for step in range(10):
    trackio.log({"loss": step / 4, "odd": float("inf")}, step=step)
picture = trackio.Image(np.zeros((4, 4, 3), np.uint8), caption="black")
rows = trackio.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]])
trackio.log({"picture": picture, "table": rows, "word": "text"}, step=10)
trackio.finish()
"""


def test_databases_of_trackio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Metrics, texts, images, tables and the configuration of each run arrive."""
    run_client("trackio", TRACKIO, tmp_path, TRACKIO_DIR=str(tmp_path / "trackio"))
    done = bring(capsys, tmp_path / "home", tmp_path / "trackio")
    assert [(each["name"], each["values"]) for each in done["runs"]] == [("r1", 20)]
    records = list(read_run(tmp_path / "home", done["runs"][0]["run"]))
    assert series(records, "loss") == {step: step / 4 for step in range(10)}
    assert set(series(records, "odd").values()) == {math.inf}
    assert next(each for each in records if isinstance(each, Event)).attrs["config"] == {"lr": 0.5}
    assert done["left_out"] == {}
    samples = [(each.step, each.body, each.attrs) for each in records if isinstance(each, Log)]
    assert samples == [(10, "table", {"a": 1, "b": "x"}), (10, "table", {"a": 2, "b": "y"})]
    (others,) = (each.attrs for each in records if isinstance(each, Event) and each.name == "trackio.values")
    assert (others["word"], others["picture"]["caption"]) == ("text", "black")
    files = tmp_path / "home" / "runs" / done["runs"][0]["run"] / "files"
    assert (files / others["picture"]["file_path"]).read_bytes().startswith(b"\x89PNG")
    check_finds_differences(tmp_path / "home", tmp_path / "trackio", done["runs"][0]["run"])


def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CSV and JSON lines: the step and the time are found by their names; a half-written line waits."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("step,time,loss,word\n5,1700000000.5,0.25,x\n6,1700000001,nan,\n7,1700")
    (tmp_path / "in" / "b.jsonl").write_text('{"_step": 1, "m": {"x": 2}}\nno JSON\n{"loss": 1e400}\n')
    home = tmp_path / "home"
    done = {each["name"]: each for each in bring(capsys, home, tmp_path / "in")["runs"]}
    ours = [each for each in read_run(home, done["a"]["run"]) if isinstance(each, Metric)]
    assert [(each.step, each.time, repr(each.values)) for each in ours] == [
        (5, 1_700_000_000_500_000_000, "{'loss': 0.25}"),
        (6, 1_700_000_001_000_000_000, "{'loss': nan}"),
    ]
    other = [(each.step, each.values) for each in read_run(home, done["b"]["run"]) if isinstance(each, Metric)]
    assert other == [(1, {"m/x": 2}), (2, {"loss": math.inf})]
    for each in done.values():
        check_finds_differences(home, tmp_path / "in", each["run"])


def test_tables_of_spreadsheets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tabs, semicolons with decimal commas, and columns of the same name: each value is taken under its own name."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "tabs.tsv").write_text("step\tloss\n1\t0.5\n")
    (tmp_path / "in" / "commas.csv").write_text("step;loss;note\n1;1,5;a,b\n2;-,25e1;\n")
    (tmp_path / "in" / "twice.csv").write_text("step,loss,loss\n1,2,3\n")
    home = tmp_path / "home"
    found = bring(capsys, home, tmp_path / "in")
    values = {
        each["name"]: [record.values for record in read_run(home, each["run"]) if isinstance(record, Metric)]
        for each in found["runs"]
    }
    assert values == {
        "tabs": [{"loss": 0.5}], "commas": [{"loss": 1.5}, {"loss": -2.5}], "twice": [{"loss": 2, "loss.1": 3}]
    }  # fmt: skip
    assert found["left_out"] == {"values that are not numbers": 1}


def test_tables_beside_other_runs_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They may be artifacts, so they are left out and counted; named, they are imported."""
    with tensorboardX.SummaryWriter(str(tmp_path / "in" / "run")) as writer:
        writer.add_scalar("loss", 1.0, 1)
    table = tmp_path / "in" / "a.csv"
    table.write_text("step,loss\n1,2\n")
    found = bring(capsys, tmp_path / "home", tmp_path / "in")
    assert [each["name"] for each in found["runs"]] == ["run"]
    assert found["left_out"] == {TABLES_BESIDE: 1}
    assert bring(capsys, tmp_path / "home", table)["runs"][0]["values"] == 1


def test_what_cannot_be_imported_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path that is missing, and one that holds nothing known."""
    (tmp_path / "text").write_text("hello")
    for path, words in ((tmp_path / "none", "no file or folder"), (tmp_path / "text", "nothing that can be imported")):
        assert main(["import", str(path), "--home", str(tmp_path / "home")]) == 2
        assert words in capsys.readouterr().err


def test_random_bytes_never_raise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files with the right names and any contents are read without an exception."""
    random = __import__("random").Random(5)
    whole = tmp_path / "whole"
    write_events(whole, 0, 20)
    (good,) = whole.glob("*.tfevents.*")
    for number in range(60):
        folder = tmp_path / f"in{number}"
        folder.mkdir()
        data = bytearray(good.read_bytes() if number % 2 else random.randbytes(300))
        for _ in range(random.randrange(5)):
            data[random.randrange(len(data))] = random.randrange(256)
        (folder / "x.tfevents.1").write_bytes(data)
        (folder / "run-x.wandb").write_bytes(b":W&B\xe1\xbe\x00" + random.randbytes(300))
        (folder / "x.jsonl").write_bytes(random.randbytes(100) + b"\n")
        (folder / "x.db").write_bytes(random.randbytes(100))
        assert main(["import", str(folder), "--home", str(tmp_path / "home")]) == 0
