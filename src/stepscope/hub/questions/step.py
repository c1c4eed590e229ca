"""The endpoint of one step: everything that happened at it, on all ranks."""

from typing import Any, get_args

from stepscope.hub.questions import schemas
from stepscope.hub.questions import step_json as steps
from stepscope.hub.questions.anomalies import Anomaly, Reason, nearest_anomalies
from stepscope.hub.questions.endpoint import RUN, Endpoint, Reader
from stepscope.hub.questions.params import Param
from stepscope.hub.questions.schemas import ATTRS, INTEGER, MS, NUMBER, RECORD, SECONDS, STEP, TEXT, many, maybe, thing
from stepscope.hub.questions.step_rows import WINDOW, read_step


def inspect(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/steps/{step}`."""
    run, step = reader.number(given["run"]), given["step"]
    before, after = nearest_anomalies(reader.engine, run, step)
    view = read_step(reader.engine, run, step, window=given["window"], attempt=given["attempt"])
    return {
        **steps.step(view, given["run"]),
        "window": given["window"],
        "previous_anomaly": _place(before),
        "next_anomaly": _place(after),
    }


def _place(found: Anomaly | None) -> dict[str, Any] | None:
    return None if found is None else {"step": found.step, "reason": found.reason, "attempt": found.attempt}


_LEVEL = {"type": "integer", "description": "How unusual: 0 usual, 1 notable, 2 unusual, 3 extreme or not finite."}
_FINDING = thing(
    kind={"type": "string", "enum": ["alert", "value", "error", "slow_step"]},
    severity={"type": "string", "enum": ["WARN", "ERROR"]},
    text=TEXT,
    rank=maybe(INTEGER),
)
_VALUE = thing(
    rank=INTEGER, attempt=INTEGER, attrs=ATTRS, scope=TEXT, time=SECONDS, value=NUMBER, logged=INTEGER,
    mean=maybe(NUMBER),
    std=maybe(NUMBER), before=INTEGER, delta=maybe(NUMBER), z={"type": ["number", "null"]}, level=_LEVEL,
)  # fmt: skip
_RANK = thing(
    rank=INTEGER, critical=schemas.BOOLEAN, offset_ms=MS, duration_ms=MS, errors=INTEGER, critical_path=many(TEXT),
    spans=many(thing(**schemas.NODE_FIELDS)),
)  # fmt: skip
_READING = thing(
    key=TEXT, rank=INTEGER, unit=TEXT, attrs=ATTRS, time=SECONDS, value=NUMBER, min=NUMBER, max=NUMBER, points=INTEGER,
)  # fmt: skip
_ANOMALY = maybe(thing(step=INTEGER, reason={"type": "string", "enum": list(get_args(Reason))}, attempt=INTEGER))

ENDPOINTS = (
    Endpoint(
        "/api/runs/{run}/steps/{step}",
        "inspectStep",
        "Everything about one step: values against the steps before, span trees, logs, alerts, the machine's state.",
        inspect,
        thing(
            run=TEXT,
            step=INTEGER,
            attempt=INTEGER,
            attempts=many(INTEGER),
            begin=SECONDS,
            end=SECONDS,
            duration_ms=MS,
            previous=STEP,
            next=STEP,
            metrics=many(thing(key=TEXT, unit=TEXT, values=many(_VALUE))),
            ranks=many(_RANK),
            slow=maybe(thing(text=TEXT, span=TEXT, rank=maybe(INTEGER), span_ids=many(TEXT))),
            findings=many(_FINDING),
            open_spans=many(thing(**schemas.SPAN_FIELDS, offset_ms=MS)),
            usual_ms=schemas.table(MS),
            logs=many(RECORD),
            alerts=many(RECORD),
            system=many(_READING),
            window=INTEGER,
            previous_anomaly=_ANOMALY,
            next_anomaly=_ANOMALY,
        ),
        (
            RUN,
            Param("step", "integer", "the number of the step", required=True, place="path"),
            Param("window", "integer", "so many steps before say what is usual", default=WINDOW, low=1, high=10_000),
            Param("attempt", "integer", "what this attempt did; the newest without", low=1, high=2**31 - 1),
        ),
    ),
)
