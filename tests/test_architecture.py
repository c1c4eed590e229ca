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


@pytest.mark.parametrize("title", walks())
def test_a_walk_is_short_and_true(title: str) -> None:
    """Its files exist, are no more than promised, and each imports one before it or is imported by one before it."""
    most, steps = walks()[title]
    assert 0 < len(steps) <= most
    paths = [(SOURCE if title.startswith("From") else ROOT) / step for step, _ in steps]
    assert [step for (step, _), path in zip(steps, paths, strict=True) if not path.is_file()] == []
    assert len(set(paths)) == len(paths), "a file is listed twice"
    if not title.startswith("From"):
        return
    knows = {path: imported(path) for path in paths}
    for index, (step, by_import) in enumerate(steps[1:], 1):
        before = paths[:index]
        met = any(paths[index] in knows[each] or each in knows[paths[index]] for each in before)
        assert met or not by_import, f"no file before {step} has to do with it: mark the hand-over with {HAND_OVER}"
        assert not (met and not by_import), f"{step} is met by an import: it needs no {HAND_OVER}"


def test_the_four_walks_are_there() -> None:
    """Recording, OpenTelemetry, a sink, and what it takes to add a sink or a receiver."""
    assert {title: most for title, (most, _) in walks().items()} == {
        "From `log()` to the pixel": 26,
        "From an OTLP span to the step inspector": 32,
        "From a record to MLflow": 18,
        "Adding a sink": 4,
        "Adding a receiver": 4,
    }
