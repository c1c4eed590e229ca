"""The Prometheus sink: what a scraper sees, what is stale or too much, and a real Prometheus that scrapes it."""

import gzip
import json
import math
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.cli.probe import probe
from stepscope.dialects.prometheus.sink import Prometheus, PrometheusSink
from stepscope.dialects.prometheus.sink.latest_values import SETS, SWEEP_SECONDS, TOO_MANY, TWO_KINDS, Series
from stepscope.model import names
from stepscope.model.errors import ConfigError, Retry
from stepscope.model.ports import Batch, Sink, Writer
from stepscope.model.records import Histogram, Instrument, Metric, Record, Summary
from stepscope.sdk.shipping.shipper_process import Shipping, ship
from stepscope.sinks.registry import parse
from stepscope.testing.sinks import WRITERS, SinkContract, closing, example_batches

NOW = 1_700_000_001.0
T = 1_700_000_000_000_000_000
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def fetch(sink: PrometheusSink, accept: str = "", path: str = "/metrics") -> str:
    """What a scraper gets."""
    request = urllib.request.Request(f"http://127.0.0.1:{sink.port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return str(answer.read().decode())


def samples(sink: PrometheusSink) -> dict[str, str]:
    """Each sample with its value."""
    lines = [line for line in fetch(sink).splitlines() if not line.startswith("#")]
    return dict(tuple(line.rsplit(" ", 1)) for line in lines)  # type: ignore[misc]


class Scraper:
    """The other side as the contract speaks to it: it sees the latest step of each rank after each write."""

    def __init__(self, sink: PrometheusSink) -> None:
        self._sink = sink

    def steps(self) -> list[int]:
        """The steps seen: up to the latest of each rank."""
        found: list[int] = []
        for rank in range(2):
            label = f'stepscope_train_step{{project="sinks",rank="{rank}",run="contract"}}'
            latest = samples(self._sink).get(label)
            found += range(rank * 5, int(latest) + 1) if latest else ()
        return found


@pytest.fixture
def sink() -> Iterator[Sink]:
    """The sink on any port, which believes that the examples are of the present."""
    with closing(PrometheusSink(Prometheus(port=0), now=lambda: NOW)) as made:
        yield made


@pytest.fixture
def peer(sink: PrometheusSink) -> Scraper:
    """Its scraper."""
    return Scraper(sink)


class TestContract(SinkContract):
    """Every sink's contract; a scraped sink gets no answers."""

    can_be_busy = False
    can_refuse = False


def write(sink: Sink, *records: Record, writer: Writer = WRITERS[0]) -> object:
    """Offer records of one writer."""
    return sink.write([Batch(writer, 0, list(records))])


LABELS = '{project="sinks",rank="0",run="contract"}'


def test_latest_values(sink: PrometheusSink) -> None:
    """The latest value by time is shown, even if an older one arrives later; NaN is a value."""
    write(sink, Metric(T + 5, 5, None, "trainer", {"loss": 0.5, "bad": math.nan, "ok": True}))
    write(sink, Metric(T + 1, 1, None, "trainer", {"loss": 0.1}))
    assert samples(sink) == {
        f"stepscope_trainer_loss{LABELS}": "0.5",
        f"stepscope_trainer_bad{LABELS}": "NaN",
        f"stepscope_trainer_ok{LABELS}": "1",
        f"stepscope_train_step{LABELS}": "5",
    }


def test_both_formats_by_accept(sink: PrometheusSink) -> None:
    """OpenMetrics when it is asked for, compressed when that is."""
    write(sink, Metric(T, 5, None, "trainer", {"loss": 0.5}))
    assert fetch(sink, OPENMETRICS).endswith("# EOF\n")
    assert "EOF" not in fetch(sink, "text/plain")
    asked = {"Accept": OPENMETRICS, "Accept-Encoding": "gzip"}
    request = urllib.request.Request(f"http://127.0.0.1:{sink.port}/metrics", headers=asked)
    with urllib.request.urlopen(request, timeout=300) as answer:
        assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert gzip.decompress(answer.read()).endswith(b"# EOF\n")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(sink, path="/")


def test_instruments(sink: PrometheusSink) -> None:
    """Sums are counters, differences add up, histograms have buckets, samples are a count and a sum."""
    histogram = Histogram(3, 6.0, 1.0, 3.0, (2.0,), (2, 1))
    total, delta = Instrument("sum", monotonic=True, start=T), Instrument("sum", monotonic=True, cumulative=False)
    timing = Instrument("timing", cumulative=False)
    half = {names.ATTR_SAMPLE_RATE: 0.5}
    assert not write(
        sink,
        Metric(T, None, None, None, {"tokens": 5.0}, {}, total),
        Metric(T + 1, None, None, None, {"tokens": 7.0}, {}, total),
        Metric(T, None, None, None, {"added": 2}, {}, delta),
        Metric(T + 1, None, None, None, {"added": 3}, {}, delta),
        Metric(T, None, None, None, {"wait": histogram}, {}, Instrument("histogram", start=T, description="w")),
        Metric(T, None, None, None, {"forward": 2.0}, half, timing),
        Metric(T + 1, None, None, None, {"forward": 4.0}, half, timing),
        Metric(T, None, None, None, {"said": Summary(1, 2.0, ((0.5, 2.0),))}, {}, Instrument("summary")),
        Metric(T, 1, None, None, {"weights": histogram}),
    )
    found = {key.removeprefix("stepscope_").replace(LABELS, ""): value for key, value in samples(sink).items()}
    assert (found["tokens_total"], found["added_total"]) == ("7.0", "5")
    assert found['wait_bucket{project="sinks",rank="0",run="contract",le="2.0"}'] == "2"
    assert (found["forward_count"], found["forward_sum"]) == ("4", "12.0")
    assert (found["said_count"], found["weights_max"]) == ("1", "3.0")
    assert (found["weights_values"], found["weights_mean"]) == ("3", "2.0")
    assert "# HELP stepscope_wait w\n# TYPE stepscope_wait histogram" in fetch(sink)


def test_runs_ranks_and_attributes_are_labels(sink: PrometheusSink) -> None:
    """Labels are escaped and may be in any language; the step is not a label."""
    write(sink, Metric(T, 3, "timesteps", None, {"x": 1.0}, {"größe": 'a"b\\c\nd', "step": 3, "run": "mine"}))
    write(sink, Metric(T, 3, None, None, {"x": 2.0}), writer=WRITERS[1])
    found = samples(sink)
    label = 'stepscope_x{exported_run="mine",gru00f6u00dfe="a\\"b\\\\c\\nd",project="sinks",rank="0",run="contract"}'
    assert found[label] == "1.0"
    assert found['stepscope_x{project="sinks",rank="1",run="contract"}'] == "2.0"
    assert any('axis="timesteps"' in key for key in found)


def test_stale_runs_drop_out() -> None:
    """Stale series expire; old journals are skipped."""
    moment = [NOW]
    with closing(PrometheusSink(Prometheus(port=0, stale=60), now=lambda: moment[0])) as sink:
        other = Writer(id="o", run="other", project="p")
        write(sink, Metric(T, 1, None, None, {"x": 1.0}))
        write(sink, Metric(T + 50 * 10**9, 1, None, None, {"x": 2.0}), writer=other)
        assert len(samples(sink)) == 4
        moment[0] += 70
        assert set(samples(sink).values()) == {"1", "2.0"}
        write(sink, Metric(T, 2, None, None, {"x": 1.0}))
        assert len(samples(sink)) == 2
        moment[0] += 70
        assert fetch(sink) == ""


def test_the_number_of_series_is_bounded(sink: PrometheusSink) -> None:
    """Series beyond the limit are rejected, counted and shown; known series continue; stale ones expire."""
    moment = [NOW]
    with closing(PrometheusSink(Prometheus(port=0, max_series=10, stale=60), now=lambda: moment[0])) as small:
        many = [Metric(T, None, None, None, {"x": 1.0}, {"n": n}) for n in range(25)]
        assert write(small, *many) == {TOO_MANY: 15}
        assert write(small, Metric(T, None, None, None, {"x": 5.0}, {"n": 3})) == {}
        found = samples(small)
        assert sum(key.startswith("stepscope_x{") for key in found) == 10
        assert found['stepscope_values_refused_total{reason="more series than `max_series`"}'] == "15"
        moment[0] += 100
        assert write(small, Metric(T + 100 * 10**9, None, None, None, {"y": 1.0})) == {}


def test_what_has_no_place_is_counted(sink: PrometheusSink) -> None:
    """Sets, and a name of two kinds."""
    counter = Instrument("sum", monotonic=True, cumulative=False)
    assert write(
        sink,
        Metric(T, None, None, None, {"x": 1.0}),
        Metric(T, None, None, None, {"x": 1.0}, {}, counter),
        Metric(T, None, None, None, {"users": 1}, {}, Instrument("set", cumulative=False)),
    ) == {TWO_KINDS: 1, SETS: 1}


def test_a_port_that_is_taken(sink: PrometheusSink) -> None:
    """A port in use is reported in one line, and used as soon as it is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        other = Prometheus(port=port).open()
        with pytest.raises(Retry, match=f"port {port} is in use"):
            other.write(example_batches())
    assert not other.write([])
    assert other.port == port
    other.close()
    with pytest.raises(Retry, match="cannot be listened on"):
        Prometheus(host="192.0.2.1", port=0).open().write([])


def test_only_this_machine_by_default() -> None:
    """Another address is a person's decision."""
    assert Prometheus.read({}, {}).place == "http://127.0.0.1:9464/metrics"
    env = {"OTEL_EXPORTER_PROMETHEUS_HOST": "0.0.0.0", "OTEL_EXPORTER_PROMETHEUS_PORT": "9999"}
    assert Prometheus.read({}, env).place == "http://0.0.0.0:9999/metrics"
    assert Prometheus.read({"port": 1}, env).port == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"port": 70000}, "1 to 65535"),
        ({"host": ""}, "127.0.0.1"),
        ({"stale": 0}, "above 0"),
        ({"max_series": 0}, "above 0"),
        ({"prt": 1}, "did you mean 'port'"),
    ],
)
def test_wrong_ones_name_the_fix(options: dict[str, Any], words: str) -> None:
    """Each error says what would be right."""
    with pytest.raises(ConfigError, match=words):
        Prometheus.read(options, {})


