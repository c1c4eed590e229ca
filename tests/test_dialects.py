"""The core knows no foreign system: it names none, and works where every dialect is removed."""

import ast
import functools
import io
import os
import re
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from stepscope.model.dialects import PARTS, Dialect, all_dialects, find_dialect, load
from stepscope.model.errors import ConfigError
from stepscope.sinks import registry

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "stepscope"
DIALECTS = sorted(path.parent.name for path in (SOURCE / "dialects").glob("*/dialect.py"))
BESIDE = ("dialects", "wire", "compat", "training", "integrations", "demo", "testing")
"""Folders that may name foreign systems: their own, what dialects share, and what imitates or uses them."""
EXCEPTIONS = {
    "diagnosis/vocabularies/__init__.py": "a framework whose name has that of a dialect in it",
    "diagnosis/vocabularies/tinker_cookbook.py": "the same",
    "model/redaction.py": "names of keys and prefixes of tokens that are masked",
    "sdk/otel/meter.py": "a standard OTEL_ variable",
    "sdk/settings.py": "the settings of a training service",
}
FILES = ("__init__", "dialect", "importer", "listener", "media", "notifier", "receiver", "shim", "sink", "status")
FILES += ("trace_format", "wire")
NAMES = re.compile("|".join(("dogstatsd", "w&b", *DIALECTS)), re.IGNORECASE)


def core_files() -> list[Path]:
    """The Python files of the core."""
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] not in BESIDE]


def named(path: Path) -> list[str]:
    """The words of a file, comments and docstrings included, that name a foreign system."""
    text = path.read_text()
    if not NAMES.search(text):  # most files: nothing in them needs to be told apart
        return []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    kinds = (tokenize.NAME, tokenize.STRING, tokenize.COMMENT)
    words = [word for token in tokens if token.type in kinds for word in re.findall(r"[A-Za-z&]+", token.string)]
    return [word for word in words if NAMES.fullmatch(word)]


def test_the_core_names_no_dialect() -> None:
    """Neither in code nor in comments; each exception has a reason and is still needed."""
    found = {str(path.relative_to(SOURCE)): named(path) for path in core_files()}
    assert {path for path, words in found.items() if words} <= EXCEPTIONS.keys()
    assert EXCEPTIONS.keys() <= found.keys()


def test_a_name_is_found(tmp_path: Path) -> None:
    """In an import, a string and a comment."""
    bad = tmp_path / "bad.py"
    bad.write_text('from stepscope.dialects.wandb import wire\nx = "send it to MLflow"  # as Datadog does\n')
    assert named(bad) == ["wandb", "MLflow", "Datadog"]


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect_has_the_same_file_names(name: str) -> None:
    """Its parts are where a reader of another dialect looks for them, and its declaration names what exists."""
    folder = SOURCE / "dialects" / name
    parts = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert parts <= set(FILES)
    assert len((folder / "README.md").read_text().splitlines()) > 2
    declared = find_dialect(name)
    assert isinstance(declared, Dialect)
    assert declared.name == name
    for part in PARTS:
        if place := getattr(declared, part):
            assert load(place) is not None
            assert place.startswith(f"stepscope.dialects.{name}.{part}")


@functools.cache
def imports() -> dict[Path, set[str]]:
    """The modules that each file of the package imports, wherever in the file."""
    return {path: set(imported(ast.walk(ast.parse(path.read_text())))) for path in sorted(SOURCE.rglob("*.py"))}


def imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The modules that nodes of a syntax tree import, with the names that are taken from them."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


@pytest.mark.parametrize("name", DIALECTS)
def test_nothing_imports_a_dialect(name: str) -> None:
    """Only its own modules import it, so that its folder can be deleted."""
    own, wanted = SOURCE / "dialects" / name, f"stepscope.dialects.{name}"
    others = {path: modules for path, modules in imports().items() if not path.is_relative_to(own)}
    assert len(others) > 300
    for path, modules in others.items():
        assert not [each for each in modules if f"{each}.".startswith(f"{wanted}.")], path


def test_an_import_is_found() -> None:
    """Of each form, at the beginning and in a function."""
    code = "from stepscope.dialects import aim\nfrom stepscope.dialects.wandb import wire"
    found = set(imported(ast.walk(ast.parse(f"{code}\ndef f():\n    import a.b, os\n"))))
    assert found == {"stepscope.dialects.aim", "stepscope.dialects.wandb.wire", "a.b", "os"}


def test_an_unknown_sink_names_those_of_all_dialects() -> None:
    """The list is made from the declarations."""
    with pytest.raises(ConfigError) as caught:
        registry.parse(["otpl"])
    for each in all_dialects().values():
        assert (f"{each.name}," in f"{caught.value},") == bool(each.sink)


PROGRAM = """
import contextlib, importlib, io, pkgutil, sys
import stepscope
from stepscope.model.dialects import all_dialects
from stepscope.sinks import registry
assert dict(all_dialects()) == {}, all_dialects()
assert registry.names() == ["console", "hub", "local"]
run = stepscope.init(project="alone", name="core", run_id="alone")
for step in range(20):
    with run.step(step):
        run.log({"loss": 1 / (step + 1)})
assert run.finish().dropped == 0

def says(word, *arguments):
    from stepscope.cli.main import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        assert not main(list(arguments)), arguments
    assert word in out.getvalue(), (arguments, out.getvalue())

says("alone", "runs")
says("loss", "show", "alone")
says("--port", "hub", "--help")
says("2 values", "import", sys.argv[1])
says("1", "step", "alone", "3", "--json")
for module in pkgutil.walk_packages(stepscope.__path__, "stepscope."):
    if module.name.split(".")[1] not in LEFT_OUT:
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:  # an extra that is not installed
            assert not error.name.startswith("stepscope"), error
"""
LEFT_OUT = ("__main__", "compat", "integrations", "testing")
"""Importing the integrations means importing every framework, for half a minute: what they import is read above."""


def test_the_core_works_without_any_dialect(tmp_path: Path) -> None:
    """A run is recorded, the commands show it, and every other module can be imported."""
    package = tmp_path / "package" / "stepscope"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("dialects"))  # with what is compiled of it
    (tmp_path / "table.csv").write_text("step,loss\n1,0.5\n2,0.25\n")
    env = {**os.environ, "PYTHONPATH": str(package.parent), "STEPSCOPE_HOME": str(tmp_path / "home")}
    program = f"LEFT_OUT = {LEFT_OUT}\n{PROGRAM}"
    line = [sys.executable, "-c", program, str(tmp_path / "table.csv")]
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
