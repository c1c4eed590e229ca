"""The endpoint `/api/sql`: a user-supplied SELECT over the store's tables, answered as the engine builds the rows."""

import math
import re
from collections.abc import Generator
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from stepscope.hub.questions.series.metric_keys import MAX_NAMES, hint_of, metric_names, unrecorded_keys
from stepscope.hub.questions.sql.sql_check import Forbidden, run_select
from stepscope.hub.questions.toolbox.endpoint import Endpoint, Problem, Reader, Stream, decode_body, partial_field
from stepscope.hub.refusals import bad_request, forbidden
from stepscope.hub.store.engine import Damaged, EngineError, Limits, missing_allowed
from stepscope.hub.store.maintenance import describe
from stepscope.model.names import recorded_key

MAX_ROWS, MAX_SECONDS = 10_000, 30.0
FIRST_BYTES = 1024 * 1024
"""An answer up to this size is sent when it is complete, so that it is either whole or an HTTP error."""
MAX_HINTS = 10
_QUOTED = re.compile(r"'([^'\\]*)'")
_KEY = re.compile(r"\bkey\b")
_WORDS = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class SqlRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""

    sql: Annotated[str, Meta(extra_json_schema={"maxLength": 20_000})]
    rows: Annotated[int, Meta(ge=1, le=MAX_ROWS)] = 1000
    seconds: Annotated[float, Meta(gt=0, le=MAX_SECONDS)] = 10.0


class Column(TypedDict):
    """A column with the name of its type in ClickHouse."""

    name: str
    type: str


class SqlAnswer(TypedDict):
    """The rows of a SELECT."""

    columns: list[Column]
    rows: list[list[Any]]
    more: bool
    error: NotRequired[
        Annotated[
            Problem, Meta(description="Why the statement failed after its first rows were sent; `more` is true then.")
        ]
    ]
    hints: NotRequired[
        Annotated[
            list[str],
            Meta(
                description="Of a statement without rows: metrics it names that no run recorded, and keys it may mean."
            ),
        ]
    ]


class Table(TypedDict):
    """A table that SQL may read."""

    name: str
    text: str
    rows: int
    bytes: int
    columns: list[Column]


class TableList(TypedDict):
    """The tables that SQL may read."""

    tables: list[Table]


_encode = msgspec.json.encode


@Endpoint("/api/sql", "askSql", method="POST", lane="sql", body=SqlRequest)
def sql(reader: Reader, given: dict[str, Any]) -> Stream[SqlAnswer]:
    """A SELECT in ClickHouse's dialect over the store's tables; nothing else passes."""
    if reader.project is not None:
        raise forbidden("SQL reads all projects, and this token is limited to one")
    request = decode_body(SqlRequest, given["body"], '{"sql": "SELECT ..."}')
    if not math.isfinite(request.seconds) or "\0" in request.sql:
        raise bad_request("a statement must not contain NUL")
    return Stream("application/json", "", _pieces(reader, request))


def _pieces(reader: Reader, request: SqlRequest) -> Generator[bytes, None, None]:
    """Write the answer; what fails before the first piece is an HTTP error, what fails later is reported at the end."""
    limits = Limits(rows=request.rows, seconds=request.seconds)
    held = bytearray()
    begun = False
    try:
        with run_select(reader.engine, request.sql, limits, reader.stop) as found:
            floats = ["Float" in type for type in found.types]
            columns = [{"name": name, "type": type} for name, type in zip(found.names, found.types, strict=True)]
            held += b'{"columns":' + _encode(columns) + b',"rows":['
            comma, empty = b"", True
            for block in found.blocks:
                rows = [list(map(_json_cell, row, floats)) for row in block]
                held += comma + _encode(rows)[1:-1]
                comma, empty = b",", False
                if begun or len(held) > FIRST_BYTES:
                    begun = True
                    yield bytes(held)
                    held.clear()
            held += (
                b'],"more":' + _encode(found.more) + _partial() + (_hints(reader, request.sql) if empty else b"") + b"}"
            )
    except Forbidden as error:
        raise bad_request(str(error)) from None
    except EngineError as error:
        if begun:
            held[:] = b'],"more":true,"error":' + _encode(_error_json(error)) + b"}"
        elif isinstance(error, Damaged) or error.unavailable:
            raise
        else:
            raise bad_request(f"the statement failed: {str(error)[:1000]}") from None
    yield bytes(held)


def _partial() -> bytes:
    """The field that says which shards the rows lack; empty when they lack none."""
    missing = missing_allowed()
    return b"," + _encode(partial_field(missing))[1:-1] if missing else b""


def _hints(reader: Reader, sql: str) -> bytes:
    """The field that says what a statement without rows may have meant: metrics under the keys they are recorded as."""
    named = [name for name in dict.fromkeys(_QUOTED.findall(sql)) if name][:MAX_HINTS] if _KEY.search(sql) else []
    unknown = unrecorded_keys(reader.engine, named)
    if not unknown:
        return b""
    known = metric_names(reader.engine, limit=MAX_NAMES)
    hints = []
    for name in unknown:
        key = recorded_key(name, known)
        hint = f"; it is {key!r}" if key is not None else hint_of(name, list(known))
        hints.append(f"no metric is recorded as {name[:200]!r}{hint}")
    return b',"hints":' + _encode(hints)


def _error_json(error: EngineError) -> Problem:
    code = "service_unavailable" if error.unavailable else "statement_failed"
    return {"code": code, "message": f"the statement failed: {str(error)[:1000]}"}


def _json_cell(cell: Any, is_float: bool) -> Any:
    """Spell numbers that are not finite as other answers do, also in lists."""
    if isinstance(cell, list):
        return [_json_cell(each, is_float) for each in cell]
    return _WORDS.get(cell, cell) if is_float and isinstance(cell, str) else cell


TABLE_TEXTS = {
    "metrics": "Every value of every step metric, by series.",
    "series": "What a series is: run, key, rank, axis, unit.",
    "totals": "Running totals of each series; read states with sumMerge and the like.",
    "histograms": "Recorded distributions.",
    "exemplars": "Single measurements that were recorded with a point, and their spans.",
    "spans": "Timed operations that ended.",
    "open_spans": "Timed operations when they began.",
    "logs": "Logs (kind 2) and events (kind 3).",
    "samples": "Rows of tables of samples; attr_values[indexOf(attr_names, 'reward')] is a column.",
    "sample_steps": "How many samples of each table a commit has at a step.",
    "alerts": "Alerts.",
    "lifecycle": "How runs began and ended.",
    "traces": "Which runs and steps a trace touches.",
    "writers": "The processes of each run.",
    "runs": "The number of each run, which other tables call run.",
    "ledger": "Which batches of which writer are in.",
}


@Endpoint("/api/sql/tables", "listTables")
def tables(reader: Reader, given: dict[str, Any]) -> TableList:
    """The tables that SQL may read, their columns and their sizes."""
    return {
        "tables": [
            {
                "name": table.name,
                "text": TABLE_TEXTS.get(table.name, ""),
                "rows": table.rows,
                "bytes": table.bytes,
                "columns": [{"name": name, "type": type} for name, type in table.columns],
            }
            for table in describe(reader.engine)
        ]
    }
