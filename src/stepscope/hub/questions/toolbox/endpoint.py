"""Endpoints: a path, parameters checked before any query, the context of a request, and an answer with its type."""

import contextvars
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Protocol, TypedDict, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Meta, MsgspecError, json

from stepscope.alerts.alert import Expected, unexpected
from stepscope.hub.alerting.alerting_thread import Alerting
from stepscope.hub.dashboards.dashboard import Dashboards
from stepscope.hub.dashboards.saved_views import SavedViews
from stepscope.hub.receivers.ingest import Ingest
from stepscope.hub.refusals import Refusal, Refused, bad_request, forbidden, not_found
from stepscope.hub.runs.bucket import PIECE, RemoteBlobs, RemoteFile
from stepscope.hub.runs.deletion import Deleted
from stepscope.hub.runs.run_files import RunFiles
from stepscope.hub.runs.run_states import RunStates
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.store.engine import Engine, EngineError, MissingShards, Stop, partial_answers
from stepscope.hub.store.read.finding_catalog import FindingCount, counted, finding_counts, findings_of_runs
from stepscope.hub.store.read.run_catalog import list_runs, run_ids, run_number
from stepscope.hub.store.read.run_row import RunRow, edited
from stepscope.hub.store.write.finding_rows import worst
from stepscope.journal.run_edits import Edits
from stepscope.model.names import PARTIAL_HEADER
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


def check_shared(only: str | None, given: Mapping[str, Any]) -> None:
    """Refuse a request that does not name the only run its client may read, and no other."""
    if only is not None and given.get("run") not in (only, [only]):
        raise forbidden(f"this link shows the run {only} and nothing else")


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


@dataclass(frozen=True, slots=True)
class Reader:
    """Request context: the engine, the states of runs, and the project or run that a token is limited to, if any."""

    engine: Engine
    states: RunStates
    project: str | None = None
    only: str | None = None
    """The run of a link that shows one run."""
    home: Path | None = None
    """The home folder, where there is one."""
    dashboards: Dashboards | None = None
    """The dashboards, where a hub runs."""
    views: SavedViews | None = None
    """The saved views of projects, where a hub runs."""
    ingest: Ingest | None = None
    """Takes the records that a request brings, where a hub runs."""
    stop: Stop | None = None
    """Cancels a query when its client disconnects or the hub closes."""
    edits: Edits | None = None
    """Edits of runs, where there is a home folder."""
    alerting: Alerting | None = None
    """The alerts, where a hub runs."""
    delete: Callable[[RunRow, str], Deleted] | None = None
    """Deletes a run in the name of a user, where a hub runs."""
    diagnosed: Callable[[str], float] = lambda run: 1.0
    """The share of a run's records that is diagnosed; where no hub runs, this diagnoses them first."""
    files: Sequence[RunFiles] = ()
    """The stored files of runs, where a hub runs."""
    blobs: RemoteBlobs | None = None
    """Uploaded files that are in a bucket."""
    tokens: Tokens | None = None
    """The tokens, where a hub runs."""
    who: str = ""
    """The user: the name of a token, or what the client sent."""

    def run(self, id: str) -> RunRow:
        """Find a run, with the edits applied; Refused when it does not exist or may not be seen."""
        return self.with_edits(self.recorded(id))

    def runs(self, *, ids: Sequence[str] | None = None, keys: Sequence[str] = ()) -> list[RunRow]:
        """List the visible runs, with the edits applied."""
        known = {} if self.edits is None else self.edits.all()
        if self.only is not None:
            ids = [self.only] if ids is None else [id for id in ids if id == self.only]
        rows = list_runs(self.engine, ids=ids, project=self.project, keys=keys)
        counts = self._counts(rows, finding_counts(self.engine))
        if not known and not counts:
            return rows
        return [
            edited(counted(row, counts.get(row.number)), known.get(row.id, ()))
            if row.number in counts or row.id in known
            else row
            for row in rows
        ]

    def with_edits(self, row: RunRow) -> RunRow:
        """A run with the edits applied."""
        counts = self._counts([row], finding_counts(self.engine, row.number))
        return edited(counted(row, counts.get(row.number)), () if self.edits is None else self.edits.of(row.id))

    @property
    def marks(self) -> list[Expected]:
        """The marks of people that something is expected."""
        return [] if self.alerting is None else self.alerting.expected()

    def _counts(self, rows: Sequence[RunRow], counts: dict[int, FindingCount]) -> dict[int, FindingCount]:
        """The finding counts of runs without what is expected."""
        marks = [mark for mark in self.marks if mark.finding]
        if not marks:
            return counts
        marked = {
            row.number: row
            for row in rows
            if row.number in counts and any(mark.reaches(row.id, row.project) for mark in marks)
        }
        if not marked:
            return counts
        for number, found in findings_of_runs(self.engine, list(marked)).items():
            left = unexpected(found, marked[number].id, marked[number].project, marks)
            counts[number] = FindingCount(len(left), worst(left))
        return counts

    def recorded(self, id: str) -> RunRow:
        """Find a run as it was recorded; Refused when it does not exist or may not be seen."""
        check_shared(self.only, {"run": id})
        for row in list_runs(self.engine, ids=[id]):
            if self.project in (None, row.project):
                return row
        raise not_found(f"there is no run {id[:200]!r}")

    def number(self, id: str) -> int:
        """The number of a run; Refused when it does not exist or may not be seen."""
        if self.project is not None or self.only is not None:
            return self.recorded(id).number
        number = run_number(self.engine, id)
        if number is None:
            raise not_found(f"there is no run {id[:200]!r}")
        return number

    def number_or_all(self, id: str | None) -> int | None:
        """The number of a run, None for all runs; a token of one project must name a run."""
        if id is not None:
            return self.number(id)
        if self.project is not None:
            raise forbidden("name a run: this token is limited to one project")
        return None

    def visible_ids(self, numbers: set[int]) -> dict[int, str]:
        """The ids of the visible ones among some runs, by number."""
        found = run_ids(self.engine, numbers)
        if self.only is not None:
            found = {number: id for number, id in found.items() if id == self.only}
        if self.project is None:
            return found
        seen = {row.id for row in list_runs(self.engine, ids=list(found.values())) if row.project == self.project}
        return {number: id for number, id in found.items() if id in seen}


