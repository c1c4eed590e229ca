"""The endpoint of goodput: the share of a run's time for each phase, its steps and tokens per second."""

from typing import Any

from stepscope.hub.questions import goodput_json as query
from stepscope.hub.questions.endpoint import RUN, Endpoint, Reader
from stepscope.hub.questions.goodput_rows import read_sums
from stepscope.hub.questions.schemas import BOOLEAN, INTEGER, TEXT, maybe, table, thing
from stepscope.model.goodput import conclude

_NUMBER = {"type": "number"}


def goodput(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/goodput`."""
    return query.goodput(given["run"], conclude(read_sums(reader.engine, reader.number(given["run"]))))


ENDPOINTS = (
    Endpoint(
        "/api/runs/{run}/goodput",
        "readGoodput",
        "What the time of a run was good for: seconds and shares by bucket and phase, steps and tokens per second.",
        goodput,
        thing(
            run=TEXT,
            goodput=_NUMBER,
            seconds=_NUMBER,
            shares=table(_NUMBER),
            buckets=table(_NUMBER),
            phases=table(_NUMBER),
            steps=INTEGER,
            steps_per_second=maybe(_NUMBER),
            tokens=_NUMBER,
            tokens_per_second=maybe(_NUMBER),
            tokens_counted=BOOLEAN,
        ),
        (RUN,),
    ),
)
