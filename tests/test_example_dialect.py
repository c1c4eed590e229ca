"""A dialect in a package of its own is found by its entry point and uses nothing but the public seam."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub.conftest import RunningHub
from tests.waiting import wait_until

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "graphite_dialect"
SEAM = ("stepscope.extend", "stepscope.model", "stepscope.wire")
PROGRAM = """
import stepscope
run = stepscope.init(project="example", run_id="sender")
for step in range(3):
    run.log({"loss": 0.5 ** step}, step=step)
print(run.finish(wait=True))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The example as an installer leaves it: the package, and its entry point in its metadata."""
    place = tmp_path / "site"
    place.mkdir()
    (place / "stepscope_graphite").symlink_to(EXAMPLE / "stepscope_graphite")
    about = place / "stepscope_graphite-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stepscope-graphite\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[stepscope.dialects]\ngraphite = stepscope_graphite.dialect:DIALECT\n")
    return place


def test_it_uses_the_public_seam_only() -> None:
    """Of Stepscope it imports the public API, `extend`, `model` and `wire`."""
    for path in EXAMPLE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stepscope."):
                assert (node.module or "").startswith(SEAM), path


def test_lines_go_from_a_run_to_a_hub(installed: Path, tmp_path: Path) -> None:
    """Its sink delivers to its listener, which has an option of the hub and a line in the counters."""
    hub = RunningHub(tmp_path / "hub", ("--graphite-port", "0"), env={"PYTHONPATH": str(installed)})
    hub.start()
    try:
        port = int(re.search(r"Graphite on port (\d+)", hub.said)[1])  # type: ignore[index]
        env = {
            **os.environ,
            "PYTHONPATH": f"{installed}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "STEPSCOPE_HOME": str(tmp_path / "home"),
            "STEPSCOPE_SINKS": f'[{{"graphite": {{"port": {port}}}}}]',
        }
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

        def keys() -> list[str]:
            answer = hub.request("GET", "/api/runs/graphite/keys")
            return [each["key"] for each in answer.json()["keys"]] if answer.status == 200 else []

        wait_until(lambda: "stepscope/sender/0/loss" in keys())
        assert hub.request("GET", "/api/health").json()["receivers"]["graphite"]["written"] >= 3
    finally:
        hub.stop()
