"""Our own Datadog sink against our own receivers: what was recorded arrives as it was."""

import time
from pathlib import Path

import pytest

from stepscope.dialects.datadog.sink.agent_socket import Address, Agent
from stepscope.dialects.datadog.sink.parts import DogStatsdSink, IntakeSink
from stepscope.dialects.datadog.wire.translate import Spelling, Translator
from stepscope.model.ports import Batch, Sink, Writer
from stepscope.model.records import Event, Instrument, Log, Metric, Record
from stepscope.wire import foreign_names
from tests.dialects.datadog.conftest import DatadogHub
from tests.hub.test_connections import wait_for

SECOND = 1_000_000_000
KEYS = ("trainer/loss", "trainer/lr", "evaluator/accuracy")
COUNT, SAMPLE = Instrument("sum", cumulative=False), Instrument("distribution", cumulative=False)


def recorded() -> list[Record]:
    """What a loop records: values, counts and samples at steps, an event, a check, a log."""
    start = time.time_ns() - 8 * SECOND
    made: list[Record] = []
    for step in range(4):
        at = start + step * SECOND
        made.append(Metric(at, step, None, None, {key: step / 7 + number for number, key in enumerate(KEYS)}))
        made.append(Metric(at, step, None, None, {"trainer/tokens": 512 * (step + 1)}, {"split": "train"}, COUNT))
        made.append(Metric(at, step, None, None, {"trainer/latency": step * 0.1}, {}, SAMPLE))
    made.append(Event(start + 3 * SECOND, 3, None, None, None, 13, "milestone", {"note": "x"}, "two\nlines"))
    check = {foreign_names.ATTR_CHECK_STATUS: "CRITICAL"}
    made.append(Event(start + 3 * SECOND, None, None, None, None, 17, "kl", check, "too|high"))
    made.append(Log(start + 3 * SECOND, 3, None, bytes(range(16)), bytes(range(1, 9)), 17, "oh", {"a": 1}, "my.logger"))
    return made


def opened(hub: DatadogHub, transport: str, place: Path) -> Sink:
    """The sink that sends to a hub."""
    translator = Translator(Spelling(namespace="stepscope", run_tag=True), logs=transport == "http")
    if transport == "http":
        return IntakeSink(hub.url, hub.url, "k" * 32, translator, timeout=30)
    address = Address(socket_path=hub.addresses[transport])
    return DogStatsdSink(Agent(address, timeout=10), translator, timeout=30, most_bytes=8192)


@pytest.mark.parametrize("transport", ["unixstream", "http"])
def test_values_and_steps_come_back(datadog_hub: DatadogHub, transport: str, tmp_path: Path) -> None:
    """Every value under its key and at its step, every event, check and log, with rank and project."""
    run = f"round-{transport}"
    writer = Writer(id="w", run=run, project="p", rank=1, world_size=2, host="box")
    sink = opened(datadog_hub, transport, tmp_path)
    records = recorded()
    assert not sink.write([Batch(writer, 0, records)])
    sink.close()
    sent = sorted(
        [key, record.step, value]
        for record in records
        if isinstance(record, Metric)
        for key, value in record.values.items()
    )
    rows = datadog_hub.wait_rows(run, len(sent) + 4)
    assert [row for row in rows if row[0] != "train.step"] == sent
    assert {row[0] for row in datadog_hub.rows(run, "s.rank")} == {1}
    assert datadog_hub.request("GET", f"/api/runs/{run}").json()["project"] == "p"
    tables = f"logs AS l INNER JOIN runs AS r ON r.run = l.run WHERE r.id = '{run}' ORDER BY l.name"
    wanted = [["", 3, 17, "oh"]] if transport == "http" else []
    wanted += [["kl", 3, 17, "too|high"], ["milestone", 3, 13, "two\nlines"]]
    wait_for(lambda: len(datadog_hub.sql(f"SELECT l.name FROM {tables}")) == len(wanted))
    assert datadog_hub.sql(f"SELECT l.name, l.step, l.severity, l.body FROM {tables}") == wanted
