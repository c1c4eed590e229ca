"""Samples: rows of texts and numbers, captured by the call and bounded; nothing raises."""

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.model.names import SCOPE_SAMPLES
from stepscope.model.records import Log, Metric
from stepscope.model.sample_columns import MAX_COLUMNS
from stepscope.sdk.context import NO_MARK, Mark
from stepscope.sdk.masking import Unpacked, mask_record
from stepscope.sdk.outcomes import Outcomes
from stepscope.sdk.recorder import MAX_UNMASKED_BYTES, Recorder
from stepscope.sdk.sample_records import MAX_ROWS, MAX_TEXT, Table, put_table, sample
from stepscope.wire import frames
from tests.sdk.conftest import Records, python_core


def rows(records: Records) -> list[Log]:
    """The samples that were recorded."""
    return [record for record in records(Log) if isinstance(record, Log) and record.scope == SCOPE_SAMPLES]


class Bad:
    """An object that cannot be written as text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_row_has_its_columns_table_and_step(run: stepscope.Run, records: Records) -> None:
    """Texts and numbers are kept as they are, at the current step or the given one."""
    with run.step(7):
        run.sample(prompt="2+2=", completion="4", reward=1.0, right=True, tokens=3)
    stepscope.sample({"step": 1, "prompt": "a"}, step=9, table="eval")
    first, second = rows(records)
    assert (first.body, first.step) == ("samples", 7)
    assert first.attrs == {"prompt": "2+2=", "completion": "4", "reward": 1.0, "right": True, "tokens": 3}
    assert first.trace_id is not None
    assert (second.body, second.step, second.attrs) == ("eval", 9, {"step": 1, "prompt": "a"})


def test_a_table_in_log_becomes_rows(run: stepscope.Run, records: Records) -> None:
    """Lists and dicts are rows; numbers of the same call are metrics, and a category is part of the table's name."""
    table = Table(["prompt", "reward"], [["a", 1.0], {"prompt": "b"}])
    table.add("c", 0.5)
    table.add(prompt="d", extra=2)
    run.log({"loss": 0.5, "inner": {"completions": table}}, step=3, category="eval")
    assert [(row.body, row.step, row.attrs) for row in rows(records)] == [
        ("evaluator/inner/completions", 3, {"prompt": "a", "reward": 1.0}),
        ("evaluator/inner/completions", 3, {"prompt": "b"}),
        ("evaluator/inner/completions", 3, {"prompt": "c", "reward": 0.5}),
        ("evaluator/inner/completions", 3, {"prompt": "d", "extra": 2}),
    ]
    (metric,) = [each for each in records(Metric) if isinstance(each, Metric) and each.category == "evaluator"]
    assert metric.values == {"loss": 0.5}
    assert len({row.time for row in rows(records)}) == 4, "rows of one call keep their order"


def test_a_data_frame_is_a_table(run: stepscope.Run, records: Records) -> None:
    """The columns and rows of pandas are taken."""
    pandas = pytest.importorskip("pandas")
    run.log({"frame": Table(pandas.DataFrame({"prompt": ["a", "b"], "reward": [1.0, math.nan]}))}, step=1)
    first, second = rows(records)
    assert first.attrs == {"prompt": "a", "reward": 1.0}
    assert math.isnan(second.attrs["reward"])


ODD: dict[str, Any] = {
    "none": None,
    "nan": math.nan,
    "bytes": b"\x00\xff",
    "nested": [{"role": "user", "content": "hi"}],
    "raises": Bad(),
    "half": "\ud800",
    "huge": 10**30,
    "scalar": np.float32(0.5),
    7: "a number as name",
}


def test_odd_cells_are_kept_as_far_as_they_can_be(run: stepscope.Run, records: Records) -> None:
    """Nothing raises: every cell is a value that the journal can hold."""
    run.sample(ODD)
    (row,) = rows(records)
    assert math.isnan(row.attrs.pop("nan"))
    assert row.attrs == {
        "none": None,
        "bytes": b"\x00\xff",
        "nested": [{"role": "user", "content": "hi"}],
        "raises": "<Bad>",
        "half": "?",
        "huge": str(10**30),
        "scalar": 0.5,
        "7": "a number as name",
    }


