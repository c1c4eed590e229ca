"""The Makefile sets up what each target needs, and installs the large frameworks only when asked."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.testing.clickhouse_cluster import DEBIAN, INSTALL

ROOT = Path(__file__).resolve().parents[1]


def make(*arguments: str) -> str:
    """Run make as from a fresh shell, not as a part of the make that runs the tests."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(["make", *arguments], cwd=ROOT, env=kept, capture_output=True, text=True, check=True).stdout


def plan(*arguments: str) -> str:
    """Return the commands that make would run on a machine where nothing is set up yet."""
    return make("--dry-run", "VENV=.venv-absent", "BENCH=.venv-bench-absent", *arguments)


def test_help_names_every_target() -> None:
    """`make` alone lists what it can do."""
    targets = [line.split()[1] for line in make().splitlines()]
    assert targets == [
        *("help", "setup", "fmt", "check", "test", "test-page", "test-chaos", "test-all", "test-pythons"),
        *("bench", "run", "cluster", "lock", "clean"),
    ]


@pytest.mark.parametrize(
    "target", ["setup", "fmt", "check", "test", "test-page", "test-chaos", "test-pythons", "bench"]
)
def test_a_target_does_its_own_set_up(target: str) -> None:
    """On a fresh machine each target makes the environment, installs the package, then what developers need."""
    commands = plan(target)
    steps = ("-m venv", "-r requirements/run.lock", "--editable .", "-r requirements/dev.lock")
    places = [commands.index(step) for step in steps]
    assert places == sorted(places)


def test_a_user_is_spared_what_developers_need() -> None:
    """`make run` installs the hub, the terminal and the demo, and nothing else."""
    commands = plan("run")
    places = [
        commands.index(step) for step in ("-m venv", "-r requirements/run.lock", "--editable .", "stepscope demo")
    ]
    assert places == sorted(places)
    assert "dev.lock" not in commands


def test_a_cluster_is_installed_where_it_is_asked_for() -> None:
    """`make run ARGS=--cluster` and `make cluster` install its programs and the driver; `make run` does not."""
    for arguments in (("run", "ARGS=--cluster"), ("cluster",)):
        commands = plan(*arguments)
        steps = [f"tools/debian.sh {' '.join(DEBIAN)}", "-c requirements/dev.lock clickhouse-driver", "stepscope"]
        assert all(step in commands for step in steps)
    assert "debian.sh" not in plan("run")


def test_what_a_user_gets_is_what_was_tested() -> None:
    """Every version of requirements/run.lock is the one of requirements/dev.lock."""
    locks = [set((ROOT / "requirements" / f"{name}.lock").read_text().splitlines()[1:]) for name in ("run", "dev")]
    assert locks[0] <= locks[1]


def test_bench_has_an_environment_of_its_own() -> None:
    """The peers that are measured never meet the tools that check."""
    mine = (".venv-bench-absent/bin/python", "sh tools/install.sh .venv-bench-absent ")
    last = [line.split()[-1] for line in plan("bench").splitlines() if line.startswith(mine)]
    assert last == ["requirements/bench.lock", "build/bench/*.whl", "benchmarks/run.py"]


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("run", "stepscope demo --exit"),
        ("test", "-m core --exit"),
        ("test-page", "-m page --exit"),
        ("test-chaos", "-m chaos --exit"),
        ("bench", "run.py --exit"),
    ],
)
def test_arguments_are_passed_on(target: str, command: str) -> None:
    """ARGS reaches the program that the target runs."""
    assert command in plan(target, "ARGS=--exit")


@pytest.mark.parametrize(
    ("settings", "frameworks", "debian"),
    [
        ((), False, False),
        (("FRAMEWORKS=0", "CI=false"), False, False),
        (("FRAMEWORKS=1",), True, False),
        (("CI=true",), True, True),
    ],
)
def test_large_downloads_are_asked_for(settings: tuple[str, ...], frameworks: bool, debian: bool) -> None:
    """A workstation is spared the frameworks; CI gets them, and the Debian packages."""
    commands = plan("test", *settings)
    assert ("requirements/frameworks.lock" in commands) == frameworks
    assert ("tools/debian.sh" in commands) == debian


def test_check_runs_every_stage() -> None:
    """The stages announce themselves, in order."""
    stages = re.findall(r'^echo "check: (\w+)"', plan("check"), re.MULTILINE)
    assert stages == ["ruff", "format", "imports", "sizes", "links", "reference", "mypy"]


def test_a_cluster_says_what_to_install(tmp_path: Path) -> None:
    """Where its programs are missing, the command that installs them is named, as on the page about the demo."""
    line = [sys.executable, "-m", "stepscope.testing.clickhouse_cluster", str(tmp_path)]
    env = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(line, env=env, capture_output=True, text=True)
    assert (done.returncode, INSTALL in done.stderr) == (1, True), done.stderr
    page = (ROOT / "docs" / "demo.md").read_text()
    assert all(f"`{command}`" in page for command in INSTALL.split(" && "))
