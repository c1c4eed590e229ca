"""What the package imports is declared: in the core, or in the extra of the folder that imports it."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "stepscope"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {
    "chdb": "chdb-core",
    "clickhouse_driver": "clickhouse-driver",
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "opentelemetry.proto": "opentelemetry-proto",
    "stable_baselines3": "stable-baselines3",
    "yaml": "pyyaml",
}
"""Packages whose distribution has another name; the other parts of `opentelemetry` are those of its API."""
EXTRAS: dict[str, tuple[str, ...]] = {
    "cli": ("mcp", "terminal"),
    "demo": ("demo",),
    "hub": ("hub",),
    "hub/store/cluster": ("cluster",),
    "dialects/aim": ("aim",),
    "dialects/datadog/receiver": ("hub",),
    "dialects/mlflow/receiver": ("hub",),
    "dialects/neptune": ("neptune",),
    "dialects/otlp": ("hub",),
    "dialects/otlp/sink": ("grpc",),
    "dialects/tinker/receiver": ("hub",),
    "dialects/wandb/receiver": ("hub",),
    "integrations": ("frameworks",),
    "notebook": ("notebook",),
    "sdk": ("yaml",),
    "sinks": ("terminal",),
    "testing": ("testing", "hub"),
    "training": ("yaml",),
    "wire": ("otlp-json", "yaml"),
}
"""The extras of the folders that need more than the core has; the longest path counts, and those above it."""
OF_THE_PROGRAM = {
    "opentelemetry.instrumentation": "integrations/fastapi.py says what to install",
    "PIL": "sdk/media_values takes its images, and makes formats other than PNG with it",
    "numpy": "dialects/tensorboard reads faster with it, and dialects/wandb/shim takes its arrays",
    "pandas": "dialects/wandb/shim makes a data frame for scripts that have pandas",
}
"""Imports outside the hub and the demo that are only tried where the user's program has the package."""


def imported(path: Path) -> Iterator[str]:
    """The packages that a module imports, anywhere in it, without the standard library and ours."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, *rest = name.split(".")
            if top not in sys.stdlib_module_names and top != "stepscope":
                yield f"{top}.{rest[0]}" if top in ("google", "opentelemetry") and rest else top


def declared(extra: str | None) -> set[str]:
    """The distributions of an extra and of the extras it names; None for the core."""
    listed = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    found: set[str] = set()
    for requirement in listed:
        own = re.match(r"stepscope\[([\w,-]+)\]", requirement)
        if own:
            found = found.union(*(declared(each) for each in own[1].split(",")))
        else:
            found.add(re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower())
    return found


def distribution(package: str) -> str:
    """The distribution that has a package."""
    if package.startswith("opentelemetry.") and package not in DISTRIBUTIONS:
        return "opentelemetry-api"
    return DISTRIBUTIONS.get(package, package).lower()


def test_every_import_is_declared() -> None:
    """A module needs nothing that only happens to come along with another distribution."""
    missing = []
    for path in sorted(SOURCES.rglob("*.py")):
        folder = path.parent.relative_to(SOURCES).as_posix()
        extras = [each for key, listed in EXTRAS.items() if f"{folder}/".startswith(f"{key}/") for each in listed]
        known = declared(None).union(*(declared(extra) for extra in extras))
        optional = () if folder.startswith(("hub", "demo")) else OF_THE_PROGRAM
        needed = {name for name in imported(path) if name not in optional and distribution(name) not in known}
        missing += [f"{path.relative_to(SOURCES)}: {name}" for name in sorted(needed)]
    assert missing == []


@pytest.mark.parametrize("name", ["h11", "uvicorn"])
def test_a_private_seam_has_an_upper_bound(name: str) -> None:
    """What is subclassed or driven beneath its public API is not upgraded beyond what was tested."""
    (found,) = [each for each in PROJECT["optional-dependencies"]["hub"] if re.match(rf"{name}\b", each)]
    assert "<" in found
    locked = re.search(rf"^{name}==([\d.]+)", (ROOT / "requirements" / "run.lock").read_text(), re.MULTILINE)
    bound = re.search(r"<([\d.]+)", found)
    assert locked is not None
    assert bound is not None
    version, limit = ([int(part) for part in text.split(".")] for text in (locked[1], bound[1]))
    assert version < limit