def test_what_is_no_row_is_counted_and_named(run: stepscope.Run, records: Records) -> None:
    """Every offered row is written or rejected, with a reason."""
    run.sample()
    run.sample(["no dict"])  # type: ignore[arg-type]
    run.sample({"a": 1}, step="no step")  # type: ignore[arg-type]
    run.log({"t": Table(["a"], [["1"], ["2", "too many"], [], 5, None])}, step=1)
    run.log({"bad": Table(5)}, step=1)  # type: ignore[arg-type]
    assert [row.attrs for row in rows(records)] == [{"a": "1"}]
    counts = run.outcomes.snapshot()
    assert sum(count for name, count in counts.items() if name.startswith("rejected/")) == 3 + 4 + 1
    assert run.finish().rejected_keys == {
        "samples": "no columns",
        "sample(samples)": "row must be a dict, got list",
        "sample": "step must be an integer, got str",
        "t": "not a row of its columns",
        "bad": "not a row of its columns",
    }


def test_long_texts_are_cut_and_say_so(run: stepscope.Run, records: Records) -> None:
    """One text has a limit, the texts of a row have one together, and both say how long the text was."""
    run.sample({f"text{at}": "x" * 100_000 for at in range(6)})
    (row,) = rows(records)
    assert row.attrs["text0"].endswith("… (100000 characters)")
    assert sum(map(len, row.attrs.values())) < MAX_TEXT + 6 * 40
    assert row.attrs["text5"].startswith("… (")


def test_columns_and_rows_are_bounded(run: stepscope.Run, records: Records) -> None:
    """What is too much is rejected and counted."""
    run.sample({f"c{at}": at for at in range(MAX_COLUMNS + 5)})
    (row,) = rows(records)
    assert len(row.attrs) == MAX_COLUMNS
    run.log({"many": Table(["a"], [[at] for at in range(MAX_ROWS + 3)])}, step=1)
    assert len(rows(records)) == 1 + MAX_ROWS
    counts = run.outcomes.snapshot()
    assert counts[f"rejected/value/more than {MAX_COLUMNS} columns"] == 5
    assert counts[f"rejected/value/more than {MAX_ROWS} rows"] == 3


def test_secrets_in_samples_are_masked(run: stepscope.Run, records: Records) -> None:
    """What the flusher writes has no secrets, also inside long texts."""
    key = "sk-" + "a1b2" * 8
    long = f"{'word ' * 1000} {key} password=hunter2 postgres://me:hunter3@db:5432/x {'word ' * 1000}"
    run.sample(prompt=f"use {key} password=hunter2", api_key="hunter2", completion=long, messages=[{"content": long}])
    (row,) = rows(records)
    assert "a1b2" not in str(row.attrs)
    assert "hunter3" not in str(row.attrs)
    assert row.attrs["api_key"] == "[redacted]"
    assert "hunter2" not in row.attrs["prompt"]
    assert "password=hunter2" in row.attrs["completion"], "in long texts, names do not make a secret"


def test_a_step_of_32_samples_of_4_kb_is_whole(run: stepscope.Run, records: Records) -> None:
    """Nothing is cut or dropped of what a trainer logs in each step."""
    text = "word " * 819
    for at in range(32):
        run.sample(prompt=f"{at} {text}", completion=text, reward=0.5)
    found = rows(records)
    assert [row.attrs["prompt"] for row in found] == [f"{at} {text}" for at in range(32)]
    assert all(row.attrs["completion"] == text for row in found)


def test_tensors_are_read_on_the_host_only(run: stepscope.Run, records: Records) -> None:
    """A scalar in host memory is a number; what only a device holds is named, not waited for."""
    torch = pytest.importorskip("torch")
    run.sample(reward=torch.tensor(0.25), lost=torch.empty((), device="meta"))
    (row,) = rows(records)
    assert row.attrs["reward"] == 0.25
    assert row.attrs["lost"] == "<Tensor () on meta>"
    assert run.finish().rejected_keys == {"samples.lost": "on a device: reading it would wait"}


def test_without_a_run_nothing_happens() -> None:
    """The function of the module does nothing, as the others do; a disabled run neither."""
    stepscope.sample(prompt="a")
    run = stepscope.init(disabled=True)
    run.sample(prompt="a")
    run.log({"t": Table(["a"], [[1]])})
    run.finish()


def test_a_table_does_not_slow_down_later_numbers(run: stepscope.Run) -> None:
    """The fast path of `log` stays after a table was logged."""
    python_core(stepscope.Run.log)(run, {"a": 1.0}, step=0)
    run.log({"a": 1.0, "t": Table(["a"], [[1]])}, step=1)
    assert run._plain is True


