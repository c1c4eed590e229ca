"""The regular expressions of the package, with the methods by which it uses each."""

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import stepscope

ROOT = Path(stepscope.__file__).parent
_METHODS = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")
_USE = re.compile(rf"\b(?:re|[A-Z0-9_]+)\s*\.\s*(?:{'|'.join(_METHODS)})\b")
"""What every use looks like: few files have one, and this is read in each worker before its first test."""


@dataclass(frozen=True)
class Used:
    """An expression, its module and name or line, and a method that the package calls."""

    place: str
    pattern: "re.Pattern[Any]"
    method: str

    def run(self, text: str) -> object:
        """Apply the method to a text."""
        given: Any = text if isinstance(self.pattern.pattern, str) else text.encode("utf-8", "replace")
        method: Callable[..., Any] = getattr(self.pattern, self.method)
        found = method(given[:0], given) if self.method in ("sub", "subn") else method(given)
        return list(found) if self.method == "finditer" else found


def expressions() -> list[Used]:
    """List each use of each expression, those of modules whose requirements are not installed left out."""
    found: dict[tuple[str, str], Used] = {}
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if _USE.search(source):
            for used in _uses(path, ast.parse(source)):
                found[used.place, used.method] = used
    return list(found.values())


def _uses(path: Path, tree: ast.Module) -> Iterator[Used]:
    name = ".".join(("stepscope", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    module = partial(_module, name)
    for call in calls:
        func = call.func
        assert isinstance(func, ast.Attribute)
        if func.attr not in _METHODS or not isinstance(func.value, ast.Name):
            continue
        if func.value.id == "re":
            yield from _inline(f"{name}:{ast.unparse(call)[:60]}", call, func.attr)
        elif func.value.id.strip("_").isupper() and (loaded := module()) is not None:
            pattern = getattr(loaded, func.value.id, None)
            if hasattr(pattern, "pattern"):
                yield Used(f"{name}.{func.value.id}", pattern, func.attr)


def _inline(place: str, call: ast.Call, method: str) -> Iterator[Used]:
    """The expression of `re.sub(r"...", ...)`, where it is written out."""
    if call.args and isinstance(first := call.args[0], ast.Constant):
        flags = next((each.value for each in call.keywords if each.arg == "flags"), None)
        value = int(eval(ast.unparse(flags), {"re": re})) if flags is not None else 0
        yield Used(place, re.compile(first.value, value), method)


def _module(name: str) -> "ModuleType | None":
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
