"""docs/threads.md names every thread, pool, lock and queue of the package, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import stepscope

PACKAGE = Path(stepscope.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "threads.md"
MODULES = {"threading", "queue", "asyncio", "concurrent.futures", "multiprocessing"}
KINDS = {"Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "Lock", "RLock", "Condition", "Semaphore"}
KINDS |= {"BoundedSemaphore", "Barrier", "Queue", "LifoQueue", "PriorityQueue", "SimpleQueue"}
OURS = {"Workers", "Periodic"}
"""Threads of the hub by the classes that make them."""


def made(code: str) -> set[str]:
    """The places of a module that make one: `Class.attribute`, or the function where it is no attribute."""
    tree = ast.parse(code)
    imported = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in MODULES
        for name in node.names
    }

    def is_one(kind: ast.expr) -> bool:
        if isinstance(kind, ast.Name):
            return kind.id in OURS or (kind.id in KINDS and kind.id in imported)
        return isinstance(kind, ast.Attribute) and kind.attr in KINDS and ast.unparse(kind.value) in MODULES

    def places(node: ast.AST, scope: list[str], owner: str, target: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inside, of, to = scope, owner, target
            if isinstance(child, ast.ClassDef):
                inside, of = [*scope, child.name], child.name
                if any(map(is_one, child.bases)):
                    yield child.name
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = [*scope, child.name]
            elif isinstance(child, ast.Assign | ast.AnnAssign):
                first = child.targets[0] if isinstance(child, ast.Assign) else child.target
                first = first.elts[0] if isinstance(first, ast.Tuple) else first
                own = isinstance(first, ast.Attribute) and ast.unparse(first.value) == "self"
                to = f"{owner}.{first.attr}" if own else ast.unparse(first) if not scope else ""
            elif isinstance(child, ast.Call) and is_one(child.func):
                yield target or ".".join(scope)
            yield from places(child, inside, of, to)

    return set(places(tree, [], "", ""))


def found() -> set[str]:
    """All places of the package, in the files that have the name of a kind at all."""
    named = re.compile("|".join(sorted(KINDS | OURS)))
    texts = {path.relative_to(PACKAGE): path.read_text() for path in PACKAGE.rglob("*.py")}
    return {f"{path} {place}" for path, text in texts.items() if named.search(text) for place in made(text)}


def test_the_page_names_them_all() -> None:
    """Both ways: what is made and not named, and what is named and not made."""
    listed = [f"{file} {place}" for file, place in re.findall(r"(?m)^\| `([^`]+)` `([^`]+)` \|", PAGE.read_text())]
    assert len(listed) == len(set(listed)), "named twice"
    there = found()
    assert there - set(listed) == set(), "made, and not on the page"
    assert set(listed) - there == set(), "on the page, and not made"


def test_each_says_what_it_owns_and_waits_for() -> None:
    """No row of the page is left empty."""
    rows = [line.split("|")[2:-1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert rows
    assert all(len(row) == 2 and all(cell.strip() for cell in row) for row in rows)


def test_every_form_is_noticed() -> None:
    """An attribute, a local variable, a list of them, a class of its own, a name imported."""
    code = """
import threading
from queue import Queue
lock = threading.Lock()
class Own(threading.Thread):
    def __init__(self):
        self.a, self.b = threading.Event(), 1
        self.locks = [threading.Lock() for _ in range(2)]
    def go(self):
        thread = threading.Thread(target=print)
        return Condition("not a lock")
def make():
    return Queue()
"""
    assert made(code) == {"lock", "Own", "Own.locks", "Own.go", "make"}
