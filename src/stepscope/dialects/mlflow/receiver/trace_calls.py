"""The endpoints under `traces/`: descriptions of traces in the tracking database, and their spans from the store.

The spans arrive over OTLP; clients send the description of a trace when it is finished.
"""

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from stepscope.dialects.mlflow.receiver import search_sql as sql
from stepscope.dialects.mlflow.receiver.errors import MISSING, missing_value, refused, wrong_type
from stepscope.dialects.mlflow.receiver.experiments import experiment_number, find_active
from stepscope.dialects.mlflow.receiver.names_and_limits import LONGEST_KEY, check_length, check_name, masked
from stepscope.dialects.mlflow.receiver.run_table import MlflowRun, find_run
from stepscope.dialects.mlflow.receiver.trace_search import SOURCE_RUN, search_traces
from stepscope.dialects.mlflow.receiver.trace_spans import MAX_SPANS, spans_of, trace_key
from stepscope.dialects.mlflow.receiver.trace_table import (
    LONGEST_TAG,
    MAX_PAIRS,
    STATES,
    MlflowTrace,
    delete_traces,
    describe_trace,
    find_trace,
    find_traces,
    link_run,
    milliseconds_of,
    moment_of,
    set_trace,
)
from stepscope.dialects.mlflow.receiver.tracking import Body, Call, Reply, Tracking
from stepscope.dialects.mlflow.receiver.tracking_rows import TRACE_TAGS
from stepscope.extend.receiver import Refused
from stepscope.model.records import Event
from stepscope.model.redaction import redact

EVENT_TRACE = "mlflow.trace"
_LOCATION_TAG, _IN_STORE = "mlflow.trace.spansLocation", "TRACKING_STORE"
"""The tag that tells clients where the spans are, and not to upload them as an artifact as well."""
_SIZES = "mlflow.trace.sizeStats"
"""Metadata with the number of spans that the client sent."""
_KEPT = ("trace_id", "state", "request_preview", "response_preview", "execution_duration", "assessments")
_FIELDS = (*_KEPT, "client_request_id", "trace_location", "request_time")
MAX_IDS, MAX_LINKS = 500, 100


def end_trace(tracking: Tracking, call: Call) -> Reply:
    """Keep the description of a trace; it is an event of the trace's run as well."""
    info = _trace_info(call)
    metadata, tags = _pairs(info, "trace_metadata"), _pairs(info, "tags")
    with tracking.database.write() as db:
        experiment = find_active(db, _experiment_id(info), call.project)
        try:
            run: MlflowRun | None = find_run(db, metadata.get(SOURCE_RUN, ""), call.project)
        except Refused:
            run = None
        trace = MlflowTrace(
            trace_id=str(info["trace_id"]),
            experiment=experiment.id,
            project=run.project if run is not None else call.project or experiment.name,
            run_id=run.run_id if run is not None else "",
            timestamp=moment_of(info.get("request_time")) or call.now,
            duration=milliseconds_of(info.get("execution_duration")),
            status=str(info["state"]),
            client_id=str(info["client_request_id"]) if info.get("client_request_id") else None,
            info=json.dumps({key: info[key] for key in _FIELDS if key in info}, ensure_ascii=False),
        )
        set_trace(db, trace, {**tags, _LOCATION_TAG: _IN_STORE}, metadata)
        answer = {"trace": {"trace_info": describe_trace(db, trace)}}
    if run is None:
        return Reply(answer)
    own = {key: value for key, value in tags.items() if not key.startswith("mlflow.")}
    attrs = {key: info[key] for key in _KEPT if key in info} | ({"tags": own} if own else {})
    severity = 17 if trace.status == "ERROR" else 9
    event = Event(tracking.clock(), None, None, trace_key(trace.trace_id), None, severity, EVENT_TRACE, attrs)
    return Reply(answer, [tracking.submit_once(run, [event], call.project, json.dumps(info))], run.run_id)


