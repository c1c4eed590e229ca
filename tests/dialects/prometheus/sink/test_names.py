"""Names and labels on the Prometheus sink's page: no two samples clash, and promtool has no remark."""

import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest
from msgspec import structs

from stepscope.dialects.prometheus.sink import Prometheus, PrometheusSink
from stepscope.dialects.prometheus.sink.latest_values import TWO_KEYS, TWO_KINDS
from stepscope.model.records import Histogram, Instrument, Metric, Record, Summary
from stepscope.testing.sinks import closing
from tests.dialects.prometheus.sink.test_prometheus import everything, fetch, write


@pytest.fixture
def sink() -> Iterator[PrometheusSink]:
    """The sink on any port."""
    with closing(PrometheusSink(Prometheus(port=0))) as made:
        assert isinstance(made, PrometheusSink)
        yield made


def test_promtool_finds_nothing_wrong() -> None:
    """Prometheus's own checker has no remark, whatever is shown, colliding names included."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    with closing(Prometheus(port=0).open()) as sink:
        assert isinstance(sink, PrometheusSink)
        write(sink, *everything(), *colliding())
        text = fetch(sink)
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def colliding() -> list[Record]:
    """Metrics and attributes whose names are one in Prometheus, and one instrument name in two scopes."""
    now = time.time_ns()
    sum, summary = Instrument("sum", monotonic=True, start=now), Instrument("summary")
    spread = Histogram(3, 6.0, 1.0, 3.0, (2.0,), (2, 1))
    return [
        Metric(now, None, None, None, {"said": Summary(1, 2.0, ())}, {"quantile": "q", "run": "mine"}, summary),
        Metric(now, None, None, None, {"wait": spread}, {"le": "x"}, Instrument("histogram", start=now)),
        Metric(now, None, None, None, {"x": 1.0}, {"a.b": 1, "a_b": 2, "a-b": 3}),
        Metric(now, None, None, None, {"of_step": spread}, {}),
        *(
            Metric(now, None, None, None, {"requests": n}, {}, structs.replace(sum, scope=scope))
            for n, scope in enumerate(("lib", "other"), 1)
        ),
        Metric(now, None, None, None, {"tokens_total": 3.0}, {}),
        Metric(now, None, None, None, {"said_count": 3.0}, {}),
    ]


def test_one_name_in_two_scopes_is_two_series(sink: PrometheusSink) -> None:
    """The same name in two scopes is two series with different `otel_scope_name`."""
    write(sink, *colliding())
    lines = [line for line in fetch(sink).splitlines() if line.startswith("stepscope_requests_total")]
    assert [(line.partition('otel_scope_name="')[2].partition('"')[0], line[-2:]) for line in lines] == [
        ("lib", " 1"),
        ("other", " 2"),
    ]


def test_attributes_that_are_one_label_are_joined_and_counted(sink: PrometheusSink) -> None:
    """In the order of their names; one that has the name of our own label is called `exported_...`."""
    write(sink, *colliding())
    text = fetch(sink)
    assert 'stepscope_x{a_b="3;1;2",' in text
    assert 'exported_quantile="q",exported_run="mine"' in text
    assert 'exported_le="x"' in text
    assert "stepscope_label_clashes_total 5" in text


def test_a_gauge_named_like_a_sample_of_another_type_has_a_name_of_its_own(sink: PrometheusSink) -> None:
    """A gauge `tokens_total` beside a counter `tokens` is `tokens_total_value`; a gauge `tokens` is refused."""
    write(sink, *everything())
    assert write(sink, *colliding()[-2:]) == {}
    text = fetch(sink)
    assert "# TYPE stepscope_tokens_total_value gauge" in text
    assert "# TYPE stepscope_said_count_value gauge" in text
    assert write(sink, Metric(time.time_ns(), None, None, None, {"tokens": 3.0}, {})) == {TWO_KINDS: 1}


def test_metrics_that_are_one_name_do_not_replace_each_other(sink: PrometheusSink) -> None:
    """The first of `a b` and `a-b` is shown, the others are refused and counted; other labels make other series."""
    now = time.time_ns()
    assert write(sink, Metric(now, None, None, None, {"a b": 1.0, "a-b": 2.0}, {})) == {TWO_KEYS: 1}
    assert write(sink, Metric(now, None, None, None, {"a-b": 3.0}, {"worker": "w"})) == {}
    text = fetch(sink)
    values = [line for line in text.splitlines() if line.startswith("stepscope_a_b{")]
    assert sorted(line.rpartition(" ")[2] for line in values) == ["1.0", "3.0"]
    assert f'stepscope_values_refused_total{{reason="{TWO_KEYS}"}} 1' in text