Content = TypeVar("Content")


@dataclass(frozen=True, slots=True)
class Stream(Generic[Content]):
    """An answer that is sent piece by piece; `Content` is the type of the whole."""

    media_type: str
    name: str
    """The file name to save it as; empty when it is not a file."""
    pieces: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An answer that is the content of a stored file."""

    path: Path | RemoteFile
    media_type: str
    """By its content, never by its name."""
    name: str
    """The file name to save it as."""
    inline: bool = False
    """Whether a browser may show it."""
    framed: bool = False
    """Whether our own page may show it in a frame."""

    def pieces(self) -> Iterator[bytes]:
        """Read it, a piece at a time."""
        if isinstance(self.path, RemoteFile):
            yield from self.path.pieces(0, self.path.size)
            return
        with open(self.path, "rb") as file:
            while piece := file.read(PIECE):
                yield piece


Answer = Callable[[Reader, dict[str, Any]], Any]
"""Returns JSON values, a Stream or a StoredFile, and its annotation says of which type; raises Refused."""

Lane = Literal["read", "sql", "import"]
"""Thread pools: user-supplied queries and large files have their own, so that they delay nothing else."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint: it decorates the function that answers it, whose docstring describes it.

    `params` include those of the path.
    """

    path: str
    name: str
    params: tuple[Param, ...] = ()
    attrs: bool = False
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    body: Any = None
    """The type of its body, where it has one."""
    most_body: int = 1024 * 1024
    lane: Lane = "read"
    media_types: tuple[str, ...] = field(default=("application/json",))
    answer: Answer = lambda reader, given: None

    def __call__(self, answer: Answer) -> "Endpoint":
        """The endpoint that a function answers."""
        return replace(self, answer=answer)

    @property
    def text(self) -> str:
        """What it answers."""
        return " ".join((self.answer.__doc__ or "").split())

    @property
    def content(self) -> Any:
        """The type of what it answers with."""
        found = get_type_hints(self.answer, include_extras=True)["return"]
        if get_origin(found) is Stream:
            (found,) = get_args(found)
        return Binary if found is StoredFile else found


RUN = Param("run", "text", "the id of a run", required=True, place="path")
"""The run in a path."""
EXACT_RUN = Param("run", "text", "records of this run")
METRIC = Param("key", "text", "a metric, such as actor/length, in any spelling of its category", required=True)
RANK_ONLY = Param("rank", "integer", "of this rank only", low=0, high=2**32 - 1)
LIMIT = Param("limit", "integer", "at most this many", default=100, low=1, high=1000)
OFFSET = Param("offset", "integer", "skip this many", default=0, low=0, high=1_000_000)
SINCE = Param("since", "number", "not before this time, in seconds since 1970")
UNTIL = Param("until", "number", "not after this time, in seconds since 1970")
OF_RECORDS = (
    EXACT_RUN,
    Param("step", "integer", "at this step"),
    Param("rank", "integer", "of this rank", low=0, high=2**32 - 1),
    Param("name", "text", "with this name"),
)
"""Which records a search finds, by what they are about."""
IN_CONTEXT = (
    Param("trace_id", "hex", "of this trace", width=16),
    Param("span_id", "hex", "of this span", width=8),
    SINCE,
    UNTIL,
)
"""Which records a search finds, by when and in which span they were recorded."""


def to_int64(number: float | None, factor: float = 1.0) -> int | None:
    """A number times a factor as an int64, clamped to the range of the store."""
    return None if number is None else int(min(max(number * factor, -(2.0**62)), 2.0**62))


def nanoseconds(moment: float | None) -> int | None:
    """Seconds as nanoseconds."""
    return to_int64(moment, 1e9)


def record_conditions(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a RecordQuery; one row more than a page is read, to know whether there is a next page."""
    same = {name: given[name] for name in ("step", "rank", "name", "attrs", "trace_id", "span_id", "offset")}
    times = {name: nanoseconds(given[name]) for name in ("since", "until")}
    return {
        **same,
        **times,
        "run": reader.number_or_all(given["run"]),
        "order": given["sort"],
        "limit": given["limit"] + 1,
    }


