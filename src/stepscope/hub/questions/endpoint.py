"""What an endpoint is: a path, parameters, a function that answers, and what the answer looks like."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

from stepscope.hub.alerting.service import Alerting
from stepscope.hub.deletion import Deleted
from stepscope.hub.questions.params import Param
from stepscope.hub.questions.schemas import INTEGER, Schema, maybe
from stepscope.hub.receivers.ingest import Ingest
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.run_states import RunStates
from stepscope.hub.store.engine import Engine, Stop
from stepscope.hub.store.run_catalog import RunRow, edited, list_runs, run_ids, run_number
from stepscope.journal.run_edits import Edits


@dataclass(frozen=True, slots=True)
class Reader:
    """Request context: the engine, the states of runs, and the one project that may be seen, if only one."""

    engine: Engine
    states: RunStates
    project: str | None = None
    home: Path | None = None
    """The home folder, where a hub runs on one."""
    entry: Ingest | None = None
    """The way in for what a request brings, where a hub runs."""
    stop: Stop | None = None
    """Ends a query when its client has left or the hub closes."""
    edits: Edits | None = None
    """What people changed about runs, where there is a home folder."""
    alerting: Alerting | None = None
    """The alerts, where a hub runs."""
    delete: Callable[[RunRow, str], Deleted] | None = None
    """Deletes a run for somebody, where a hub runs."""
    diagnosed: Callable[[str], float] = lambda run: 1.0
    """Tells the share of a run's records that is diagnosed; where no hub runs, it diagnoses them."""
    who: str = ""
    """Who asks: the name of a token, or what a client says."""

    def run(self, id: str) -> RunRow:
        """Find a run, with the edits applied; Refused when there is none that may be seen."""
        return self.described(self.recorded(id))

    def runs(self, *, ids: Sequence[str] | None = None, keys: Sequence[str] = ()) -> list[RunRow]:
        """List the runs that may be seen, with the edits applied."""
        known = {} if self.edits is None else self.edits.all()
        rows = list_runs(self.engine, ids=ids, project=self.project, keys=keys)
        return [edited(row, known.get(row.id, ())) for row in rows]

    def described(self, row: RunRow) -> RunRow:
        """A run with the edits applied."""
        return edited(row, () if self.edits is None else self.edits.of(row.id))

    def recorded(self, id: str) -> RunRow:
        """Find a run as it was recorded; Refused when there is none that may be seen."""
        for row in list_runs(self.engine, ids=[id]):
            if self.project in (None, row.project):
                return row
        raise Refused(Refusal(HTTPStatus.NOT_FOUND, f"there is no run {id[:200]!r}"))

    def number(self, id: str) -> int:
        """The number of a run; Refused when there is none that may be seen."""
        if self.project is not None:
            return self.run(id).number
        number = run_number(self.engine, id)
        if number is None:
            raise Refused(Refusal(HTTPStatus.NOT_FOUND, f"there is no run {id[:200]!r}"))
        return number

    def among(self, id: str | None) -> int | None:
        """The number of a run, None for all of them; who may see one project only must name a run."""
        if id is not None:
            return self.number(id)
        if self.project is not None:
            raise Refused(Refusal(HTTPStatus.FORBIDDEN, "name a run: this token reaches one project only"))
        return None

    def owners(self, numbers: set[int]) -> dict[int, str]:
        """The ids of runs by number, of those that may be seen."""
        found = run_ids(self.engine, numbers)
        if self.project is None:
            return found
        seen = {row.id for row in list_runs(self.engine, ids=list(found.values())) if row.project == self.project}
        return {number: id for number, id in found.items() if id in seen}


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that is read piece by piece."""

    media_type: str
    name: str
    """The file it is saved as; empty when it is none."""
    pieces: Iterator[bytes]


Answer = Callable[[Reader, dict[str, Any]], Any]
"""Answers with what JSON can hold, or a Stream; raises Refused."""

Lane = Literal["read", "sql", "import"]
"""The threads that answer: user-supplied queries and large files have their own, so that they delay nobody else."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint; parameters of the path are among `params`."""

    path: str
    name: str
    text: str
    answer: Answer
    schema: Schema
    params: tuple[Param, ...] = ()
    attrs: bool = False
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    body: Schema | None = None
    most_body: int = 1024 * 1024
    lane: Lane = "read"
    media_types: tuple[str, ...] = field(default=("application/json",))


RUN = Param("run", "text", "the id of a run", required=True, place="path")
"""The run in a path."""
EXACT_RUN = Param("run", "text", "records of this run")
METRIC = Param("key", "text", "a metric, such as actor/length", required=True)
RANK_ONLY = Param("rank", "integer", "of this rank only", low=0, high=2**32 - 1)
LIMIT = Param("limit", "integer", "so many at most", default=100, low=1, high=1000)
OFFSET = Param("offset", "integer", "leave out so many", default=0, low=0, high=1_000_000)
SINCE = Param("since", "number", "not before this time, in seconds since 1970")
UNTIL = Param("until", "number", "not after this time, in seconds since 1970")
STEP_PARAM = Param("step", "integer", "at this step")
RANK_PARAM = Param("rank", "integer", "of this rank", low=0, high=2**32 - 1)
NAME_PARAM = Param("name", "text", "with this name")
TRACE_PARAM = Param("trace_id", "hex", "of this trace", width=16)
SPAN_PARAM = Param("span_id", "hex", "of this span", width=8)
NEXT = maybe(INTEGER)


def whole(number: float | None, factor: float = 1.0) -> int | None:
    """A number times a factor as an integer that the store can hold, the nearest one where it is too great."""
    return None if number is None else int(min(max(number * factor, -(2.0**62)), 2.0**62))


def nanoseconds(moment: float | None) -> int | None:
    """A time in ns."""
    return whole(moment, 1e9)


def next_offset(rows: Sequence[Any], given: dict[str, Any]) -> int | None:
    """The offset of the next page, where there is one."""
    return given["offset"] + given["limit"] if len(rows) > given["limit"] else None


def safe_name(text: str) -> str:
    """The start of a file name: at most 100 ASCII letters, digits and `-_.`."""
    return "".join(letter if (letter.isascii() and letter.isalnum()) or letter in "-_." else "_" for letter in text)[
        :100
    ]
