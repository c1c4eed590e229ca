"""The checks of the page's JavaScript fail on bad input, and say by name what a machine lacks."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tools" / "page"
BIN = PAGE / "node_modules" / ".bin"
installed = pytest.mark.skipif(
    not (PAGE / "node_modules" / ".ready").exists() or shutil.which("node") is None,
    reason="tools/page is not installed (make check, with nodejs and npm)",
)


def run(*line: str | Path, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command at the root of the repository."""
    env = {**os.environ, **variables}
    return subprocess.run(
        [str(part) for part in line], input=given, capture_output=True, text=True, cwd=ROOT, env=env, check=False
    )


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A PATH with the few programs that the script needs, but no Node."""
    for name in ("dirname", "sh"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    return str(tmp_path)


def test_without_node_the_checks_go_on_and_say_so(bare: str) -> None:
    """`make check` works where Node is not installed."""
    done = run("sh", "tools/page/run.sh", "check", PATH=bare, CI="")
    assert (done.returncode, done.stderr) == (
        0,
        "check: page skipped: node and npm are not installed (apt-get install nodejs npm)\n",
    )


def test_in_ci_the_checks_are_not_skipped(bare: str) -> None:
    """CI installs Node, so that its absence is a failure."""
    assert run("sh", "tools/page/run.sh", "check", PATH=bare, CI="true").returncode == 1


@installed
def test_bad_format_is_found() -> None:
    """Prettier refuses what it would write otherwise."""
    line = (BIN / "prettier", "--config", PAGE / "prettier.config.js", "--stdin-filepath", "a.js", "--check")
    assert run(*line, given="const a = 1;\n").returncode == 0
    assert run(*line, given="const a=1\n").returncode == 1


@installed
def test_bad_code_is_found() -> None:
    """ESLint names a variable that does not exist."""
    line = (BIN / "eslint", "--config", PAGE / "eslint.config.js", "--stdin", "--stdin-filename", "a.js")
    assert run(*line, given="export const a = document.title;\n").returncode == 0
    done = run(*line, given="export const a = documents.title;\n")
    assert done.returncode == 1
    assert "'documents' is not defined" in done.stdout


@installed
def test_wrong_calls_are_found(tmp_path: Path) -> None:
    """The type checker knows the signatures of the page's functions."""
    calls = {
        "millis(12)": "",
        "millis('12 ms')": "Argument of type 'string'",
        "millis(1, 2)": "Expected 1 arguments, but got 2",
        "milis(1)": "Cannot find name 'milis'",
    }
    web = ROOT / "src/stepscope/hub/web"
    files = [f"call{at}.js" for at in range(len(calls))]
    for name, call in zip(files, calls, strict=True):
        (tmp_path / name).write_text(
            f'import {{ millis }} from "{web}/parts/format.js";\nexport {{ millis }};\n{call};\n'
        )
    config = {"extends": str(PAGE / "tsconfig.json"), "include": [*files, str(PAGE / "globals.d.ts")], "exclude": []}
    (tmp_path / "tsconfig.json").write_text(json.dumps(config))
    done = run(BIN / "tsc", "--project", tmp_path)
    assert done.returncode != 0
    for name, message in zip(files, calls.values(), strict=True):
        said = [line for line in done.stdout.splitlines() if name in line]
        assert [message in line for line in said] == [True] * bool(message), done.stdout
