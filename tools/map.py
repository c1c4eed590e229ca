"""Generate MAP.md: a line for each module from its docstring, in the order in which a record travels."""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/stepscope"
# The order of the folders inside the package; one that is not named here comes last.
PIPELINE = ["model", "wire", "journal", "sinks", "sdk", "training", "integrations", "alerts"]
PIPELINE += ["hub", "demo", "cli", "testing"]
HEAD = """# Map

One line for each module, generated from its docstring by `make fmt`. The folders come in the order in which a
record travels; each folder's own sentence stands under its name.
"""


class NoSentence(Exception):
    """A module that does not say what is in it."""


def first_sentence(source: str) -> str:
    """Return the first sentence of a module's docstring on one line, or "" where there is none."""
    paragraph = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0]
    text = " ".join(paragraph.split())
    match = re.match(r".*?[.!?](?=\s+[A-Z`*]|$)", text)
    return match[0] if match else text


def folders(root: Path) -> Iterator[Path]:
    """Yield the folders that hold modules: the package in pipeline order, then what serves it."""
    package = root / PACKAGE
    parts = [path for path in package.glob("*") if path.is_dir()]
    parts.sort(key=lambda path: (PIPELINE.index(path.name) if path.name in PIPELINE else len(PIPELINE), path))
    yield package
    for top in (*parts, root / "benchmarks", root / "tools"):
        below = sorted(path for path in top.rglob("*") if path.is_dir())
        yield from (folder for folder in (top, *below) if any(folder.glob("*.py")))


def section(folder: Path, root: Path) -> str:
    """Describe one folder: its own sentence, then a line for each module in it."""
    lines = [f"## {folder.relative_to(root).as_posix()}", ""]
    for path in sorted(folder.glob("*.py")):
        name = path.relative_to(root).as_posix()
        sentence = first_sentence(path.read_text(encoding="utf-8"))
        if not sentence:
            raise NoSentence(f"{name}: the module has no docstring")
        if path.name == "__init__.py":
            lines += [sentence, ""]
        else:
            lines.append(f"- [`{path.name}`]({name}): {sentence}")
    return "\n".join(lines).rstrip() + "\n"


def render(root: Path) -> str:
    """Return the whole text of MAP.md for the tree under root."""
    return "\n".join([HEAD, *(section(folder, root) for folder in folders(root))])


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write MAP.md, or with --check only say whether it is still true."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when MAP.md is stale, write nothing")
    check = parser.parse_args(arguments).check
    target = root / "MAP.md"
    try:
        text = render(root)
    except NoSentence as problem:
        print(problem)
        return 1
    if not check:
        target.write_text(text, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != text:
        print("MAP.md is stale: run `make fmt`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
