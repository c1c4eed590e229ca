"""Limits on series."""

from pathlib import Path
from typing import Any

import pytest

from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.intake.scrub import IDLE_SECONDS, TOO_MANY_SERIES, SeriesLimits
from stepscope.hub.limits import Limits
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.serving.app import build_app
from stepscope.model.names import ATTR_EXEMPLARS
from stepscope.model.records import Instrument, Metric
from tests.hub.in_process import request

NOW = 1_750_000_000


def metric(attrs: Any = (), key: str = "loss", instrument: Instrument | None = None) -> Metric:
    """Return a metric of one value."""
    return Metric(1, 1, None, None, {key: 1.0}, dict(attrs), instrument)


def taken(limits: SeriesLimits, run: str, *metrics: Metric) -> list[bool]:
    """Return which metrics of a run are taken."""
    return [limits.admits(limits.of(run), each) for each in metrics]


def test_a_random_attribute_of_each_point_is_refused_beyond_the_limit() -> None:
    """New attributes are refused once a run has too many series; known ones and keys without attributes are not."""
    limits = SeriesLimits(Limits(series=3))
    fresh = [metric({"request": at}) for at in range(5)]
    assert taken(limits, "r", *fresh) == [True, True, True, False, False]
    assert taken(limits, "r", *fresh[:3], metric(), metric(key="other")) == [True] * 5
    assert taken(limits, "other run", fresh[4]) == [True]


def test_units_and_scopes_make_series_and_start_times_do_not() -> None:
    """What the store counts as another series is counted here; the start of an interval and exemplars are not."""
    limits = SeriesLimits(Limits(series=2))
    starts = [metric(instrument=Instrument("sum", start=at)) for at in range(3)]
    assert taken(limits, "r", *starts) == [True] * 3
    units = [metric(instrument=Instrument("sum", unit=str(at))) for at in range(2)]
    assert taken(limits, "r", *units) == [True, False]
    exemplars = [metric({ATTR_EXEMPLARS: [{"value": at}]}, instrument=Instrument("sum")) for at in range(3)]
    assert taken(limits, "r", *exemplars) == [True] * 3
    assert taken(limits, "x", metric({"list": [1]}), metric({"list": [{"a": 2}]}), metric({"list": [3]})) == [
        True, True, False
    ]  # fmt: skip


def test_all_runs_together_have_a_limit_until_some_are_idle() -> None:
    """Series beyond the limit of all runs are refused until runs that sent nothing for a while are forgotten."""
    now = [0.0]
    limits = SeriesLimits(Limits(), most_in_all=3, clock=lambda: now[0])
    assert taken(limits, "a", metric(key="x"), metric(key="y"), metric(key="z")) == [True] * 3
    assert taken(limits, "b", metric()) == [False]
    now[0] = IDLE_SECONDS + 1
    assert taken(limits, "b", metric()) == [True]
    assert taken(limits, "a", metric(key="x"), metric(key="y"), metric(key="z")) == [True, True, False]


def datadog_body(count: int) -> tuple[str, Any]:
    """A series for each point, by a random tag."""
    points = [{"timestamp": NOW, "value": 1.0}]
    tags = [["run_id:dd", f"request:{at}"] for at in range(count)]
    return "/api/v2/series", {"series": [{"metric": "m", "points": points, "tags": each} for each in tags]}


def otlp_body(count: int) -> tuple[str, Any]:
    """The same in OTLP."""
    points = [
        {
            "timeUnixNano": str(NOW * 10**9),
            "asDouble": 1.0,
            "attributes": [{"key": "request", "value": {"intValue": str(at)}}],
        }
        for at in range(count)
    ]
    resource = {"attributes": [{"key": "train.run.id", "value": {"stringValue": "otlp"}}]}
    scopes = [{"metrics": [{"name": "m", "gauge": {"dataPoints": points}}]}]
    return "/v1/metrics", {"resourceMetrics": [{"resource": resource, "scopeMetrics": scopes}]}


def test_receivers_count_and_report_series_beyond_the_limit(tmp_path: Path) -> None:
    """A random tag for each point: OTLP and Datadog's intake take as many as the limit and report the rest."""
    pytest.importorskip("tests.chdb")
    home = HubHome(tmp_path / "home")
    options = HubOptions(home=home.home, limits=Limits(series=5))
    hub = Hub(options, home, open_home_store(home), Tokens(home.tokens))
    try:
        app = build_app(hub)

        def send(path: str, body: Any) -> Any:
            return request(app, "POST", path, json=body).json()

        otlp = send(*otlp_body(8))
        assert int(otlp["partialSuccess"]["rejectedDataPoints"]) == 3
        assert TOO_MANY_SERIES in otlp["partialSuccess"]["errorMessage"]
        assert send(*datadog_body(8)) == {"errors": [f"{TOO_MANY_SERIES} (3)"]}
        counted = hub.health()["receivers"]
        for name in ("otlp_http", "datadog"):
            assert counted[name]["rejected"] == {TOO_MANY_SERIES: 3}
            assert counted[name]["written"] == 5
    finally:
        hub.close(0.1)
