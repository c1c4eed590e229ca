"""The document of a JSON request, parsed and brought to the specification's spelling."""

import json
import re
from typing import Any

import msgspec

from stepscope.wire.otlp.refusals import BadRequest

_SNAKE = re.compile("_([a-z])")
_LEVELS = 16


def parse(data: bytes) -> Any:
    """Parse JSON; bare NaN and Infinity and half surrogate pairs, as Python's json writes them, are tolerated.

    So is snake_case.
    """
    try:
        document = _load(data)
        return _camel(document) if _is_snake(document, _LEVELS) else document
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


def _load(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except ValueError:
        return _written(json.loads(data))


def _written(node: Any) -> Any:
    """The same with U+FFFD for half a surrogate pair, which passes json.loads but could never be written again."""
    if type(node) is str:
        return node if node.isascii() else node.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if type(node) is list:
        return [_written(inner) for inner in node]
    if type(node) is dict:
        return {_written(key): _written(inner) for key, inner in node.items()}
    return node


def _is_snake(node: Any, levels: int) -> bool:
    """Look for snake_case along the first element of each array: cheap, and a client is consistent."""
    if levels == 0:
        return False
    if type(node) is list:
        return bool(node) and _is_snake(node[0], levels - 1)
    if type(node) is not dict:
        return False
    return any("_" in key for key in node) or any(_is_snake(inner, levels - 1) for inner in node.values())


def _camel(node: Any) -> Any:
    if type(node) is list:
        return [_camel(inner) for inner in node]
    if type(node) is dict:
        return {_SNAKE.sub(_upper, key): _camel(inner) for key, inner in node.items()}
    return node


def _upper(match: re.Match[str]) -> str:
    return match[1].upper()
