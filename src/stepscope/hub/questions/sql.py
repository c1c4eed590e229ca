"""The endpoint `/api/sql`: a SELECT over the store's tables, behind the store's own barrier."""

import math
from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from stepscope.hub.questions.endpoint import Endpoint, Reader
from stepscope.hub.questions.params import bad
from stepscope.hub.questions.schemas import ANYTHING, BOOLEAN, TEXT, many, thing
from stepscope.hub.questions.sql_check import Forbidden, ask
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.store.engine import Damaged, EngineError, Limits

MOST_ROWS, MOST_SECONDS = 10_000, 30.0
_WORDS = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""

    sql: str
    rows: Annotated[int, msgspec.Meta(ge=1, le=MOST_ROWS)] = 1000
    seconds: Annotated[float, msgspec.Meta(gt=0, le=MOST_SECONDS)] = 10.0


_decode = msgspec.json.Decoder(Question).decode


def answer(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `POST /api/sql`."""
    if reader.project is not None:
        raise Refused(Refusal(HTTPStatus.FORBIDDEN, "SQL sees all projects and this token reaches one only"))
    try:
        question = _decode(given["body"])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise bad(f'send {{"sql": "SELECT ..."}}: {error}') from None
    if not math.isfinite(question.seconds) or "\0" in question.sql:
        raise bad("a statement has no NUL in it")
    try:
        table = ask(reader.engine, question.sql, Limits(rows=question.rows, seconds=question.seconds), reader.stop)
    except Forbidden as error:
        raise bad(str(error)) from None
    except Damaged:
        raise
    except EngineError as error:
        raise bad(f"the statement failed: {str(error)[:1000]}") from None
    floats = ["Float" in type for type in table.types]
    return {
        "columns": [{"name": name, "type": type} for name, type in zip(table.names, table.types, strict=True)],
        "rows": [list(map(_spelled, row, floats)) for row in table.rows],
        "more": table.more,
    }


def _spelled(cell: Any, is_float: bool) -> Any:
    """Numbers that are not finite in our words, also in lists of numbers."""
    if isinstance(cell, list):
        return [_spelled(each, is_float) for each in cell]
    return _WORDS.get(cell, cell) if is_float and isinstance(cell, str) else cell


ENDPOINTS = (
    Endpoint(
        "/api/sql",
        "askSql",
        "A SELECT in ClickHouse's dialect over the store's tables; nothing else passes.",
        answer,
        thing(columns=many(thing(name=TEXT, type=TEXT)), rows=many(many(ANYTHING)), more=BOOLEAN),
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
