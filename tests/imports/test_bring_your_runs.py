"""Each command of the page *Bring your runs* is run as it is printed there, on files that real clients wrote."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.dialects.aim.test_importer import DATA
from tests.dialects.neptune.test_importer import write_export
from tests.imports.clients import run_client

PAGE = Path(__file__).parents[2] / "docs" / "bring-your-runs.md"
_ROW = re.compile(r"^\| (.+?) \| `(stepscope import [^`]+)` \|$", re.MULTILINE)
COMMANDS = {found[2]: found[1] for found in _ROW.finditer(PAGE.read_text())}

WANDB = """
import wandb
run = wandb.init(mode="offline", project="proj", dir=".")
run.log({"loss": 1.5})
run.finish()
"""
TRACKIO = """
import trackio
trackio.init(project="pj", name="r1")
trackio.log({"loss": 1.5}, step=1)
trackio.finish()
"""


def write_tensorboard(place: Path) -> None:
    """`runs/`, as by default."""
    writers = pytest.importorskip("tensorboardX")
    with writers.SummaryWriter(str(place / "runs" / "first")) as writer:
        writer.add_scalar("loss", 1.5, 1)


def write_mlflow(place: Path, uri: str) -> None:
    """A store with one run."""
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(uri)
    run = client.create_run(client.create_experiment("exp"))
    client.log_metric(run.info.run_id, "loss", 1.5, step=1)
    client.set_terminated(run.info.run_id)


def write_aim(place: Path) -> None:
    """`.aim`."""
    pytest.importorskip("aimrocks", reason="reads RocksDB")
    with tarfile.open(DATA) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none
        archive.extractall(place)


def write_tables(place: Path) -> None:
    """Two files."""
    (place / "metrics.csv").write_text("step,loss\n1,1.5\n")
    (place / "log.jsonl").write_text('{"step": 1, "loss": 1.5}\n')


def write_trackio(place: Path) -> None:
    """The databases where Trackio keeps them."""
    run_client("trackio", TRACKIO, place, TRACKIO_DIR=str(place / ".cache" / "huggingface" / "trackio"))


WRITERS = {
    "stepscope import runs/": write_tensorboard,
    "stepscope import wandb/": lambda place: run_client("wandb", WANDB, place),
    "stepscope import mlflow.db": lambda place: write_mlflow(place, f"sqlite:///{place}/mlflow.db"),
    "stepscope import mlruns/": lambda place: write_mlflow(place, (place / "mlruns").as_uri()),
    "stepscope import ~/.cache/huggingface/trackio": write_trackio,
    "stepscope import .aim": write_aim,
    "stepscope import exports/data": lambda place: write_export(place / "exports" / "data"),
    "stepscope import metrics.csv log.jsonl": write_tables,
}


def test_every_command_of_the_page_is_tried() -> None:
    """A command that is added to the page needs a writer here, and a writer a command on the page."""
    assert set(COMMANDS) == set(WRITERS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command imports values, and `--check` finds no difference."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    WRITERS[command](tmp_path)
    env = {**os.environ, "HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env.pop("STEPSCOPE_HOME", None)
    for options, words in (("", "value"), (" --check", "value is the same" if "runs/" in command else " the same")):
        done = subprocess.run(command + options, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert words in done.stdout
