"""Write docs/reference.md: the Python API from its docstrings, and the HTTP API from its endpoints and their types."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import stepscope
from stepscope.hub.questions.openapi import ENDPOINTS, schemas
from stepscope.hub.questions.toolbox.endpoint import PARTIAL, Endpoint
from stepscope.model.records import Word

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"
BEHIND = {
    "Run": ("after_fork", "asks_to_stop", "checkpoints", "remote_control", "stop_asked"),
    "Span": ("blame", "fail", "packed"),
}
"""Members of public classes that only other modules of Stepscope use."""
LONGEST = 110
_HEAD = """# Reference

Written by `python tools/reference.py` from the sources, and checked by a test. What to use when is in
[recording](recording.md) and [the JSON API](api.md).
"""


def page() -> str:
    """The whole page."""
    public = [name for name in stepscope.__all__ if name[0].islower()]
    classes = [name for name in stepscope.__all__ if not name[0].islower()]
    parts = [_HEAD, "## Python\n", *(_entry(f"stepscope.{name}", getattr(stepscope, name), "###") for name in public)]
    for name in classes:
        parts += _class(name, getattr(stepscope, name))
    parts.append("## HTTP\n\nPaths are below the address of a hub. Each answers with JSON unless it says otherwise.\n")
    bodies, answers, shapes = schemas(ENDPOINTS)
    known = {(each.path, each.method): pair for each, *pair in zip(ENDPOINTS, bodies, answers, strict=True)}
    for each in sorted(ENDPOINTS, key=lambda each: (each.path, each.method)):
        parts.append(_endpoint(each, *known[each.path, each.method]))
    parts.append(
        "## Bodies and answers\n\nFields of one type and meaning share a row. A number that is not finite is one of "
        "the strings NaN, Infinity and -Infinity. What is read from the store may have `partial`, a "
        "[`Partial`](#partial).\n"
    )
    parts += [_shape(name, shape) for name, shape in sorted(shapes.items())]
    return "\n".join(parts)


def _class(name: str, made: type) -> Iterator[str]:
    begin = made.__dict__.get("__init__")
    arguments = _signature(begin, drop=True) if name not in ("Run", "Span") and inspect.isfunction(begin) else ""
    yield f"### `stepscope.{name}`\n\n{_block(f'stepscope.{name}', arguments)}{_words(made)}\n"
    for member, found in sorted(made.__dict__.items()):
        if member.startswith("_") or member in BEHIND.get(name, ()) or not _is_described(found):
            continue
        prefix = name.lower() if name in ("Run", "Span") else name
        yield _entry(f"{prefix}.{member}", found, "####", drop=True)


def _is_described(found: Any) -> bool:
    called = found.fget if isinstance(found, property) else found
    return callable(called) and inspect.isfunction(inspect.unwrap(called)) and bool(called.__doc__)


def _entry(name: str, found: Any, level: str, *, drop: bool = False) -> str:
    called = found.fget if isinstance(found, property) else found
    arguments = "" if isinstance(found, property) or inspect.isclass(found) else _signature(called, drop=drop)
    return f"{level} `{name}`\n\n{_block(name, arguments)}{_words(called)}\n"


def _block(name: str, arguments: str) -> str:
    """How it is called, in lines where it is long; empty for what is not called."""
    if not arguments:
        return ""
    line = name + arguments
    if len(line) > LONGEST:
        inside, _, back = arguments[1:].rpartition(")")
        line = f"{name}(\n    " + ",\n    ".join(_apart(inside)) + f",\n){back}"
    return f"```\n{line}\n```\n\n"


def _apart(inside: str) -> Iterator[str]:
    """The arguments of a call: commas within brackets belong to one of them."""
    depth, begun = 0, 0
    for at, letter in enumerate(inside):
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and not depth:
            yield inside[begun:at].strip()
            begun = at + 1
    yield inside[begun:].strip()


def _signature(called: Any, *, drop: bool) -> str:
    """The arguments as they are written in the source, which is the same for every Python; `drop`: without self."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(called))))
    (function,) = (node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    arguments = function.args
    if drop:
        (arguments.posonlyargs or arguments.args).pop(0)
    text = ast.unparse(arguments).replace("'", '"').removeprefix("/, ")
    back = f" -> {ast.unparse(function.returns)}" if function.returns and function.name != "__init__" else ""
    return f"({text}){back}".replace("'", '"')


def _words(found: Any) -> str:
    return inspect.cleandoc(found.__doc__ or "")


def _endpoint(endpoint: Endpoint, body: dict[str, Any], answer: dict[str, Any]) -> str:
    head = f"### `{endpoint.method} {endpoint.path}`\n\n{endpoint.text}\n"
    kinds = [each for each in endpoint.media_types if each != "application/json"]
    content = ", ".join(f"`{each}`" for each in kinds) or _type(answer)
    also = (
        f"\nIt answers with {content}.\n"
        if endpoint.body is None
        else f"\nIt takes {_type(body)} and answers with {content}.\n"
    )
    rows = [f"| `{each.name}` | {_kind(each.schema())} | {_cell(each.text)}{_more(each)} |" for each in endpoint.params]
    table = "\n| parameter | type | |\n|---|---|---|\n" + "\n".join(rows) + "\n" if rows else ""
    attrs = "\n`attr.KEY=VALUE` selects by attributes.\n" if endpoint.attrs else ""
    return head + also + table + attrs


def _shape(name: str, shape: dict[str, Any]) -> str:
    """A body, an answer, or a part of one: its fields in a table, those of one type and meaning in a row."""
    fields: dict[tuple[str, str], list[str]] = {}
    for field, each in shape["properties"].items():
        if field != PARTIAL:
            missing = "" if field in shape["required"] else ", may be missing"
            fields.setdefault((_type(each) + missing, _about(each)), []).append(f"`{field}`")
    rows = [f"| {', '.join(named)} | {type} | {about} |" for (type, about), named in fields.items()]
    table = "| field | type | |\n|---|---|---|\n" + "\n".join(rows)
    return f"### `{name}`\n\n{inspect.cleandoc(shape.get('description', ''))}\n\n{table}\n"


def _about(schema: dict[str, Any]) -> str:
    examples = ", ".join(f"`{each}`" for each in schema.get("examples", ()))
    return _cell(schema.get("description", "") + (f"Such as {examples}." if examples else ""))


def _type(schema: dict[str, Any]) -> str:
    """A type in words; that a number may be one of the words for those that are not finite is said once."""
    if name := schema.get("$ref", "").rpartition("/")[2]:
        return f"[`{name}`](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"] if set(each.get("enum", ())) != set(get_args(Word)))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(inner := schema.get("additionalProperties"), dict):
        return f"object of {_type(inner)}"
    return str(schema.get("type", "anything"))


def _kind(schema: dict[str, Any]) -> str:
    if schema["type"] == "array":
        return f"{_kind(schema['items'])}, up to {schema['maxItems']} times"
    return ", ".join(f"`{each}`" for each in schema["enum"]) if "enum" in schema else str(schema["type"])


def _more(param: Any) -> str:
    return " (required)" if param.required else f" (default `{param.default}`)" if param.default is not None else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Write the page, or with --check say whether it is current."""
    made = page()
    if "--check" in sys.argv[1:]:
        if PAGE.exists() and PAGE.read_text() == made:
            return 0
        print("docs/reference.md is not current: run python tools/reference.py", file=sys.stderr)
        return 1
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
