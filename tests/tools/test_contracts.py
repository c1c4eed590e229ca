"""Each import contract of pyproject.toml is broken by the import that it forbids."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.forked import run

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
NAMES = {contract["name"] for contract in CONTRACTS}

# What is allowed: one way down, and each library through its door.
GOOD = {
    "__init__": "from stepscope.sdk import run",
    "model.records": "import msgspec",
    "wire.otlp": "import google.protobuf\nfrom stepscope.model import records",
    "journal.write": "from stepscope.wire import otlp",
    "sinks.http": "from stepscope.journal import write",
    "imports.source": "from stepscope.journal import write",
    "alerts.rules": "from stepscope.model import records",
    "sdk.run": "from stepscope.alerts import rules\nfrom stepscope.journal import write",
    "pump": "from stepscope.journal import write",
    "table": "from stepscope.hub import app",
    "extend": "from stepscope.sdk import run",
    "training.bus": "import stepscope\nfrom stepscope import extend",
    "compat.wandb": "",
    "dialects.otlp.sink": "import grpc\nfrom stepscope import extend",
    "dialects.wandb.shim": "import stepscope",
    "dialects.mlflow.receiver.grammar": "import sqlparse\nimport starlette",
    "integrations.ray": "import stepscope",
    "demo.train": "import stepscope",
    "hub.app": "import starlette\nfrom stepscope.alerts import rules",
    "hub.fleet.fleet": "from stepscope.hub.store.cluster import address",
    "hub.service": "def join():\n    from stepscope.hub.fleet import fleet",
    "hub.home_store": "",
    "hub.store.cluster.address": "",
    "hub.store.store": "def open_server():\n    from stepscope.hub.store.cluster import address",
    "hub.store.write.committer": "",
    "hub.store.write.recovery": "",
    "hub.store.engine": "",
    "hub.store.embedded": "import chdb\nfrom stepscope.hub.store import engine",
    "cli.doctor": "",
    "cli.store": "",
    "cli.main": "from stepscope.sdk import run\nfrom stepscope.hub import app",
}
BAD = [
    ("wire.up", "from stepscope.journal import write", "Imports go one way, and sdk and hub never meet"),
    ("sdk.meet", "from stepscope.hub import app", "Imports go one way, and sdk and hub never meet"),
    ("hub.meet", "from stepscope.sdk import run", "Imports go one way, and sdk and hub never meet"),
    ("stray.thing", "", "Imports go one way, and sdk and hub never meet"),
    (
        "alerts.more",
        "from stepscope.wire import otlp",
        "alerts stands on model and diagnosis, but for named modules",
    ),
    (
        "training.deep",
        "from stepscope.sdk import run",
        "training, integrations, dialects and demo use the public API and extend only",
    ),
    ("sdk.one", "from stepscope.sdk import two\n", "No import cycles"),
    ("journal.door", "import stepscope", "Only what sits on the public API imports it"),
    ("model.heavy", "import numpy", "model needs the standard library and msgspec"),
    ("journal.proto", "import google.protobuf", "protobuf only in wire"),
    ("sinks.hub", "import grpc", "grpc only in dialects"),
    ("hub.questions", "import pyarrow", "The engine only in hub/store"),
    ("hub.store.engine", "from stepscope.hub.store import embedded", "The engine port knows no engine"),
    ("hub.store.cluster.server", "from stepscope.hub.store import embedded", "The engine port knows no engine"),
    (
        "hub.questions",
        "from stepscope.hub.fleet import fleet",
        "What several hubs on one store need is imported where a hub joins them",
    ),
    (
        "hub.questions",
        "from stepscope.hub.store.cluster import address",
        "What a cluster needs is imported where a store is opened by its address",
    ),
    ("sdk.app", "import uvicorn", "The web framework only in hub and in receivers"),
    ("dialects.otlp.other", "from stepscope.dialects.wandb import shim", "No dialect knows another"),
    ("sdk.shown", "import rich", "The terminal's library only where something is shown"),
    ("hub.grammar", "import sqlparse", "The parser of MLflow's filters only where they are read"),
    ("hub.agents", "import mcp", "Model Context Protocol only in its command"),
    ("sinks.client", "import mlflow", "Destinations are spoken to on the wire, not through their clients"),
]


def lint(root: Path, modules: dict[str, str]) -> set[str]:
    """Lay out a package with these modules and return the names of the contracts that it breaks."""
    shutil.copy(ROOT / "pyproject.toml", root)
    for name, code in modules.items():
        path = root / "stepscope" / (name.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        for folder in path.relative_to(root).parents[:-1]:
            (root / folder / "__init__.py").touch()
    program = root / "lint.py"
    program.write_text("from importlinter.cli import lint_imports_command as run; run()")
    answer = run(["--no-cache"], os.environ, script=program, imported="importlinter.cli")
    verdicts = dict(re.findall(r"^(.+) (KEPT|BROKEN)\b", answer.stdout, re.MULTILINE))
    assert verdicts.keys() == NAMES, answer.stdout + answer.stderr
    broken = {name for name, verdict in verdicts.items() if verdict == "BROKEN"}
    assert answer.returncode == bool(broken)
    return broken


def test_the_intended_tree_keeps_every_contract(tmp_path: Path) -> None:
    """The picture of the design passes."""
    assert lint(tmp_path, GOOD) == set()


@pytest.mark.parametrize(("module", "code", "contract"), BAD, ids=[f"{row[0]}-{row[2]}" for row in BAD])
def test_a_forbidden_import_is_noticed(tmp_path: Path, module: str, code: str, contract: str) -> None:
    """One wrong import in a good tree breaks the contract that speaks of it."""
    back = {"sdk.two": "from stepscope.sdk import one"} if module == "sdk.one" else {}
    assert contract in lint(tmp_path, {**GOOD, **back, module: code})


def test_every_contract_is_tried() -> None:
    """A new contract needs an import here that breaks it."""
    assert {contract for _, _, contract in BAD} == NAMES


@pytest.mark.parametrize(
    ("path", "code", "allowed"),
    [
        ("src/stepscope/sdk/otel.py", "import opentelemetry.sdk.trace", False),
        ("src/stepscope/sdk/otel.py", "from opentelemetry.proto.trace.v1 import trace_pb2", False),
        ("src/stepscope/sdk/otel.py", "import opentelemetry.trace", True),
        ("src/stepscope/wire/otlp.py", "from opentelemetry.proto.trace.v1 import trace_pb2", True),
        ("tests/sdk/test_otel.py", "import opentelemetry.sdk.trace", True),
    ],
)
def test_parts_of_opentelemetry_have_their_door(path: str, code: str, allowed: bool) -> None:
    """The API is free, the SDK is a peer for tests, and OTLP's messages belong to wire."""
    command = [sys.executable, "-m", "ruff", "check", "--select=TID251", f"--stdin-filename={path}", "-"]
    answer = subprocess.run(command, cwd=ROOT, input=code, capture_output=True, text=True, check=False)
    assert (answer.returncode == 0) == allowed, answer.stdout + answer.stderr
