"""The part of GraphQL that W&B clients use: operations, variables, aliases, fragments, @include and @skip."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from stepscope.dialects.wandb.receiver.client_json import read_json

MAX_TOKENS = 20_000
DEEPEST = 40
MAX_FIELDS = 200_000
"""The limit of fields per response; nested fragments can multiply them."""
_TOKEN = re.compile(
    r"""[\s,\ufeff]+|\#[^\n\r]*"""
    r"""|(?P<name>[A-Za-z_]\w*)"""
    r"""|(?P<float>-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))|(?P<int>-?\d+)"""
    r'''|"""(?P<block>(?:[^"\\]|\\.|"(?!""))*)"""'''
    r"""|(?P<text>"(?:[^"\\\n]|\\.)*")"""
    r"""|(?P<mark>\.\.\.|[{}()\[\]:!$=@|&])"""
)

Node = Mapping[str, Any]
"""An object: the values of its fields, or functions of their arguments that return them."""


class JsonValue(dict[str, Any]):
    """A JSON object that is returned whole, without a selection of fields."""


class GraphQLError(ValueError):
    """The document cannot be parsed, or selects an unknown field."""


def unsupported(feature: str) -> Callable[[Any], NoReturn]:
    """Return a field that cannot be selected, since an empty answer would read as if all were well."""

    def refuse(given: Any) -> NoReturn:
        raise GraphQLError(f"this Stepscope hub does not support {feature} of W&B")

    return refuse


