"""The endpoint to which MLflow's clients send the description of a finished trace; its spans arrive over OTLP."""

import json
from typing import Any

from stepscope.dialects.mlflow.receiver.errors import missing_value, refused
from stepscope.dialects.mlflow.receiver.run_table import find_run
from stepscope.dialects.mlflow.receiver.tracking import Call, Reply, Tracking
from stepscope.extend.receiver import Refused
from stepscope.model.records import Event
from stepscope.model.redaction import redact

EVENT_TRACE = "mlflow.trace"
_SPANS_LOCATION = ("mlflow.trace.spansLocation", "TRACKING_STORE")
"""The tag that tells clients not to upload the spans as an artifact as well."""
_SOURCE_RUN = "mlflow.sourceRun"
_KEPT = ("trace_id", "state", "request_preview", "response_preview", "execution_duration", "assessments")


def end_trace(tracking: Tracking, call: Call) -> Reply:
    """Store the description of a trace as an event of its run; without a run only the spans are stored."""
    info = _trace_info(call)
    metadata, tags = _mapping(info, "trace_metadata"), _mapping(info, "tags")
    answer = {"trace": {"trace_info": {**info, "tags": dict([*tags.items(), _SPANS_LOCATION])}}}
    try:
        with tracking.database.read() as db:
            run = find_run(db, str(metadata.get(_SOURCE_RUN)), call.project)
    except Refused:
        return Reply(answer)
    own = {key: value for key, value in tags.items() if not key.startswith("mlflow.")}
    attrs = {key: info[key] for key in _KEPT if key in info} | ({"tags": own} if own else {})
    severity = 17 if info.get("state") == "ERROR" else 9
    event = Event(tracking.clock(), None, None, _trace(info), None, severity, EVENT_TRACE, redact(attrs))
    return Reply(answer, [tracking.submit_once(run, [event], call.project, json.dumps(info))], run.run_id)


def _trace_info(call: Call) -> dict[str, Any]:
    trace = call.fields.values.get("trace")
    info = trace.get("trace_info") if isinstance(trace, dict) else None
    if not isinstance(info, dict):
        raise missing_value("trace")
    try:
        text = json.dumps(info, ensure_ascii=False).encode("utf-8", "replace")  # UTF-8 cannot encode lone surrogates
        found: dict[str, Any] = json.loads(text)
    except RecursionError:
        raise refused("the description of the trace is nested too deep") from None
    return found


def _mapping(info: dict[str, Any], name: str) -> dict[str, Any]:
    found = info.get(name)
    return found if isinstance(found, dict) else {}


def _trace(info: dict[str, Any]) -> bytes | None:
    """Return the id that the spans have; MLflow puts `tr-` before it."""
    try:
        found = bytes.fromhex(str(info.get("trace_id")).removeprefix("tr-"))
    except ValueError:
        return None
    return found if len(found) == 16 else None
