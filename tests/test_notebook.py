"""The notebook of the examples runs from its first cell to its last, and shows what it says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pandas", reason="the notebook reads into pandas")
pytest.importorskip("tests.chdb", reason="the notebook asks the store")

NOTEBOOK = Path(__file__).parents[1] / "examples" / "tour.ipynb"
_SHELL = "import subprocess; subprocess.run({line!r}, shell=True, check=True)"


def cells() -> list[dict[str, Any]]:
    """The cells of the notebook."""
    found: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text())["cells"]
    return found


def program() -> str:
    """The cells of code as a program: lines for the shell as calls, and the value of a last line as output."""
    lines = []
    for cell in cells():
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"]).splitlines()
        made = [_SHELL.format(line=line[1:]) if line.startswith("!") else line for line in source]
        if made[-1] and not made[-1].startswith((" ", ")", "import", "bad =", "runs =")):
            made[-1] = f"print({made[-1]}, flush=True)" if not source[-1].startswith("!") else made[-1]
        lines += made
    return "\n".join([*lines, "import json", "print(json.dumps([bad._repr_html_(), findings]))"])


def test_it_runs_to_its_end(tmp_path: Path) -> None:
    """Six runs are recorded, read, compared by group, and the seventh is diagnosed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "stepscope").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stepscope "$@"\n')
    (programs / "stepscope").chmod(0o755)
    env = {**os.environ, "STEPSCOPE_HOME": str(tmp_path / "home"), "PATH": f"{programs}:{os.environ['PATH']}"}
    line = [sys.executable, "-c", program()]
    done = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    card, findings = json.loads(done.stdout.splitlines()[-1])
    assert "not finite" in card
    assert ("not_finite", 120) in [(each["kind"], each["step"]) for each in findings]
    (group,) = [line.split() for line in done.stdout.splitlines() if line.startswith("0.05 ")]
    assert (group[1], group[3]) == ("3", "±")


def test_it_is_kept_without_outputs() -> None:
    """What is committed has no results of somebody's machine, and every cell has its id."""
    assert len({cell["id"] for cell in cells()}) == len(cells())
    for cell in cells():
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
