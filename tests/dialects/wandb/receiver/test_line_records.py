"""Lines of W&B's streamed files as records."""

import json
import math
import random

import pytest

from stepscope.dialects.wandb.receiver.line_records import (
    EVENT_VALUES,
    Decoded,
    console_records,
    history_records,
    machine_records,
)
from stepscope.model.records import Event, Histogram, Log, Metric
from stepscope.wire.nested_rows import machine_values, nanoseconds, read_definitions

NOW = 1_800_000_000 * 10**9


def test_a_line_becomes_a_metric_with_every_number() -> None:
    """NaN and infinities, nested dicts and histograms are kept; the rest of the line is an event at the same step."""
    histogram = {"_type": "histogram", "bins": [0, 1, 2], "values": [3, 4]}
    row = {"_step": 7, "_timestamp": 1.5e9, "_runtime": 3, "loss": 0.5, "nan": math.nan, "low": -math.inf}
    row |= {"nest": {"a": 1, "b": {"c": 2.5}}, "h": histogram, "text": "hello", "img": {"_type": "image-file"}}
    metric, event = history_records([json.dumps(row)], (), NOW).records
    assert isinstance(metric, Metric)
    assert (metric.time, metric.step) == (15 * 10**17, 7)
    assert math.isnan(float(metric.values.pop("nan")))  # type: ignore[arg-type]
    bounds = Histogram(7, None, 0.0, 2.0, (1.0,), (3, 4))
    assert metric.values == {"loss": 0.5, "low": -math.inf, "nest/a": 1, "nest/b/c": 2.5, "h": bounds}
    assert isinstance(event, Event)
    assert (event.name, event.step, event.attrs) == (EVENT_VALUES, 7, {"text": "hello", "img": row["img"]})


def test_bad_lines_cost_themselves_only() -> None:
    """A line that is no object, or two in one, is counted, and its neighbours are taken."""
    lines = ['{"a": 1, "_step": 0}', "{", "[1]", '{"a": 2},{"a": 3}', "null", '{"a": NaN, "_step": 1}', ""]
    found = history_records(lines, (), NOW)
    assert [record.step for record in found.records] == [0, 1]
    assert found.rejected == 5


def test_numbers_that_no_column_holds() -> None:
    """Integers of any size and steps that are none do not fail; a line without a step has that of the one before."""
    lines = [
        f'{{"a": 1{"0" * 400}, "b": 18446744073709551616, "_step": 1}}',
        '{"c": 1, "_step": 1e400, "_timestamp": "x"}',
    ]
    first, second = history_records(lines, (), NOW).records
    assert isinstance(first, Metric)
    assert first.values == {"a": math.inf, "b": 2.0**64}
    assert (second.step, second.time) == (1, NOW)


def _random_lines(choice: random.Random) -> list[str]:
    """Lines that are nearly all plain numbers under the same keys."""
    odd = (2**63, -(2**63) - 1, 2**70, math.nan, -math.inf, 1e300, True, "x", None, {"a": 1}, -1, 0.5)
    keys = ["_step", "_timestamp", "_runtime", *choice.sample(["a", "b", "c", "_wandb"], choice.randint(0, 3))]
    rows = []
    for step in range(choice.randint(1, 4)):
        row = {key: choice.random() for key in keys}
        row |= {"_step": step, "_timestamp": 1.7e9 + step + row["_timestamp"]}
        rows.append({key: value if choice.random() < 0.97 else choice.choice(odd) for key, value in row.items()})
    return [json.dumps(row) for row in rows]


def test_lines_that_are_converted_at_once_give_what_each_alone_gives() -> None:
    """Blocks of plain numbers take a faster way, with the same records, times, steps and tail."""
    choice = random.Random(15)
    for _ in range(400):
        lines = _random_lines(choice)
        step, alone = None, Decoded()
        for line in lines:
            one = history_records([line, "null"], (), NOW, step)  # a line that is no object: each is read by itself
            step, alone.tail = one.steps[-1] if one.steps else step, one.tail
            alone.records += one.records
            if one.times and (not alone.times or one.times[0] >= alone.times[-1]):
                alone.times += one.times
                alone.steps += one.steps
        assert repr(history_records(lines, (), NOW)) == repr(alone), lines


