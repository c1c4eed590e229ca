"""YAML read into msgspec structs; a mistake is reported with its line and column."""

import re
from typing import Any, Generic, TypeVar

import msgspec
import yaml
from yaml.constructor import SafeConstructor

from stepscope.model.errors import StepscopeError
from stepscope.wire import yaml_text

DEEPEST = 20
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
Kind = TypeVar("Kind")


class Mistake(StepscopeError):
    """The text is invalid; `line` and `column` count from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class Document(Generic[Kind]):
    """A parsed text, and the positions of its parts."""

    def __init__(self, value: Kind, node: Any) -> None:
        self.value = value
        self._node = node

    def mistake(self, message: str, path: str) -> Mistake:
        """A mistake in the part at a path such as `$.charts[2].keys`, or in its parent if it does not exist."""
        return Mistake(message, *self.place(path))

    def place(self, path: str) -> tuple[int, int]:
        """The line and column of a part, or of its parent if it does not exist."""
        return _place(_find(self._node, path).start_mark)


def read(text: str, kind: type[Kind], *, longest: int, what: str, example: str) -> Document[Kind]:
    """Read a text into a struct; Mistake if it is invalid, with `what` it should be and an `example`."""
    if len(text) > longest:
        raise Mistake(f"{what} must have at most {longest} characters, got {len(text)}")
    node = _compose(text)
    if node is None:
        raise Mistake(f"the document is empty: write {example}")
    value = _value(node, DEEPEST)
    try:
        made = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        found = _find(node, path.strip("`"))
        reason = _choices(kind, path.strip("`"), found) or _plainer(message)
        raise Mistake(reason, *_place(_blamed(found, message).start_mark)) from None
    return Document(made, node)


class _Loader(yaml_text.Loader):
    """Refuses aliases, which could make a small text endless."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node."""
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            raise Mistake("anchors and aliases are not allowed", *_place(event.start_mark))
        return super().compose_node(parent, index)


def _compose(text: str) -> Any:
    """The nodes of a text."""
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        message = ", ".join(part for part in (error.context, error.problem) if part)
        mark = error.problem_mark or error.context_mark
        raise Mistake(message or "not valid YAML", *(_place(mark) if mark else (1, 1))) from None
    except yaml.YAMLError as error:
        raise Mistake(f"not valid YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise Mistake("this is nested too deeply") from None


def _place(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def _value(node: Any, depth: int) -> Any:
    """The value of a node, as plain data."""
    if depth == 0:
        raise Mistake("this is nested too deeply", *_place(node.start_mark))
    if isinstance(node, yaml.MappingNode):
        made: dict[str, Any] = {}
        for key, inner in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if not name or name in made:
                problem = f"{name} is given twice" if name else "a name must be a word"
                raise Mistake(problem, *_place(key.start_mark))
            made[name] = _value(inner, depth - 1)
        return made
    if isinstance(node, yaml.SequenceNode):
        return [_value(inner, depth - 1) for inner in node.value]
    return _scalar(node)


def _scalar(node: Any) -> Any:
    try:
        return SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        message = getattr(error, "problem", None) or str(error)
        raise Mistake(f"{str(node.value)[:40]!r} cannot be read: {message}", *_place(node.start_mark)) from None


def _find(node: Any, path: str) -> Any:
    """The node at a path, or the last one on the way."""
    for name, index in _STEP.findall(path.removeprefix("$")):
        if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
            node = node.value[int(index)]
        elif isinstance(node, yaml.MappingNode):
            found = [inner for key, inner in node.value if key.value == name]
            if not found:
                return node
            node = found[0]
    return node


def _blamed(node: Any, message: str) -> Any:
    """The node to report: in a mapping the unknown key, where that is the mistake."""
    unknown = re.search(r"unknown field `(.*)`", message)
    keys = node.value if unknown and isinstance(node, yaml.MappingNode) else ()
    return next((key for key, _ in keys if unknown and key.value == unknown[1]), node)


def _choices(kind: Any, path: str, node: Any) -> str:
    """The allowed words at a path, if another word is there."""
    info: Any = msgspec.inspect.type_info(kind)
    for name, index in _STEP.findall(path.removeprefix("$")):
        options = [info, *getattr(info, "types", ())]
        if index:
            info = next((each.item_type for each in options if hasattr(each, "item_type")), None)
        else:
            fields = [field for each in options for field in getattr(each, "fields", ())]
            info = next((field.type for field in fields if field.encode_name == name), None)
    literals = [each for each in (info, *getattr(info, "types", ())) if isinstance(each, msgspec.inspect.LiteralType)]
    known = [str(value) for each in literals for value in each.values]
    if not known or not isinstance(node, yaml.ScalarNode):
        return ""
    return f"{str(node.value)[:40]!r} is not one of {', '.join(known)}"


def _plainer(message: str) -> str:
    """A validation message in plain words."""
    words = {"Object missing required field": "this lacks", "Object contains unknown field": "there is no field"}
    for original, plain in words.items():
        message = message.replace(original, plain)
    kinds = {"`str`": "a text", "`int`": "a whole number", "`float`": "a number", "`array`": "a list"}
    kinds |= {"`object`": "names with values", "`bool`": "true or false", "`null`": "nothing"}
    kinds |= {"`float | null`": "a number", "`str | null`": "a word"}
    for original, plain in kinds.items():
        message = message.replace(original, plain)
    return message