def test_the_doctor() -> None:
    """A free port passes, a port in use is reported."""
    (ok,) = probe('[{"prometheus": {"port": 0}}]')
    assert ok.ok
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (told,) = probe(f'[{{"prometheus": {{"port": {taken.getsockname()[1]}}}}}]')
    assert (told.ok, "is in use" in told.text) == (False, True)


def everything() -> list[Record]:
    """A record of each type, of the present."""
    now = time.time_ns()
    histogram = Histogram(3, 6.0, 1.0, 3.0, (2.0,), (2, 1))
    return [
        Metric(now, 7, None, "trainer", {"loss": 0.25, "bad": math.nan, "損失": math.inf}, {"größe": 'a"b\\c\nd'}),
        Metric(now, None, None, None, {"tokens": 5}, {}, Instrument("sum", monotonic=True, start=now)),
        Metric(now, None, None, None, {"wait": histogram}, {}, Instrument("histogram", start=now, description='w "x"')),
        Metric(now, None, None, None, {"forward": 2.0}, {}, Instrument("timing", cumulative=False)),
        Metric(now, None, None, None, {"said": Summary(1, 2.0, ((0.5, 2.0),))}, {}, Instrument("summary")),
    ]


CONFIG = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs: [{{job_name: stepscope, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[tuple[PrometheusSink, str]]:
    """A sink, and the address of a real Prometheus that scrapes it."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian package prometheus)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with closing(Prometheus(port=0).open()) as sink:
        assert isinstance(sink, PrometheusSink)
        sink.write([])
        (tmp_path / "prometheus.yml").write_text(CONFIG.format(port=sink.port))
        command = [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        command.append(f"--web.listen-address=127.0.0.1:{port}")
        with open(tmp_path / "log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield sink, f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def ask(address: str, query: str) -> list[dict[str, Any]]:
    """What Prometheus answers to a query; nothing while it starts."""
    url = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except OSError:
        return []


def test_a_real_prometheus_scrapes_it(prometheus: tuple[PrometheusSink, str]) -> None:
    """And answers queries with our values, every type, NaN and unicode among them."""
    sink, address = prometheus
    deadline = time.monotonic() + 300
    found: list[dict[str, Any]] = []
    while not found and time.monotonic() < deadline:
        write(sink, *everything())
        time.sleep(0.1)
        found = ask(address, "stepscope_trainer_loss")
    (loss,) = found
    assert loss["value"][1] == "0.25"
    assert loss["metric"]["run"] == "contract"
    assert loss["metric"]["gru00f6u00dfe"] == 'a"b\\c\nd'
    assert ask(address, "stepscope_train_step")[0]["value"][1] == "7"
    assert ask(address, "stepscope_trainer_bad")[0]["value"][1] == "NaN"
    assert ask(address, "stepscope_trainer_u640du5931")[0]["value"][1] == "+Inf"
    assert ask(address, 'stepscope_wait_bucket{le="2.0"}')[0]["value"][1] == "2"
    assert int(ask(address, "stepscope_forward_count")[0]["value"][1]) >= 1
    assert ask(address, "stepscope_tokens_total")[0]["value"][1] == "5"
    assert ask(address, 'up{job="stepscope"}')[0]["value"][1] == "1"


class LookedThrough(Series):
    """Counts how often all series are looked through."""

    looks = 0

    def _sweep(self, oldest: float) -> None:
        self.looks += 1
        super()._sweep(oldest)


def test_values_without_a_place_cost_little() -> None:
    """Series are looked through once in a while, not for each value that is refused; what became stale makes room."""
    series = LookedThrough(namespace="", most=100, stale_seconds=10.0)
    many = Metric(T, None, None, None, {f"key_{number}": 1.0 for number in range(1000)})
    assert series.take(WRITERS[0], many, NOW) == [TOO_MANY] * 900
    assert series.take(WRITERS[0], many, NOW + SWEEP_SECONDS / 2) == [TOO_MANY] * 900
    assert series.looks == 1
    later = Metric(T + 20 * 10**9, None, None, None, {f"new_{number}": 1.0 for number in range(50)})
    assert series.take(WRITERS[0], later, NOW + 20) == []
    assert series.looks == 2
    assert {family.name for family in series.families(NOW + 20)} == {f"new_{number}" for number in range(50)}


def test_the_report_says_the_real_port(tmp_path: Path) -> None:
    """With any port that is free, the report names the one that was taken; the sink's id stays."""
    (chosen,) = parse([{"prometheus": {"port": 0}}], {})
    run = stepscope.init(run_id="far", home=tmp_path, probes=False, capture_logs=False, otel=False, shipper="none")
    run.log({"loss": 0.5}, step=1, category="trainer")
    run.finish()
    shipping = Shipping(tmp_path, sinks=[chosen])
    try:
        assert ship(shipping, wait=False, seconds=30)
        (report,) = shipping.reports()
        with urllib.request.urlopen(report.place, timeout=300) as answer:
            assert "stepscope_trainer_loss" in answer.read().decode()
    finally:
        shipping.stop(5)
    (last,) = shipping.reports()
    assert (last.place, last.sink) == (report.place, chosen.id)