class Held:
    """The parts of a run that a row needs, without a flusher: what was recorded stays in memory."""

    def __init__(self, quota: int = 10**9) -> None:
        self.outcomes = Outcomes()
        self.recorder = Recorder(quota, self.outcomes, lambda: None)
        self.mark: Mark = NO_MARK

    def rows(self) -> list[Any]:
        """The cells of what waits."""
        return [frames.unpack_record(mask_record(packed)).attrs for packed in self.recorder.buffer]  # type: ignore[union-attr]


def test_the_call_holds_texts_and_copies_none() -> None:
    """A text cannot change, so the flusher encodes it; what counts against the quota is the memory that it takes."""
    run, text = Held(), "word " * 819
    sample(run, None, None, "samples", {"prompt": text, "reward": 0.5})
    (row,) = run.recorder.buffer
    assert isinstance(row, Unpacked)
    assert row.fields[-2]["prompt"] is text
    assert len(text) < len(row) < len(text) + 1000
    sample(run, None, None, "samples", {"prompt": "\u4e2d" * 1000})
    assert len(run.recorder.buffer[-1]) > sys.getsizeof("\u4e2d" * 1000)


def test_what_is_changed_after_the_call_is_recorded_as_it_was() -> None:
    """Dicts, rows of tables, and lists in them are the caller's, and may be used again."""
    run = Held()
    row: dict[str, Any] = {"prompt": "a", "reward": 1.0}
    nested: dict[str, Any] = {"messages": [{"content": "a"}]}
    sample(run, row, None, "samples", {})
    put_table(run, "t", Table(rows=[row]), NO_MARK)
    sample(run, nested, None, "samples", {})
    row |= {"prompt": "b", "late": 1}
    nested["messages"][0]["content"] = "b"
    assert run.rows() == [{"prompt": "a", "reward": 1.0}] * 2 + [{"messages": [{"content": "a"}]}]


def test_a_number_without_end_is_rejected_by_the_call() -> None:
    """It has no text that could be recorded, and takes memory that is not counted."""
    run = Held()
    sample(run, None, None, "samples", {"n": 10**5000})
    assert (run.recorder.buffer, run.outcomes.snapshot()) == ([], {"rejected/value/ValueError": 1})


def test_rows_beyond_the_memory_are_dropped_and_counted() -> None:
    """Rows that wait are thinned as other records are, whoever does it; a batch to mask stays small."""
    run, text = Held(quota=200_000), "word " * 819
    for at in range(500):
        sample(run, None, None, "samples", {"prompt": f"{at} {text}"})
    waiting = len(run.recorder.buffer)
    assert sum(map(len, run.recorder.buffer)) < 300_000
    assert run.outcomes.snapshot() == {"dropped/log/memory": 500 - waiting}
    batch = run.recorder.take()
    assert 1 < len(batch) < waiting
    assert sum(map(len, batch)) <= MAX_UNMASKED_BYTES
    run.recorder.taken(safe=True)
    run.recorder.close()
    assert run.outcomes.snapshot()["dropped/log/finished"] == waiting - len(batch)


class Wide(Mapping[str, int]):
    """Very many entries, of which it counts those that are looked at."""

    looked = 0

    def __len__(self) -> int:
        return 300_000

    def __iter__(self) -> Iterator[str]:
        for at in range(len(self)):
            self.looked += 1
            yield f"key {at}"

    def __getitem__(self, key: str) -> int:
        return 1


def test_a_call_looks_at_a_bounded_part_of_what_is_given() -> None:
    """Of a dict with very many entries a few thousand are looked at, as a row or in one, and the others are counted."""
    run, wide = Held(), Wide()
    sample(run, {"a": wide, "b": dict(wide)}, None, "samples", {})
    assert wide.looked < 300_000 + 5000, "once for the dict, which is made here"
    (cells,) = run.rows()
    assert cells["a"]["stepscope.cut"] == cells["b"]["stepscope.cut"] == 300_000 - 254
    wide.looked = 0
    sample(run, wide, None, "samples", {})
    put_table(run, "t", Table(rows=[wide]), NO_MARK)
    assert wide.looked < 200
    assert run.outcomes.snapshot() == {f"rejected/value/more than {MAX_COLUMNS} columns": 2 * (300_000 - MAX_COLUMNS)}
