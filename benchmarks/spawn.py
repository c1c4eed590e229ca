"""Fresh interpreters for subjects, in an environment where nothing phones home, and talk with them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
INSTALLED = importlib.util.find_spec("stepscope") is not None
IMPORT_PATHS = [ROOT] if INSTALLED else [ROOT, ROOT / "src"]

QUIET = {
    "DO_NOT_TRACK": "1",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_DISABLE_CODE": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_ANALYTICS_ENABLED": "False",
    "LOGFIRE_SEND_TO_LOGFIRE": "false",
    "LOGFIRE_CONSOLE": "false",
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_TRACE_ENABLED": "false",
}


class ChildError(Exception):
    """A child interpreter did not bring back a result."""


def environment(folder: Path, extra: dict[str, str] | None = None) -> dict[str, str]:
    """Return a child's environment: homes inside `folder`, telemetry of every SDK switched off."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    homes = {
        name: str(folder / "home")
        for name in (
            "HOME",
            "TMPDIR",
            "WANDB_DIR",
            "WANDB_CACHE_DIR",
            "WANDB_CONFIG_DIR",
            "WANDB_DATA_DIR",
            "HF_HOME",
        )
    }
    (folder / "home").mkdir(exist_ok=True)
    paths = {
        "PYTHONPATH": os.pathsep.join(str(path) for path in IMPORT_PATHS),
        "TRACKIO_DIR": str(folder / "home" / "trackio"),
        "STEPSCOPE_HOME": str(folder / "home" / "stepscope"),
    }
    return kept | QUIET | homes | paths | (extra or {})


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder that vanishes with everything in it."""
    with tempfile.TemporaryDirectory(prefix="stepscope-bench-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def fresh(module: str, params: dict[str, Any], limit_s: float = 300, env: dict[str, str] | None = None) -> Any:
    """Run `module.child(params)` in a new interpreter and return what it returned."""
    with scratch() as folder:
        answer = folder / "answer.json"
        line = [sys.executable, "-m", "benchmarks.child", module, str(answer), json.dumps(params)]
        code, said = execute(line, folder, limit_s, env)
        if not answer.exists():
            raise ChildError(f"{module} {params}: exit {code}: {last_words(said)}")
        return json.loads(answer.read_text())


def execute(line: list[str], folder: Path, limit_s: float = 300, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a command line inside `folder`, end its whole process group, and return exit code and output."""
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(
            line, cwd=folder, env=environment(folder, env), stdout=said, stderr=said, start_new_session=True
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        end_group(process)
        said.seek(0)
        return code, said.read()


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kill a child that leads its own session, and whatever it left behind in it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_words(said: str) -> str:
    """Return the last line of a child's output, which in Python names the error."""
    lines = [line for line in said.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "no output"


class Conversation:
    """A child that stays alive and answers one JSON line per JSON line; close it when done."""

    def __init__(self, module: str, params: dict[str, Any], folder: Path) -> None:
        line = [sys.executable, "-m", "benchmarks.child", module, "-", json.dumps(params)]
        self._said = (folder / "said").open("w+")
        self._process = subprocess.Popen(
            line,
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,
        )

    def ask(self, question: dict[str, Any]) -> Any:
        """Send one question and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._said.seek(0)
            raise ChildError(last_words(self._said.read()))
        return json.loads(line)

    def close(self) -> None:
        """End the child at once."""
        end_group(self._process)
        self._said.close()