def _trace_info(call: Call) -> dict[str, Any]:
    """Return the description with secrets masked and its id and state checked."""
    trace = call.fields.values.get("trace")
    info = trace.get("trace_info") if isinstance(trace, dict) else None
    if not isinstance(info, dict):
        raise missing_value("trace")
    try:
        text = json.dumps(info, ensure_ascii=False).encode("utf-8", "replace")  # UTF-8 cannot encode lone surrogates
        found: dict[str, Any] = redact(json.loads(text))
    except RecursionError:
        raise refused("the description of the trace is nested too deep") from None
    id = found.get("trace_id")
    if not isinstance(id, str) or not id:
        raise missing_value("trace_id")
    check_length("trace_id", LONGEST_KEY, id)
    state = found.get("state")
    if type(state) is int and 0 <= state < len(STATES):
        state = STATES[state]
    if state not in (None, *STATES):
        raise wrong_type("state", state)
    return {**found, "state": state or STATES[0]}


def _experiment_id(info: Mapping[str, Any]) -> str:
    place = info.get("trace_location")
    inner = place.get("mlflow_experiment") if isinstance(place, dict) else None
    found = inner.get("experiment_id") if isinstance(inner, dict) else None
    if found is not None and not isinstance(found, str):
        raise wrong_type("experiment_id", found)
    return found or "0"