class _Row(Protocol):
    @property
    def run(self) -> int: ...


Row = TypeVar("Row", bound=_Row)


def page_of(
    reader: Reader, given: dict[str, Any], rows: Sequence[Row], shape: Callable[[Row, str], Content]
) -> tuple[list[Content], int | None]:
    """A page of rows with the ids of their runs, and the offset of the next page; None when this is the last."""
    ids = reader.visible_ids({row.run for row in rows})
    more = len(rows) > given["limit"]
    shown = [shape(row, ids.get(row.run, "")) for row in rows[: given["limit"]]]
    return shown, given["offset"] + given["limit"] if more else None


def safe_name(text: str) -> str:
    """The start of a file name: at most 100 ASCII letters, digits and `-_.`."""
    return "".join(letter if (letter.isascii() and letter.isalnum()) or letter in "-_." else "_" for letter in text)[
        :100
    ]


PARTIAL = "partial"


class Partial(TypedDict):
    """Present when shards of a cluster did not answer: their runs are not in the answer."""

    missing: list[int]
    shards: int


_RETRY_SECONDS = 5.0


def partial_field(missing: MissingShards) -> dict[str, Partial]:
    """The field of the JSON, and its value; nothing when the answer is complete."""
    return {PARTIAL: {"missing": missing.numbers, "shards": missing.shards}} if missing else {}


def partial_headers(missing: MissingShards) -> dict[str, str]:
    """The header of the answer, which answers that are no JSON object have too."""
    return {PARTIAL_HEADER: str(missing)} if missing else {}


def encode_answer(found: Any, missing: MissingShards) -> bytes:
    """Encode an answer."""
    return json.encode({**found, **partial_field(missing)} if missing and isinstance(found, dict) else found)


@contextmanager
def partial_reads(method: str) -> Iterator[MissingShards]:
    """Allow answers that lack shards to what only reads, and collect which.

    "Not found" becomes "not now" while a shard is unavailable: what was asked for may be there.
    """
    if method != "GET":
        yield MissingShards()
        return
    try:
        with partial_answers() as missing:
            yield missing
    except Refused as refused:
        if not missing or refused.refusal.status != HTTPStatus.NOT_FOUND:
            raise
        message = f"{refused.refusal.message}, or it is on {missing}, which does not answer"
        raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, message, _RETRY_SECONDS)) from None


def partial_stream(pieces: Iterator[bytes], missing: MissingShards) -> Iterator[bytes]:
    """Yield the rest of an answer, under the terms of its beginning, from any thread.

    EngineError, which ends the answer early, when a shard is missing of which its header says nothing.
    """
    context, known = contextvars.copy_context(), missing.numbers

    def rest() -> Iterator[bytes]:
        while (piece := context.run(next, pieces, None)) is not None:
            if missing.numbers != known:
                raise EngineError(f"{missing} does not answer any more")
            yield piece

    return rest()
