"""The page for those who come from another tool: every row has a program, and every program records what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.journal import layout
from stepscope.model.records import Metric, Record
from stepscope.testing import read_run

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/coming-from.md").read_text()
LEFT_BEHIND = {
    "An RL trainer with MLflow and OTLP": ("trainer/actor_loss", "optimize"),
    "A training service": ("tuft.futures.created", "my_operation"),
    "A client's telemetry, and the event bus": ("request.start", "tinkex.http.request.stop"),
    "A collector with Datadog": ("signal.training.loss", "signal.custom.my_metric", "forward_backward"),
    "A traced loop": ("training_epoch", "batch_processing"),
    "Weights & Biases": ("train/loss",),
    "MLflow": ("loss",),
    "TensorBoard": ("loss/train", "note"),
}
"""What each program leaves behind: keys of metrics, names of spans and events."""


def programs() -> dict[str, str]:
    """The program under each heading."""
    return dict(re.findall(r"^## (.*?)\n\n```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))


def named(records: list[Record]) -> set[str]:
    """Keys and names of records."""
    found = {key for record in records if isinstance(record, Metric) for key, _ in record.points()}
    return found | {record.name for record in records if hasattr(record, "name")}


def test_every_row_has_a_program() -> None:
    """Each row has a program, and each program is tested."""
    rows = re.findall(r"^\| (?!you have|---)", PAGE[PAGE.index("| you have") :], re.MULTILINE)
    assert len(rows) == len(programs()) == len(LEFT_BEHIND)
    assert set(programs()) == set(LEFT_BEHIND)
    assert "docs/coming-from.md" in (ROOT / "README.md").read_text()


def test_the_index_names_every_page() -> None:
    """No page of the vocabularies is missing from their index."""
    pages = {path.name for path in (ROOT / "docs/training").glob("*.md")} - {"README.md"}
    index = (ROOT / "docs/training/README.md").read_text()
    assert set(re.findall(r"\]\((\w[\w-]*\.md)\)", index)) == pages


@pytest.mark.parametrize("heading", LEFT_BEHIND)
def test_the_program_records_what_it_says(heading: str, tmp_path: Path) -> None:
    """A program of the page runs unchanged, prints nothing, and records a run."""
    environment = {"STEPSCOPE_HOME": str(tmp_path), "STEPSCOPE_SHIPPER": "none", "PYTHONPATH": str(ROOT / "src")}
    code = programs()[heading]
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    (run,) = layout.list_runs(tmp_path)
    assert set(LEFT_BEHIND[heading]) <= named(read_run(tmp_path, run))


def test_a_page_that_sends_a_script_of_wandb_names_the_key() -> None:
    """The client ends without a key for an address, also where the hub takes any."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "src/stepscope/dialects/wandb/README.md"]
    sending = [page for page in pages if "WANDB_BASE_URL=http" in page.read_text()]
    assert len(sending) >= 4
    assert [page.name for page in sending if "WANDB_API_KEY" not in page.read_text()] == []
