"""The endpoint `/api/sql`: a user-supplied SELECT over the store's tables, answered as the engine builds the rows."""

import math
from collections.abc import Generator
from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from stepscope.hub.questions.endpoint import Endpoint, Reader, Stream
from stepscope.hub.questions.params import bad
from stepscope.hub.questions.schemas import ANYTHING, BOOLEAN, TEXT, many, thing
from stepscope.hub.questions.sql_check import Forbidden, ask
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.store.engine import Damaged, EngineError, Limits

MOST_ROWS, MOST_SECONDS = 10_000, 30.0
FIRST_BYTES = 1024 * 1024
"""An answer up to this size is sent when it is complete, so that it is either whole or an HTTP error."""
_WORDS = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""

    sql: str
    rows: Annotated[int, msgspec.Meta(ge=1, le=MOST_ROWS)] = 1000
    seconds: Annotated[float, msgspec.Meta(gt=0, le=MOST_SECONDS)] = 10.0


_decode = msgspec.json.Decoder(Question).decode
_encode = msgspec.json.encode


def answer(reader: Reader, given: dict[str, Any]) -> Stream:
    """Answer `POST /api/sql`."""
    if reader.project is not None:
        raise Refused(Refusal(HTTPStatus.FORBIDDEN, "SQL sees all projects and this token reaches one only"))
    try:
        question = _decode(given["body"])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise bad(f'send {{"sql": "SELECT ..."}}: {error}') from None
    if not math.isfinite(question.seconds) or "\0" in question.sql:
        raise bad("a statement has no NUL in it")
    return Stream("application/json", "", _pieces(reader, question))


def _pieces(reader: Reader, question: Question) -> Generator[bytes, None, None]:
    """Write the answer; what fails before the first piece is an HTTP error, what fails later is told at the end."""
    limits = Limits(rows=question.rows, seconds=question.seconds)
    held = bytearray()
    begun = False
    try:
        with ask(reader.engine, question.sql, limits, reader.stop) as found:
            floats = ["Float" in type for type in found.types]
            columns = [{"name": name, "type": type} for name, type in zip(found.names, found.types, strict=True)]
            held += b'{"columns":' + _encode(columns) + b',"rows":['
            comma = b""
            for block in found.blocks:
                rows = [list(map(_spelled, row, floats)) for row in block]
                held += comma + _encode(rows)[1:-1]
                comma = b","
                if begun or len(held) > FIRST_BYTES:
                    begun = True
                    yield bytes(held)
                    held.clear()
            held += b'],"more":' + _encode(found.more) + b"}"
    except Forbidden as error:
        raise bad(str(error)) from None
    except EngineError as error:
        if begun:
            held[:] = b'],"more":true,"error":' + _encode(_told(error)) + b"}"
        elif isinstance(error, Damaged):
            raise
        else:
            raise bad(f"the statement failed: {str(error)[:1000]}") from None
    yield bytes(held)


def _told(error: EngineError) -> dict[str, str]:
    return {"code": "statement_failed", "message": f"the statement failed: {str(error)[:1000]}"}


def _spelled(cell: Any, is_float: bool) -> Any:
    """Numbers that are not finite in our words, also in lists of numbers."""
    if isinstance(cell, list):
        return [_spelled(each, is_float) for each in cell]
    return _WORDS.get(cell, cell) if is_float and isinstance(cell, str) else cell


_SCHEMA = thing(columns=many(thing(name=TEXT, type=TEXT)), rows=many(many(ANYTHING)), more=BOOLEAN)
_SCHEMA["properties"]["error"] = {
    **thing(code=TEXT, message=TEXT),
    "description": "Why the statement failed after its first rows were sent; `more` is true then.",
}

ENDPOINTS = (
    Endpoint(
        "/api/sql",
        "askSql",
        "A SELECT in ClickHouse's dialect over the store's tables; nothing else passes.",
        answer,
        _SCHEMA,
        method="POST",
        lane="sql",
        body={
            "type": "object",
            "properties": {
                "sql": {"type": "string", "maxLength": 20_000},
                "rows": {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": 1000},
                "seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_SECONDS, "default": 10},
            },
            "required": ["sql"],
            "additionalProperties": False,
        },
    ),
)