def _pairs(info: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return tags or metadata: long texts are truncated, as in MLflow."""
    found = info.get(name)
    pairs = found if isinstance(found, dict) else {}
    if len(pairs) > MAX_PAIRS:
        raise refused(f"a trace must have at most {MAX_PAIRS} {name}, got {len(pairs)}")
    for key, value in pairs.items():
        if not isinstance(value, str):
            raise wrong_type(f"{name}.{key}", value)
    return {key[:LONGEST_KEY]: value[:LONGEST_TAG] for key, value in pairs.items()}


def get_info(db: sqlite3.Connection, call: Call) -> Body:
    """Return the description of a trace."""
    return {"trace": {"trace_info": describe_trace(db, find_trace(db, call.path["trace_id"], call.project))}}


def get_trace(tracking: Tracking, call: Call) -> Reply | None:
    """Return a trace with its spans; None while spans are missing that the client has sent."""
    fields = call.fields
    trace_id, partial = fields.required("trace_id"), str(fields.text("allow_partial")).lower() == "true"
    with tracking.database.read() as db:
        found = find_traces(db, [trace_id], call.project)
        if not found:
            raise refused(f"Trace with ID {trace_id} is not found.", MISSING)
        info = describe_trace(db, found[0])
    spans = spans_of(tracking.engine(), trace_id, call.project)
    if not partial and not _is_complete(info, spans):
        return None
    return Reply({"trace": {"trace_info": info, "spans": spans}})


def incomplete(call: Call) -> Refused:
    """Return the exception for a trace whose spans have not arrived."""
    trace_id = call.fields.text("trace_id")
    return refused(f"Trace with ID {trace_id} is not fully exported yet, please try again later.", MISSING)


def _is_complete(info: Mapping[str, Any], spans: list[dict[str, Any]]) -> bool:
    try:
        expected = json.loads(info.get("trace_metadata", {}).get(_SIZES, "{}")).get("num_spans", 0)
    except (ValueError, AttributeError, RecursionError):
        expected = 0
    return bool(spans) and (not isinstance(expected, (int, float)) or len(spans) >= expected)


def _ids(call: Call) -> list[str]:
    ids = call.fields.texts("trace_ids")
    if not ids:
        raise missing_value("trace_ids")
    if len(ids) > MAX_IDS:
        raise refused(f"a request can ask for at most {MAX_IDS} traces, got {len(ids)}")
    return ids


def _wanted(db: sqlite3.Connection, call: Call) -> list[tuple[str, Body]]:
    """Return the ids and descriptions of those traces of a request that exist, in its experiments if it names some."""
    given = call.fields.texts("experiment_ids")
    numbers = {experiment_number(each) for each in given} if "experiment_ids" in call.fields.values else None
    found = find_traces(db, _ids(call), call.project)
    chosen = [each for each in found if numbers is None or each.experiment in numbers]
    return [(each.trace_id, describe_trace(db, each)) for each in chosen]


def batch_get(tracking: Tracking, call: Call) -> Reply:
    """Return several traces with their spans; those that do not exist or are not complete are left out."""
    with tracking.database.read() as db:
        found = _wanted(db, call)
    traces, left = [], MAX_SPANS
    for trace_id, info in found:
        spans = spans_of(tracking.engine(), trace_id, call.project, left) if left > 0 else []
        left -= len(spans)
        if _is_complete(info, spans):
            traces.append({"trace_info": info, "spans": spans})
    return Reply({"traces": traces} if traces else {})


def batch_get_infos(db: sqlite3.Connection, call: Call) -> Body:
    """Return the descriptions of several traces."""
    found = [info for _, info in _wanted(db, call)]
    return {"trace_infos": found} if found else {}


def search(db: sqlite3.Connection, call: Call) -> Body:
    """Return a page of the descriptions of traces."""
    if "locations" not in call.fields.values:
        raise missing_value("locations")
    places = [each.get("mlflow_experiment") for each in call.fields.items("locations")]
    ids = [each.get("experiment_id") for each in places if isinstance(each, dict)]
    return search_traces(db, [id for id in ids if isinstance(id, str)], call.fields, call.project)


def set_tag(db: sqlite3.Connection, call: Call) -> None:
    """Set a tag of a trace."""
    key, value = _tag_key(call, "set"), call.fields.text("value")
    check_name(key, "key")
    check_length("key", LONGEST_KEY, key)
    trace = find_trace(db, call.path["trace_id"], call.project)
    TRACE_TAGS.put(db, {key: masked(key, value[:LONGEST_TAG])}, trace.trace_id)


def _tag_key(call: Call, done: str) -> str:
    key = call.fields.required("key")
    if key == _LOCATION_TAG:
        raise refused(f"Tag '{key}' is immutable and cannot be {done} on a trace.")
    return key


def delete_tag(db: sqlite3.Connection, call: Call) -> None:
    """Remove a tag of a trace."""
    key, trace_id = _tag_key(call, "deleted"), call.path["trace_id"]
    if not find_traces(db, [trace_id], call.project) or not TRACE_TAGS.delete(db, key, trace_id):
        raise refused(f"No trace tag with key '{key}' for trace with ID '{trace_id}'", MISSING)


def delete(db: sqlite3.Connection, call: Call) -> Body:
    """Delete traces by id, or the oldest ones until a time; their spans stay in the run."""
    fields = call.fields
    number = experiment_number(fields.required("experiment_id"))
    ids, until, most = fields.texts("request_ids"), fields.whole("max_timestamp_millis"), fields.whole("max_traces")
    if until is None and not ids:
        raise refused("Either `max_timestamp_millis` or `trace_ids` must be specified.")
    if until is not None and ids:
        raise refused("Only one of `max_timestamp_millis` and `trace_ids` can be specified.")
    if ids and most is not None:
        raise refused("`max_traces` can't be specified if `trace_ids` is specified.")
    if most is not None and most <= 0:
        raise refused(f"`max_traces` must be a positive integer, received {most}.")
    if len(ids) > MAX_IDS:
        raise refused(f"a request can delete at most {MAX_IDS} traces by id, got {len(ids)}")
    chosen = (f"trace_id IN ({', '.join('?' for _ in ids)})", [*ids]) if ids else ("timestamp <= ?", [until])
    tests = [
        ("experiment = ?", [number if abs(number) < 2**63 else -1]),
        *sql.of_project("project", call.project),
        chosen,
    ]
    where, values = " AND ".join(test for test, _ in tests), [value for _, given in tests for value in given]
    if most is not None:
        where = f"trace_id IN (SELECT trace_id FROM traces WHERE {where} ORDER BY timestamp, trace_id LIMIT {most})"
    return {"traces_deleted": delete_traces(db, (where, values))}


def link_to_run(db: sqlite3.Connection, call: Call) -> None:
    """Link traces to a run."""
    ids, run_id = call.fields.texts("trace_ids"), call.fields.required("run_id")
    if not ids:
        raise missing_value("trace_ids")
    if len(ids) > MAX_LINKS:
        raise refused(
            f"Cannot link more than {MAX_LINKS} traces to a run in a single request. Provided {len(ids)} traces."
        )
    run = find_run(db, run_id, call.project)
    link_run(db, [each.trace_id for each in find_traces(db, ids, call.project)], run.run_id)