@dataclass(frozen=True, slots=True)
class Variable:
    """A reference to a variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Selection:
    """A field; with an empty name a fragment, named by `spread` or inline."""

    name: str
    alias: str = ""
    arguments: Mapping[str, Any] | None = None
    directives: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    selections: tuple["Selection", ...] = ()
    spread: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: kind, name, default values of variables, root fields."""

    kind: str
    name: str
    defaults: Mapping[str, Any]
    selections: tuple[Selection, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """The operations and fragments of a request."""

    operations: tuple[Operation, ...]
    fragments: Mapping[str, tuple[Selection, ...]]

    def operation(self, name: str | None = None) -> Operation:
        """Return the operation with a name, or the only one; GraphQLError when there is none."""
        found = [each for each in self.operations if not name or each.name == name]
        if len(found) != 1:
            raise GraphQLError(f"there is no operation {name!r}" if name else "name the operation with operationName")
        return found[0]


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = count = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise GraphQLError(f"syntax error at character {at}: {text[at : at + 20]!r}")
        at = found.end()
        if found.lastgroup:
            count += 1
            if count > MAX_TOKENS:
                raise GraphQLError(f"the query has more than {MAX_TOKENS} tokens")
            yield found.lastgroup, found[found.lastgroup]
    yield "end", ""


class _Parser:
    def __init__(self, text: str) -> None:
        self._rest = list(_tokens(text))
        self._at = 0

    @property
    def _next(self) -> tuple[str, str]:
        return self._rest[self._at]

    def _take(self, kind: str, text: str = "") -> str:
        found, what = self._next
        if found != kind or (text and what != text):
            raise GraphQLError(f"syntax error: expected {text or kind}, found {what or 'the end'!r}")
        self._at += 1
        return what

    def _accept(self, text: str) -> bool:
        if self._next == ("mark", text):
            self._at += 1
            return True
        return False

    def document(self) -> Document:
        operations: list[Operation] = []
        fragments: dict[str, tuple[Selection, ...]] = {}
        while self._next[0] != "end":
            if self._next == ("name", "fragment"):
                self._take("name")
                name = self._take("name")
                self._take("name", "on")
                self._take("name")
                self._directives()
                fragments[name] = self._selections(0)
            else:
                operations.append(self._operation())
        return Document(tuple(operations), fragments)

    def _operation(self) -> Operation:
        kind, name = "query", ""
        defaults: dict[str, Any] = {}
        if self._next[0] == "name":
            kind = self._take("name")
            if kind not in ("query", "mutation"):
                raise GraphQLError(f"this server does not support the operation {kind!r}")
            if self._next[0] == "name":
                name = self._take("name")
            if self._accept("("):
                while not self._accept(")"):
                    self._definition(defaults)
            self._directives()
        return Operation(kind, name, defaults, self._selections(0))

    def _definition(self, defaults: dict[str, Any]) -> None:
        self._take("mark", "$")
        name = self._take("name")
        self._take("mark", ":")
        self._type(0)
        if self._accept("="):
            defaults[name] = self._value(0)
        self._directives()

    def _type(self, depth: int) -> None:
        _bound(depth)
        if self._accept("["):
            self._type(depth + 1)
            self._take("mark", "]")
        else:
            self._take("name")
        self._accept("!")

    def _selections(self, depth: int) -> tuple[Selection, ...]:
        _bound(depth)
        self._take("mark", "{")
        found: list[Selection] = []
        while not self._accept("}"):
            found.append(self._fragment(depth) if self._accept("...") else self._field(depth))
        return tuple(found)

    def _fragment(self, depth: int) -> Selection:
        if self._next[0] == "name" and self._next[1] != "on":
            return Selection("", spread=self._take("name"), directives=self._directives())
        if self._next == ("name", "on"):
            self._take("name")
            self._take("name")
        directives = self._directives()
        return Selection("", directives=directives, selections=self._selections(depth + 1))

    def _field(self, depth: int) -> Selection:
        name, alias = self._take("name"), ""
        if self._accept(":"):
            name, alias = self._take("name"), name
        arguments, directives = self._arguments(), self._directives()
        inner = self._selections(depth + 1) if self._next == ("mark", "{") else ()
        return Selection(name, alias or name, arguments, directives, inner)

    def _directives(self) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        found: list[tuple[str, Mapping[str, Any]]] = []
        while self._accept("@"):
            found.append((self._take("name"), self._arguments()))
        return tuple(found)

    def _arguments(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        if self._accept("("):
            while not self._accept(")"):
                self._pair(found, 0)
        return found

    def _pair(self, into: dict[str, Any], depth: int) -> None:
        name = self._take("name")
        self._take("mark", ":")
        into[name] = self._value(depth)

    def _value(self, depth: int) -> Any:
        _bound(depth)
        if self._accept("$"):
            return Variable(self._take("name"))
        if self._accept("["):
            items: list[Any] = []
            while not self._accept("]"):
                items.append(self._value(depth + 1))
            return items
        if self._accept("{"):
            fields: dict[str, Any] = {}
            while not self._accept("}"):
                self._pair(fields, depth + 1)
            return fields
        kind, text = self._next
        self._at += kind != "end"
        return _scalar(kind, text)


def _scalar(kind: str, text: str) -> Any:
    if kind == "name":
        return {"true": True, "false": False, "null": None}.get(text, text)
    if kind == "block":
        return text.strip()
    if kind not in ("int", "float", "text"):
        raise GraphQLError(f"syntax error: expected a value, found {text or 'the end'!r}")
    try:
        return read_json(text)
    except ValueError:
        raise GraphQLError(f"{text[:40]!r} is not a value") from None


def _bound(depth: int) -> None:
    if depth > DEEPEST:
        raise GraphQLError(f"the query is nested more than {DEEPEST} deep")


def parse(text: str) -> Document:
    """Parse a document, or raise GraphQLError."""
    return _Parser(text).document()


def execute(
    document: Document,
    roots: Mapping[str, Node],
    variables: Mapping[str, Any],
    name: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Resolve what an operation selects from the root object of its kind.

    An unknown field of an object is null, as clients expect of an older server; an unknown root field is a
    GraphQLError. `check` is called again and again, and ends the execution when it raises.
    """
    operation = document.operation(name)
    root = roots.get(operation.kind, {})
    known = {**operation.defaults, **variables}
    return _Execution(document.fragments, known, check).object(operation.selections, root, 0, strict=True)


class _Execution:
    def __init__(
        self,
        fragments: Mapping[str, tuple[Selection, ...]],
        variables: Mapping[str, Any],
        check: Callable[[], None],
    ) -> None:
        self._fragments, self._variables, self._check = fragments, variables, check
        self._count = 0

    def object(
        self, selections: Sequence[Selection], node: Node, depth: int, *, strict: bool = False
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in self._fields(selections, 0):
            if strict and field.name not in node and field.name != "__typename":
                raise GraphQLError(f"this Stepscope hub does not support {field.name[:80]!r}: its GraphQL is W&B's")
            value = node.get(field.name)
            if callable(value):
                self._check()
                value = value(self._given(field.arguments or {}))
            made = self._complete(field, value, depth)
            before = found.get(field.alias)
            found[field.alias] = {**before, **made} if isinstance(before, dict) and isinstance(made, dict) else made
        return found

    def _bound_size(self) -> None:
        self._count += 1
        if self._count > MAX_FIELDS:
            raise GraphQLError(f"the answer has more than {MAX_FIELDS} fields")

    def _complete(self, field: Selection, value: Any, depth: int) -> Any:
        self._bound_size()
        _bound(depth)
        if not field.selections:
            return (
                None if callable(value) or (isinstance(value, Mapping) and not isinstance(value, JsonValue)) else value
            )
        if isinstance(value, Mapping):
            return self.object(field.selections, value, depth + 1)
        if isinstance(value, (list, tuple)):
            return [self._complete(field, each, depth) for each in value]
        return None

    def _fields(self, selections: Sequence[Selection], depth: int) -> Iterator[Selection]:
        _bound(depth)
        for each in selections:
            self._bound_size()
            if not self._wanted(each):
                continue
            if each.name:
                yield each
            elif not each.spread:
                yield from self._fields(each.selections, depth + 1)
            elif each.spread in self._fragments:
                yield from self._fields(self._fragments[each.spread], depth + 1)
            else:
                raise GraphQLError(f"there is no fragment {each.spread!r}")

    def _wanted(self, selection: Selection) -> bool:
        given = [(name, self._given(arguments).get("if")) for name, arguments in selection.directives]
        return all(value for name, value in given if name == "include") and not any(
            value for name, value in given if name == "skip"
        )

    def _given(self, value: Any) -> Any:
        if isinstance(value, Variable):
            return self._variables.get(value.name)
        if isinstance(value, dict):
            return {key: self._given(each) for key, each in value.items()}
        return [self._given(each) for each in value] if isinstance(value, list) else value
