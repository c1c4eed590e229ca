"""The endpoints under `traces/`: descriptions of traces in the tracking database, and their spans from the store.

The spans arrive over OTLP; clients send the description of a trace when it is finished.
"""

import json
from collections.abc import Mapping
from typing import Any

from stepscope.dialects.mlflow.receiver.errors import MISSING, missing_value, refused, wrong_type
from stepscope.dialects.mlflow.receiver.experiments import check_active, experiment_number, find_experiment
from stepscope.dialects.mlflow.receiver.names_and_limits import LONGEST_KEY, check_length, check_name, masked
from stepscope.dialects.mlflow.receiver.run_search import check_count
from stepscope.dialects.mlflow.receiver.run_table import MlflowRun, find_run
from stepscope.dialects.mlflow.receiver.trace_search import DEFAULT_TRACES, MAX_TRACES, SOURCE_RUN, search_traces
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
from stepscope.dialects.mlflow.receiver.tracking import Call, Reply, Tracking
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
        experiment = find_experiment(db, _experiment_id(info), call.project)
        check_active(experiment)
        try:
            run: MlflowRun | None = find_run(db, metadata.get(SOURCE_RUN, ""), call.project)
        except Refused:
            run = None
        trace = MlflowTrace(
            trace_id=str(info["trace_id"]),
            experiment=experiment[0],
            project=run.project if run is not None else call.project or str(experiment[1]),
            run_id=run.run_id if run is not None else "",
            timestamp=moment_of(info.get("request_time")) or tracking.now,
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


def get_info(tracking: Tracking, call: Call) -> Reply:
    """Return the description of a trace."""
    with tracking.database.read() as db:
        return Reply({"trace": {"trace_info": describe_trace(db, find_trace(db, call.path["trace_id"], call.project))}})


def get_trace(tracking: Tracking, call: Call) -> Reply | None:
    """Return a trace with its spans; None while spans are missing that the client has sent."""
    fields = call.fields
    trace_id, partial = fields.text("trace_id", required=True), str(fields.text("allow_partial")).lower() == "true"
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


def batch_get(tracking: Tracking, call: Call) -> Reply:
    """Return several traces with their spans; those that do not exist or are not complete are left out."""
    ids, wanted = _ids(call), _experiments(call)
    with tracking.database.read() as db:
        found = [
            (each.trace_id, describe_trace(db, each))
            for each in find_traces(db, ids, call.project)
            if wanted is None or each.experiment in wanted
        ]
    traces, left = [], MAX_SPANS
    for trace_id, info in found:
        spans = spans_of(tracking.engine(), trace_id, call.project, left) if left > 0 else []
        left -= len(spans)
        if _is_complete(info, spans):
            traces.append({"trace_info": info, "spans": spans})
    return Reply({"traces": traces} if traces else {})


def batch_get_infos(tracking: Tracking, call: Call) -> Reply:
    """Return the descriptions of several traces."""
    ids, wanted = _ids(call), _experiments(call)
    with tracking.database.read() as db:
        found = [
            describe_trace(db, each)
            for each in find_traces(db, ids, call.project)
            if wanted is None or each.experiment in wanted
        ]
    return Reply({"trace_infos": found} if found else {})


def _experiments(call: Call) -> set[int] | None:
    """Return the experiments that a request is about; None for all."""
    given = call.fields.texts("experiment_ids")
    return {experiment_number(each) for each in given} if "experiment_ids" in call.fields.values else None


def search(tracking: Tracking, call: Call) -> Reply:
    """Return a page of the descriptions of traces."""
    fields = call.fields
    if "locations" not in fields.values:
        raise missing_value("locations")
    ids = [
        place["experiment_id"]
        for each in fields.items("locations")
        if isinstance(place := each.get("mlflow_experiment"), dict) and isinstance(place.get("experiment_id"), str)
    ]
    wanted = fields.whole("max_results")
    most = DEFAULT_TRACES if wanted is None else wanted
    if most > MAX_TRACES:
        raise wrong_type("max_results", most)
    check_count(most)
    numbers = [number for each in ids if abs(number := experiment_number(each)) < 2**63]
    page = most, fields.text("page_token")
    with tracking.database.read() as db:
        found, token = search_traces(db, numbers, fields.text("filter"), fields.texts("order_by"), page, call.project)
        described = [describe_trace(db, each) for each in found]
    body: dict[str, Any] = {"traces": described} if described else {}
    return Reply({**body, "next_page_token": token} if token else body)


def set_tag(tracking: Tracking, call: Call) -> Reply:
    """Set a tag of a trace."""
    key, value = _tag_key(call, "set"), call.fields.text("value")
    check_name(key, "key")
    check_length("key", LONGEST_KEY, key)
    with tracking.database.write() as db:
        trace = find_trace(db, call.path["trace_id"], call.project)
        row = (trace.trace_id, key, masked(key, value[:LONGEST_TAG]))
        db.execute("INSERT OR REPLACE INTO trace_tags VALUES (?, ?, ?)", row)
    return Reply({})


def _tag_key(call: Call, done: str) -> str:
    key = call.fields.text("key", required=True)
    if key == _LOCATION_TAG:
        raise refused(f"Tag '{key}' is immutable and cannot be {done} on a trace.")
    return key


def delete_tag(tracking: Tracking, call: Call) -> Reply:
    """Remove a tag of a trace."""
    key = _tag_key(call, "deleted")
    trace_id = call.path["trace_id"]
    with tracking.database.write() as db:
        found = find_traces(db, [trace_id], call.project)
        gone = found and db.execute("DELETE FROM trace_tags WHERE trace = ? AND key = ?", (trace_id, key)).rowcount
        if not gone:
            raise refused(f"No trace tag with key '{key}' for trace with ID '{trace_id}'", MISSING)
    return Reply({})


def delete(tracking: Tracking, call: Call) -> Reply:
    """Delete traces by id, or the oldest ones until a time; their spans stay in the run."""
    fields = call.fields
    number = experiment_number(fields.text("experiment_id", required=True))
    ids, until, most = fields.texts("request_ids"), fields.whole("max_timestamp_millis"), fields.whole("max_traces")
    if until is None and not ids:
        raise refused("Either `max_timestamp_millis` or `trace_ids` must be specified.")
    if until is not None and ids:
        raise refused("Only one of `max_timestamp_millis` and `trace_ids` can be specified.")
    if ids and most is not None:
        raise refused("`max_traces` can't be specified if `trace_ids` is specified.")
    if most is not None and most <= 0:
        raise refused(f"`max_traces` must be a positive integer, received {most}.")
    conditions, values = ["experiment = ?"], list[Any]([number if abs(number) < 2**63 else -1])
    if call.project is not None:
        conditions.append("project = ?")
        values.append(call.project)
    if until is not None:
        conditions.append("timestamp <= ?")
        values.append(until)
    if len(ids) > MAX_IDS:
        raise refused(f"a request can delete at most {MAX_IDS} traces by id, got {len(ids)}")
    if ids:
        conditions.append(f"trace_id IN ({', '.join('?' for _ in ids)})")
        values += ids
    where = " AND ".join(conditions)
    if most is not None:
        where = f"trace_id IN (SELECT trace_id FROM traces WHERE {where} ORDER BY timestamp, trace_id LIMIT {most})"
    with tracking.database.write() as db:
        count = delete_traces(db, (where, values))
    return Reply({"traces_deleted": count})


def link_to_run(tracking: Tracking, call: Call) -> Reply:
    """Link traces to a run."""
    ids, run_id = call.fields.texts("trace_ids"), call.fields.text("run_id", required=True)
    if not ids:
        raise missing_value("trace_ids")
    if len(ids) > MAX_LINKS:
        raise refused(
            f"Cannot link more than {MAX_LINKS} traces to a run in a single request. Provided {len(ids)} traces."
        )
    with tracking.database.write() as db:
        run = find_run(db, run_id, call.project)
        link_run(db, [each.trace_id for each in find_traces(db, ids, call.project)], run.run_id)
    return Reply({})
