"""Hold names and lines to the limits of CONTRIBUTING.md, and list files and functions that are long."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "tests", "tools", "benchmarks")
SUFFIXES = {".py", ".js", ".mjs", ".css", ".html", ".sh"}
FILE_LINES = 400
LINE_LENGTHS = {".js": 140, ".mjs": 140, ".css": 140}
FUNCTION_LINES = 60
EMPTY_WORDS = {"manager", "helper", "util", "base", "common", "handler"}
# A name such as HTTPServer or journal_v2 falls apart into its words.
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def empty_words(name: str) -> list[str]:
    """List the words of a name that say nothing, in the singular or the plural."""
    words = [word.lower() for word in WORD.findall(name)]
    return [word for word in words if word in EMPTY_WORDS or word.removesuffix("s") in EMPTY_WORDS]


def statements(tree: ast.Module) -> list[ast.AST]:
    """List the statements of a module at any depth; its many more expressions define nothing."""
    found: list[ast.AST] = [tree]
    for node in found:
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            parts = getattr(node, name, ())
            if isinstance(parts, list):
                found += parts
    return found


def logging_names(tree: ast.Module) -> set[str]:
    """Return the names under which a module knows logging and what it imported from there."""
    names = set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            modules = [alias for alias in node.names if alias.name.split(".")[0] == "logging"]
            names |= {(alias.asname or alias.name).split(".")[0] for alias in modules}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "logging":
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def may_say_so(node: Definition, known: set[str]) -> bool:
    """Tell whether a name is free: a test's name is a sentence, and logging calls its handlers so itself."""
    if isinstance(node, ast.ClassDef):
        return any(ast.unparse(parent).split(".")[0] in known for parent in node.bases)
    return node.name.startswith("test_")


def code_problems(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield what is wrong with the functions and classes of a Python file."""
    definitions = [node for node in statements(tree) if isinstance(node, Definition)]
    for node, words in ((node, empty_words(node.name)) for node in definitions):
        if words and not may_say_so(node, logging_names(tree)):
            yield from (f"{path}:{node.lineno}: {node.name} is called '{word}', which says nothing" for word in words)


def long_functions(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the functions of a Python file that are longer than most should be."""
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines"


def line_problems(path: Path, text: str) -> Iterator[str]:
    """Yield the lines that are longer than files of this kind allow; Python's are the formatter's business."""
    most = LINE_LENGTHS.get(path.suffix)
    for number, line in enumerate(text.splitlines(), 1):
        if most is not None and len(line) > most:
            yield f"{path}:{number} has {len(line)} characters, more than {most}"


def judge(path: Path, root: Path) -> tuple[list[str], list[str]]:
    """Return what is wrong with one file (its name, the names in it, its longest lines), and what of it is long."""
    shown = path.relative_to(root)
    text = path.read_text(encoding="utf-8")
    problems, advice = list(line_problems(shown, text)), []
    name = path.parent.name if path.stem == "__init__" else path.stem
    if not name.startswith("test_"):
        problems += [f"{shown} is called '{word}', which says nothing" for word in empty_words(name)]
    count = len(text.splitlines())
    if count > FILE_LINES:
        advice.append(f"{shown} has {count} lines")
    if path.suffix == ".py":
        tree = ast.parse(text, str(path))
        problems += code_problems(shown, tree)
        advice += long_functions(shown, tree)
    return problems, advice


def own_files(root: Path) -> Iterator[Path]:
    """Yield the source files of the tree under root; vendored code is not ours to judge."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            parts = path.relative_to(root).parts
            ours = not {"vendor", "node_modules"} & set(parts) and not any(
                part.startswith((".", "__pycache__")) for part in parts
            )
            if ours and path.is_file() and path.suffix in SUFFIXES:
                yield path


def judge_all(root: Path) -> tuple[list[str], list[str]]:
    """Return the problems of the tree under root, and advice: a place to look for a second noun, no reason to fail."""
    found = [judge(path, root) for path in own_files(root)]
    return [each for problems, _ in found for each in problems], [each for _, advice in found for each in advice]


def main(root: Path = ROOT) -> int:
    """Print every problem and fail when there is one; what is only long is listed."""
    problems, advice = judge_all(root)
    for each in (*problems, *(f"advice: {long}; is there a noun to split by?" for long in advice)):
        print(each)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
