"""The rooms of the project are as docs/architecture.md says, and modules have names of their own."""

import ast
import re
from pathlib import Path

import pytest

from stepscope.hub.questions.openapi import ENDPOINTS

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "stepscope"
PAGE = ROOT / "docs" / "architecture.md"
ON_THE_PUBLIC_API = ("training", "integrations", "dialects", "demo")
INTERNALS = frozenset(("outcomes", "recorder", "flusher", "periodic"))
"""The parts of a run that only the SDK uses."""


def additions() -> list[tuple[str, list[str]]]:
    """The rows of "To add something": what is added, and the paths to touch."""
    rows = re.findall(r"^\| (an? [^|]+) \| (.+) \|$", PAGE.read_text(), re.M)
    return [(what, re.findall(r"`((?:src|docs|tests)/[^`]+)`", paths)) for what, paths in rows]


def test_what_is_added_has_its_places() -> None:
    """The files that a change touches exist, and so does the folder of each file that it adds."""
    found = additions()
    assert len(found) == 5
    for what, paths in found:
        assert paths, what
        for path in paths:
            place = ROOT / path
            assert (place.parent if "NAME" in place.name else place).exists(), path


def test_every_question_answers_an_endpoint() -> None:
    """Each module or folder of questions has an endpoint, which is found there."""
    questions = {path.name.removesuffix(".py") for path in (SOURCE / "hub" / "questions").iterdir()}
    beside = {"__init__", "__pycache__", "live_events", "openapi", "routes", "toolbox"}
    assert questions - beside == {each.answer.__module__.split(".")[3] for each in ENDPOINTS}


def reached_into(source: str) -> list[str]:
    """List where code uses a part of a run, or a private name of another object."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            mine = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "super")
            private = node.attr.startswith("_") and not node.attr.endswith("__") and not mine
            if node.attr in INTERNALS or (private and "run" in ast.unparse(node.value).split(".")[-1]):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return sorted(found)


@pytest.mark.parametrize("folder", ON_THE_PUBLIC_API)
def test_no_adapter_reaches_into_a_run(folder: str) -> None:
    """Training, integrations, compat and demo use methods of a run; the import contract cannot see attributes."""
    files = sorted((SOURCE / folder).rglob("*.py"))
    assert {str(path): found for path in files if (found := reached_into(path.read_text()))} == {}
    assert files


def test_reaching_into_a_run_is_noticed() -> None:
    """A part of a run, of any name, and a private attribute."""
    assert reached_into("run.outcomes.add(1)\nself._run.recorder\nself._run._lock\nself._lock\nrun.log({})") == [
        "1: run.outcomes",
        "2: self._run.recorder",
        "3: self._run._lock",
    ]


def test_the_rooms_of_the_hub() -> None:
    """The document names every package of the hub; few modules are outside packages, and no package has one module."""
    hub = SOURCE / "hub"
    folders = sorted({path.parent for path in hub.glob("*/*.py")})
    assert [each.name for each in folders if f"`{each.name}`" not in PAGE.read_text()] == []
    assert len(list(hub.glob("*.py"))) <= 12
    assert [each.name for each in folders if len(list(each.glob("**/*.py"))) < 3] == []


COMMANDS = frozenset(("alerts", "checkpoints", "control", "demo", "export", "findings", "hub", "quarantine", "runs"))
COMMANDS |= {"samples", "sql", "step", "store"}
"""Commands of the terminal, named after the folder or the question whose content they print."""
MIRRORED = frozenset(("fleet", "dashboards", "importer", "names", "notifiers", "receiver"))
MIRRORED |= {"receivers", "registry", "service", "sinks"}
"""Contracts beside what they test, questions beside rooms, registries of plugins, parts of dialects in the seam."""
FRAMEWORKS = frozenset(("keras",))
"""Frameworks, whose callbacks and vocabularies have their names."""


def used_twice(modules: list[Path]) -> set[str]:
    """The names that several modules or packages have."""
    names = [path.parent.name if path.stem == "__init__" else path.stem for path in modules]
    return {name for name in names if names.count(name) > 1}


def test_a_module_has_a_name_of_its_own() -> None:
    """A name is used once, unless folders mirror each other on purpose: dialects do, other names are listed."""
    outside = [path for path in SOURCE.rglob("*.py") if not path.is_relative_to(SOURCE / "dialects")]
    assert used_twice(outside) == COMMANDS | MIRRORED | FRAMEWORKS
    assert used_twice([Path("sdk/points.py"), Path("hub/points.py"), Path("sdk/runs/__init__.py")]) == {"points"}


def test_a_question_is_a_module_or_a_folder_of_three() -> None:
    """About twenty questions, so that what one shows is found in one place; what they share is in the toolbox."""
    questions = SOURCE / "hub" / "questions"
    folders = {path.parent: list(path.parent.glob("*.py")) for path in questions.glob("*/*.py")}
    assert len(folders) + len(list(questions.glob("*.py"))) <= 24
    several = {each.name: len(found) for each, found in folders.items() if len(found) > 3}
    assert several == {"alerts": 4, "files": 4, "runs": 5, "series": 4}, (
        "with __init__.py, which has no code in most of these"
    )


def test_the_readme_of_the_page_names_what_is_there() -> None:
    """Its hooks, its parts and what its example imports are exported by the page's modules."""
    page = SOURCE / "hub" / "web"
    text = (page / "README.md").read_text()
    modules = [path.read_text() for path in page.rglob("*.js") if "vendor" not in path.parts]
    exported = {name for each in modules for name in re.findall(r"^export [\w* ]*?(\w+)(?= =|\(|;| \{)", each, re.M)}
    hooks = set(re.findall(r"\buse[A-Z]\w+", text))
    imported_names = {name.strip() for each in re.findall(r"import \{([^}]+)\}", text) for name in each.split(",")}
    assert len(hooks) > 5
    assert (hooks | imported_names) - exported - {"html"} == set()
