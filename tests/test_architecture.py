"""The walks of docs/architecture.md lead through files that exist, know each other, and are few."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "stepscope"
PAGE = ROOT / "docs" / "architecture.md"
HAND_OVER = "⇢"
"""Marks a file that is reached through the disk, the network or an entry point instead of an import."""


ON_THE_PUBLIC_API = ("training", "integrations", "compat", "demo")
INTERNALS = frozenset(("outcomes", "recorder", "flusher", "periodic"))
"""The parts of a run that only the SDK uses."""


def walks() -> dict[str, tuple[int, list[tuple[str, bool]]]]:
    """Read the walks: their titles, how many files they may have, and the files with whether an import leads there."""
    found: dict[str, tuple[int, list[tuple[str, bool]]]] = {}
    pattern = r"^### (.+?) \(at most (\d+) files\)\n(.*?)(?=^##|\Z)"
    for title, most, body in re.findall(pattern, PAGE.read_text(), re.M | re.S):
        steps = re.findall(rf"^\d+\. ({HAND_OVER} )?`([^`]+)`", body, re.M)
        found[title] = int(most), [(path, not marked) for marked, path in steps]
    return found


def imported(path: Path) -> set[Path]:
    """The files of the project that a file imports, whenever it does."""
    if path.suffix == ".js":
        names = re.findall(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']""", path.read_text())
        return {(path.parent / name).resolve() for name in names}
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("stepscope"):
            parts = node.module.split(".")[1:]
            found |= {_file([*parts, each.name]) or _file(parts) or SOURCE for each in node.names}
        elif isinstance(node, ast.Import):
            names = [each.name.split(".") for each in node.names if each.name.startswith("stepscope")]
            found |= {_file(parts[1:]) or SOURCE for parts in names}
    return found


def _file(parts: list[str]) -> Path | None:
    place = SOURCE.joinpath(*parts)
    return next((each for each in (place.with_suffix(".py"), place / "__init__.py") if each.exists()), None)


def problems(most: int, steps: list[tuple[str, bool]], root: Path) -> list[str]:
    """List what is wrong with a walk: its length, files that do not exist, files that no earlier one imports."""
    paths = [root / step for step, _ in steps]
    found = [f"{step} does not exist" for (step, _), path in zip(steps, paths, strict=True) if not path.is_file()]
    if not 0 < len(steps) <= most:
        found.append(f"{len(steps)} files, where at most {most} are allowed")
    if len(set(paths)) < len(paths):
        found.append("a file is listed twice")
    if found or root == ROOT:
        return found
    imports = {path: imported(path) for path in paths}
    for index, (step, by_import) in enumerate(steps[1:], 1):
        linked = any(paths[index] in imports[each] or each in imports[paths[index]] for each in paths[:index])
        if linked != by_import:
            found.append(f"{step}: {'needs no' if linked else 'no import leads here, so it needs'} {HAND_OVER}")
    return found


@pytest.mark.parametrize("title", walks())
def test_a_walk_is_short_and_true(title: str) -> None:
    """Its files exist, are no more than promised, and each imports an earlier one or is imported by it."""
    most, steps = walks()[title]
    assert problems(most, steps, SOURCE if title.startswith("From") else ROOT) == []


@pytest.mark.parametrize("title", [each for each in walks() if each.startswith("From")])
def test_a_walk_that_grows_or_skips_a_file_fails(title: str) -> None:
    """One file beyond the limit, one that is gone, and a step that no import leads to are each reported."""
    most, steps = walks()[title]
    listed = {step for step, _ in steps}
    others = [str(path.relative_to(SOURCE)) for path in sorted(SOURCE.rglob("*.py"))]
    longer = [*steps, *((each, True) for each in others if each not in listed)][: most + 1]
    assert f"{most + 1} files, where at most {most} are allowed" in problems(most, longer, SOURCE)
    assert problems(most, [*steps[:-1], ("gone.py", True)], SOURCE) == ["gone.py does not exist"]
    apart = problems(most, [steps[0], ("demo/game.py", True)], SOURCE)
    assert apart == [f"demo/game.py: no import leads here, so it needs {HAND_OVER}"]


@pytest.mark.parametrize("title", [each for each in walks() if each.startswith("Adding")])
def test_a_plugin_is_known_to_its_registry_alone(title: str) -> None:
    """No other source file names it, so that adding one takes no more files than the walk says."""
    module, test, page, registry = (ROOT / step for step, _ in walks()[title][1])
    name = ".".join(module.relative_to(ROOT / "src").with_suffix("").parts)
    assert {path for path in SOURCE.rglob("*.py") if name in path.read_text()} == {registry}
    assert all(module.stem in path.read_text().lower() for path in (test, page))


def test_the_four_walks_are_there() -> None:
    """Recording, OpenTelemetry, a sink, and what it takes to add a sink or a receiver."""
    assert {title: most for title, (most, _) in walks().items()} == {
        "From `log()` to the pixel": 26,
        "From an OTLP span to the step inspector": 32,
        "From a record to MLflow": 18,
        "Adding a sink": 4,
        "Adding a receiver": 4,
    }


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
    assert len(list(hub.glob("*.py"))) <= 10
    assert [each.name for each in folders if len(list(each.glob("**/*.py"))) < 3] == []


COMMANDS = frozenset(("alerts", "demo", "export", "findings", "hub", "quarantine", "runs", "step", "store"))
"""Commands of the terminal, named after the folder or the question whose content they print."""
PEERS = frozenset(("datadog", "mlflow", "otlp", "otlp_grpc", "prometheus", "tensorboard", "tinker", "wandb"))
"""Other systems: what is sent to, received from, imported from and written for each has its name."""
MIRRORED = frozenset(("cluster", "dashboards", "notifiers", "receivers", "registry", "run_files", "service", "sinks"))
"""Contracts beside what they test, questions beside rooms, registries of plugins, files of runs by client."""


def used_twice(modules: list[Path]) -> set[str]:
    """The names that several modules or packages have."""
    names = [path.parent.name if path.stem == "__init__" else path.stem for path in modules]
    return {name for name in names if names.count(name) > 1}


def test_a_module_has_a_name_of_its_own() -> None:
    """A name is used once, unless folders mirror each other on purpose; those names are listed."""
    assert used_twice(list(SOURCE.rglob("*.py"))) == COMMANDS | PEERS | MIRRORED
    assert used_twice([Path("sdk/points.py"), Path("hub/points.py"), Path("sdk/runs/__init__.py")]) == {"points"}


def test_a_question_is_a_module_or_a_folder_of_three() -> None:
    """About twenty questions, so that what one shows is found in one place; what they share is in the toolbox."""
    questions = SOURCE / "hub" / "questions"
    folders = {path.parent: list(path.parent.glob("*.py")) for path in questions.glob("*/*.py")}
    assert len(folders) + len(list(questions.glob("*.py"))) <= 21
    several = {each.name: len(found) for each, found in folders.items() if len(found) > 3}
    assert several == {"alerts": 4, "toolbox": 6}, "with __init__.py, which has no code in these"


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
