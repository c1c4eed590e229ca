"""Traces of a client, read back: spans with their inputs, outputs, events and status; searches, tags, deletion."""

import contextlib
import json
from typing import Any

import mlflow
from mlflow.entities import SpanEvent, SpanType

client = mlflow.MlflowClient()
experiment = mlflow.set_experiment("traced").experiment_id


@mlflow.trace(span_type=SpanType.CHAIN, attributes={"k": [1, 2.5, None, {"deep": True}]})
def answer(question: str, fail: bool = False) -> dict[str, Any]:
    """A chain of two spans."""
    with mlflow.start_span("look up", span_type=SpanType.RETRIEVER) as span:
        span.set_inputs({"query": question, "many": list(range(5))})
        span.add_event(SpanEvent("found", attributes={"count": 3, "score": 0.5}))
        span.set_outputs(["a", "b"])
    mlflow.update_current_trace(tags={"team": "red" if fail else "blue", "length": str(len(question))})
    if fail:
        raise ValueError("no answer")
    return {"text": question.upper(), "nothing": None}


with mlflow.start_run() as run:
    answer("one")
answer("two")
with contextlib.suppress(ValueError):
    answer("three", fail=True)
mlflow.flush_trace_async_logging()


def named(traces: list[Any]) -> list[str]:
    """What the traces were asked."""
    return [json.loads(each.data.request)["question"] for each in traces]


def found(**fields: Any) -> list[str]:
    """What a search finds, or that it is refused."""
    try:
        return named(mlflow.search_traces(locations=[experiment], return_type="list", **fields))
    except mlflow.MlflowException as error:
        return [error.error_code]


every = mlflow.search_traces(locations=[experiment], return_type="list", order_by=["timestamp_ms ASC"])
first, failed = every[0], every[2]
whole = mlflow.get_trace(first.info.trace_id)
ids = {each.span_id: each.name for each in whole.data.spans}
client.set_trace_tag(first.info.trace_id, "later", "yes")
client.set_trace_tag(first.info.trace_id, "team", "green")
client.delete_trace_tag(first.info.trace_id, "length")
client.link_traces_to_run([every[1].info.trace_id], run.info.run_id)
pages = [client.search_traces(locations=[experiment], max_results=2, order_by=["timestamp_ms"], include_spans=False)]
pages.append(
    client.search_traces(
        locations=[experiment], max_results=2, order_by=["timestamp_ms"], page_token=pages[0].token, include_spans=False
    )
)
filters = [
    "tags.team = 'green'",
    "tag.team != 'green'",
    "tags.later IS NULL",
    "tags.later IS NOT NULL",
    "status = 'ERROR'",
    "trace.status IN ('OK', 'ERROR')",
    "name = 'answer'",
    "name LIKE 'ans%'",
    "attributes.name != 'x'",
    f"run_id = '{run.info.run_id}'",
    f"metadata.`mlflow.sourceRun` = '{run.info.run_id}'",
    f"request_id = '{first.info.trace_id}'",
    "timestamp_ms > 0 AND status = 'OK'",
    "timestamp > 99999999999999",
    "execution_time_ms >= 0",
    "end_time_ms > 5",
    "metadata.none = 'x'",
    "bogus = 'x'",
    "status > 'a'",
    "tags.team = 5",
    "timestamp_ms = 'x'",
]
matched = {text: sorted(found(filter_string=text)) for text in filters[:9] + filters[12:]}
by_run = [sorted(found(filter_string=text)) for text in filters[9:12]]
tagged = client.get_trace(first.info.trace_id, display=False).info.tags
deleted = client.delete_traces(experiment, trace_ids=[failed.info.trace_id])
print(
    json.dumps(
        {
            "all": named(every),
            "states": [str(each.info.state) for each in every],
            "tags": {key: tagged.get(key) for key in ("later", "team", "length", "mlflow.traceName")},
            "run": first.info.trace_metadata["mlflow.sourceRun"] == run.info.run_id,
            "previews": [first.info.request_preview, first.info.response_preview],
            "timed": first.info.execution_duration is not None and first.info.request_time > 0,
            "spans": [
                {
                    "name": each.name,
                    "type": each.span_type,
                    "parent": ids.get(each.parent_id),
                    "inputs": each.inputs,
                    "outputs": each.outputs,
                    "k": each.get_attribute("k"),
                    "status": str(each.status.status_code),
                    "events": [[event.name, dict(event.attributes)] for event in each.events],
                    "ordered": each.start_time_ns <= each.end_time_ns,
                }
                for each in whole.data.spans
            ],
            "failed": [
                [each.name, str(each.status.status_code), [event.name for event in each.events]]
                for each in failed.data.spans
            ],
            "found": matched,
            "by run": by_run,
            "ordered": [
                found(order_by=order)
                for order in (["timestamp_ms DESC"], ["status", "timestamp ASC"], ["tags.team DESC"], ["bogus"])
            ],
            "pages": [len(each) for each in pages],
            "table": sorted(mlflow.search_traces(locations=[experiment]).columns),
            "deleted": deleted,
            "missing": mlflow.get_trace(failed.info.trace_id) is None,
            "left": len(client.search_traces(locations=[experiment])),
        }
    )
)
