"""Parameters of endpoints, checked before any query, types that several answers have, and refusals of requests."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypedDict, TypeVar

from msgspec import Meta, MsgspecError, json

from stepscope.hub.refusals import Refusal, Refused
from stepscope.model.records import FIRST_STEP, LAST_STEP

Schema = dict[str, Any]
Body = TypeVar("Body")

Attrs = Annotated[dict[str, Any], Meta(description="Attributes by name.")]
Ms = Annotated[float | None, Meta(description="Milliseconds.")]
Next = Annotated[int | None, Meta(description="The `offset` of the next page; null after the last.")]
Binary = Annotated[str, Meta(extra_json_schema={"format": "binary"})]
"""The content of a file."""
Replaced = Annotated[
    str | None,
    Meta(description="The version that this replaces, as it was read; if it is not the present one, nothing is saved."),
]


def one_of(words: Iterable[str]) -> Meta:
    """A text that is one of some words."""
    return Meta(extra_json_schema={"enum": list(words)})


class MistakeJson(TypedDict):
    """Where a text is wrong, and why."""

    line: int
    column: int
    message: str


class Problem(TypedDict):
    """Why a request was refused."""

    code: str
    message: str


class Error(TypedDict):
    """The answer to a request that was refused."""

    error: Problem


def seconds(ns: int) -> float | None:
    """A time in seconds to the microsecond; None for 0."""
    return round(ns / 1e9, 6) if ns else None


def milliseconds(ns: float | None) -> float | None:
    """A duration in milliseconds; None when it is not known."""
    return None if ns is None else round(ns / 1e6, 6)


Kind = Literal["text", "integer", "number", "boolean", "choice", "hex", "name"]
LONGEST_TEXT = 4096
MAX_ATTRS = 32
"""Attributes in one request; with a thousand, the engine takes seconds before it reads a row."""
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"-?(?:[0-9]++\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_NAME = "[a-z0-9][a-z0-9_-]{0,62}"
_ATTR = re.compile(r"attr(?:\.(.+)|\[(.+)\])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter. `width`: the bytes of a hex id; `many`: how often it may be given, 0 for once."""

    name: str
    kind: Kind
    text: str
    default: Any = None
    required: bool = False
    many: int = 0
    choices: tuple[str, ...] = ()
    low: int = FIRST_STEP
    high: int = LAST_STEP
    width: int = 0
    place: Literal["query", "path"] = "query"

    def read(self, given: str) -> Any:
        """Parse a value, or raise Refused."""
        found = _READERS[self.kind](self, given)
        if found is None:
            raise bad_request(f"{self.name} is {_clip(given)!r} and must be {self._wanted()}")
        return found

    def _wanted(self) -> str:
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "hex":
            return f"{2 * self.width} hexadecimal digits"
        if self.kind == "name":
            return "1 to 63 small letters, digits, - and _, the first a letter or digit"
        if self.kind == "text":
            return f"a text of at most {LONGEST_TEXT} characters"
        if self.kind == "integer" and (self.low, self.high) != (FIRST_STEP, LAST_STEP):
            return f"an integer from {self.low} to {self.high}"
        return {"integer": "an integer", "number": "a number", "boolean": "true or false"}[self.kind]

    def schema(self) -> dict[str, Any]:
        """Describe its values in JSON Schema."""
        made = self._value_schema()
        if self.default is not None and not self.many:
            made["default"] = self.default
        return {"type": "array", "items": made, "maxItems": self.many} if self.many else made

    def _value_schema(self) -> dict[str, Any]:
        if self.kind == "choice":
            return {"type": "string", "enum": list(self.choices)}
        if self.kind == "hex":
            return {"type": "string", "pattern": f"^[0-9a-fA-F]{{{2 * self.width}}}$"}
        if self.kind == "name":
            return {"type": "string", "pattern": f"^{_NAME}$"}
        if self.kind == "text":
            least = 1 if self.place == "path" else 0
            return {"type": "string", "minLength": least, "maxLength": LONGEST_TEXT}
        if self.kind == "integer":
            return {"type": "integer", "minimum": self.low, "maximum": self.high}
        return {"type": self.kind}


