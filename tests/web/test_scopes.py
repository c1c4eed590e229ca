"""One instrument name in two instrumentation scopes is two lines of a chart and two rows of a step."""

import re

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Opened, turn_to, until

START = 1_790_000_000 * 10**9


def measured(scope: str, high: float) -> ScopeMetrics:
    """Five steps of an instrument."""
    points = [
        NumberDataPoint(
            time_unix_nano=START + step * 10**9,
            as_double=high + step,
            attributes=[KeyValue(key="train.step", value=AnyValue(int_value=step))],
        )
        for step in range(5)
    ]
    metric = Metric(name="queue", unit="1", gauge=Gauge(data_points=points))
    return ScopeMetrics(scope=InstrumentationScope(name=scope), metrics=[metric])


def test_two_scopes_are_two_lines_and_two_rows(trained: RunningHub, show: Opened) -> None:
    """Each named by its scope, in the chart and in the step inspector."""
    run = KeyValue(key="train.run.id", value=AnyValue(string_value="scoped"))
    sent = ExportMetricsServiceRequest(
        resource_metrics=[
            ResourceMetrics(
                resource=Resource(attributes=[run]), scope_metrics=[measured("reader", 0.0), measured("writer", 100.0)]
            )
        ]
    )
    assert trained.post("/v1/metrics", sent.SerializeToString()).status == 200
    wait_until(lambda: trained.request("GET", "/api/runs/scoped").json().get("counts", {}).get("points") == 10)
    page = show(trained, "run/scoped?q=queue")
    until(page, "document.querySelectorAll('.chart-legend span').length === 2")
    legend = page.evaluate("document.querySelector('.chart-legend').innerText")
    assert re.findall(r"reader|writer", legend) == ["reader", "writer"]
    turn_to(page, "run/scoped?q=queue&step=3")
    until(page, "/queue · reader/.test(document.body.innerText) && /queue · writer/.test(document.body.innerText)")