def test_define_metric_gives_an_axis() -> None:
    """Values whose definition names a step metric in the same line have it as axis, and the line's other values not."""
    given = [{"1": "val/step", "6": [3]}, {"2": "val/*", "5": 1}, {"1": "x", "5": 99}, "?", {"1": 3, "5": 1}]
    definitions = read_definitions(given)
    lines = ['{"val/acc": 0.5, "val/step": 30, "loss": 1, "_step": 4}', '{"val/acc": 0.6, "_step": 5}']
    found = [record for record in history_records(lines, definitions, NOW).records if isinstance(record, Metric)]
    assert [(each.axis, each.step, dict(each.values)) for each in found] == [
        ("val/step", 30, {"val/acc": 0.5}),
        (None, 4, {"val/step": 30, "loss": 1}),
        (None, 5, {"val/acc": 0.6}),
    ]


def test_machine_metrics_have_the_names_of_our_probes() -> None:
    """What our probes measure too has their name and unit; the rest keeps its own."""
    row = {"system.cpu": 50, "system.gpu.1.gpu": 90, "system.gpu.1.memoryAllocatedBytes": 8.0, "system.network.sent": 3}
    row |= {"system.gpu.1.temp": 60, "_wandb": True, "_timestamp": 1.5e9, "system.proc.memory.rssMB": 2}
    history = Decoded(times=[10**18, 2 * 10**18], steps=[3, 4])
    (metric,) = machine_records([json.dumps(row)], history, None, NOW).records
    assert isinstance(metric, Metric)
    assert (metric.category, metric.step) == ("system", 3)
    assert metric.values == {
        "cpu/utilization": 0.5,
        "gpu/1/utilization": 0.9,
        "gpu/1/memory_used_bytes": 8.0,
        "gpu/1/temperature_celsius": 60.0,
        "network.sent": 3,
        "process/rss_bytes": 2.0 * 1024 * 1024,
    }
    assert machine_values({"cpu": "busy"}) == {"cpu": "busy"}


def test_console_lines_have_their_time_and_stream() -> None:
    """The client's time stamp and its mark of stderr become fields; empty lines go."""
    lines = ["2026-01-02T03:04:05.000006 hello", "ERROR 2026-01-02T03:04:06.5 oh\n", "2026-01-02T03:04:05.1 ", "plain"]
    found = [record for record in console_records(lines, Decoded(), 9, NOW) if isinstance(record, Log)]
    assert [(each.body, each.severity, each.step) for each in found] == [
        ("hello", 9, 9),
        ("oh", 17, 9),
        ("plain", 9, 9),
    ]
    assert (found[0].time, found[2].time) == (1767323045000006000, NOW)


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("CUDA out of memory", 17),
        ("wandb: WARNING No files were detected", 13),
        ("wandb: Synced 4 files", 9),
        (" 45%|████▌     | 9/20 [00:01<00:02,  9.1it/s]", 9),
        ("INFO:root:starting", 9),
        ("a.py:3: UserWarning: deprecated", 13),
        ("2026-01-02 ERROR worker died", 17),
        ("Traceback (most recent call last):", 17),
    ],
)
def test_not_everything_on_stderr_is_an_error(line: str, severity: int) -> None:
    """Progress bars, warnings and log lines with a level are what they say, so that no healthy run has new errors."""
    (log,) = console_records([f"ERROR 2026-01-02T03:04:06.5 {line}"], Decoded(), None, NOW)
    assert isinstance(log, Log)
    assert (log.body, log.severity) == (line, severity)


def test_a_time_stamp_survives_the_way_there_and_back() -> None:
    """Seconds as the client wrote them are the same float after storing nanoseconds."""
    chance = random.Random(1)
    stamps = [chance.uniform(1e9, 2**32) for _ in range(1000)]
    assert [nanoseconds(stamp) / 10**9 for stamp in stamps] == stamps