def bad_request(message: str) -> Refused:
    """The refusal of a request that cannot be understood."""
    return Refused(Refusal(HTTPStatus.BAD_REQUEST, message))


def not_found(message: str) -> Refused:
    """The refusal of a request for something that does not exist, or may not be seen."""
    return Refused(Refusal(HTTPStatus.NOT_FOUND, message))


def forbidden(message: str) -> Refused:
    """The refusal of a request that its token does not allow."""
    return Refused(Refusal(HTTPStatus.FORBIDDEN, message))


def check_shared(only: str | None, given: Mapping[str, Any]) -> None:
    """Refuse a request that does not name the only run its client may read, and no other."""
    if only is not None and given.get("run") not in (only, [only]):
        raise forbidden(f"this link shows the run {only} and nothing else")


def conflict(message: str) -> Refused:
    """The refusal of a request that the state of a run does not allow."""
    return Refused(Refusal(HTTPStatus.CONFLICT, message))


def unavailable(message: str, retry_after: float) -> Refused:
    """The refusal of a request that may succeed after `retry_after` seconds."""
    return Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, message, retry_after))


def decode_body(kind: type[Body], body: bytes, example: str) -> Body:
    """Decode the body of a request, or refuse it with an example of what to send."""
    try:
        return json.decode(body, type=kind)
    except (MsgspecError, UnicodeDecodeError) as error:
        raise bad_request(f"send {example}: {error}") from None


def _clip(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def _integer(param: Param, given: str) -> int | None:
    if _INTEGER.fullmatch(given) is None or not param.low <= int(given) <= param.high:
        return None
    return int(given)


def _number(param: Param, given: str) -> float | None:
    if _NUMBER.fullmatch(given) is None:
        return None
    number = float(given)
    return number if math.isfinite(number) else None


def _text(param: Param, given: str) -> str | None:
    return given if len(given) <= LONGEST_TEXT else None


def _hex(param: Param, given: str) -> bytes | None:
    if re.fullmatch(f"[0-9a-fA-F]{{{2 * param.width}}}", given) is None:
        return None
    return bytes.fromhex(given)


_ATTR_TEXT = Param("attr.KEY", "text", "")
_READERS: dict[str, Any] = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "boolean": lambda param, given: _WORDS.get(given.lower()),
    "choice": lambda param, given: given if given in param.choices else None,
    "hex": _hex,
    "name": lambda param, given: given if re.fullmatch(_NAME, given) else None,
}


def check(
    params: Iterable[Param], path: Mapping[str, str], query: Iterable[tuple[str, str]], *, attrs: bool
) -> dict[str, Any]:
    """Check the parameters of a request; the result has an entry for each, and `attrs` holds those of attr.KEY."""
    known = {param.name: param for param in params}
    lists: dict[str, list[str]] = {}
    wanted: dict[str, str] = {}
    for name, value in (*path.items(), *query):
        found = _ATTR.fullmatch(name) if attrs else None
        if found is not None:
            wanted[_ATTR_TEXT.read(found[1] or found[2])] = _ATTR_TEXT.read(value)
            if len(wanted) > MAX_ATTRS:
                raise bad_request(f"attr.KEY may be given at most {MAX_ATTRS} times")
        elif name in known:
            lists.setdefault(name, []).append(value)
        else:
            also = [*sorted(known), *(["attr.KEY"] if attrs else [])]
            raise bad_request(f"there is no parameter {_clip(name)!r}; there are {', '.join(also) or 'none'}")
    checked = {name: _one(param, lists.get(name, [])) for name, param in known.items()}
    return {**checked, "attrs": wanted}


def _one(param: Param, given: list[str]) -> Any:
    if param.required and not given:
        raise bad_request(f"{param.name} is missing: {param.text}")
    if param.many:
        if len(given) > param.many:
            raise bad_request(f"{param.name} may be given at most {param.many} times")
        return [param.read(value) for value in given]
    if len(given) > 1:
        raise bad_request(f"{param.name} may be given once")
    if not given or (given[0] == "" and not param.required and param.place == "query"):
        return param.default
    return param.read(given[0])
