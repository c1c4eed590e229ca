"""Packed metrics as columns: the same records, the same rows, and nothing guessed."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.hub.intake.intake_journal import IntakeBatch, pack
from stepscope.hub.intake.scrub import Scrubber
from stepscope.hub.intake.store_pump import unpack_columns
from stepscope.hub.limits import Limits
from stepscope.hub.store import columns
from stepscope.hub.store.columns import Answer
from stepscope.hub.store.write import metric_rows
from stepscope.hub.store.write.catalog import Catalog
from stepscope.hub.store.write.committer import build
from stepscope.hub.store.write.metric_rows import MetricRows
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import LAST_STEP, Metric, Record
from stepscope.wire import frames

T = 1_790_000_000_000_000_000
WRITER = Writer(id="w", run="r", project="p", wall_ns=T)
encode = msgspec.msgpack.Encoder().encode


class Nothing:
    """An engine without rows."""

    def query(self, sql: str) -> Answer:
        """Answer nothing, but the highest number."""
        return Answer({"newest": [1]} if "newest" in sql else {})


def payload(records: list[Any]) -> memoryview:
    """A batch as it is in a journal."""
    return memoryview(frames.pack_batch(7, [encode(record) for record in records]))[frames.PREFIX_BYTES :]


def plain(count: int, first: int = 1000) -> list[Metric]:
    """Metrics of one shape, as a loop logs them."""
    return [Metric(T + at, first + at, None, "train", {"loss": at / 7, "lr": 1e-3}) for at in range(count)]


def rows_of(batches: list[Any]) -> tuple[dict[str, bytes], Any]:
    """The rows that batches become, and what each of them adds."""
    catalog = Catalog(Nothing(), lambda: T)  # type: ignore[arg-type]
    catalog.load(["r"])
    source = catalog.source(WRITER)
    built = build(catalog, [(source, records) for records in batches], 3)
    return {name: columns.encode(block) for name, block in built.facts.items()}, built.gains


def test_a_loop_of_metrics_is_read_as_columns() -> None:
    """Records are made only when they are asked for, and are then the same."""
    records = plain(100)
    seq, found, bad = unpack_columns(payload(records))
    assert isinstance(found, MetricRows)
    assert (seq, bad, len(found)) == (7, 0, 100)
    assert (found[3], found[-2:], list(found)) == (records[3], records[-2:], records)


@pytest.mark.parametrize("first", [0, 100, 127, 200, 250, 65_500, 2**32 - 50, 2**32, LAST_STEP - 99])
def test_steps_of_any_size(first: int) -> None:
    """The packed size of steps changes at powers of two, also within a batch."""
    records = plain(100, first)
    assert list(unpack_columns(payload(records))[1]) == records
    assert rows_of([unpack_columns(payload(records))[1]]) == rows_of([records])


numbers = st.floats(allow_nan=False) | st.sampled_from([math.inf, -math.inf, 2.0**60])
others = numbers | st.integers(-(2**63), 2**63 - 1) | st.booleans()
names = st.sampled_from(["a", "loss", "x" * 40, "y" * 300]) | st.text(max_size=6)
metrics = st.builds(
    Metric,
    st.integers(0, 2**63 - 1) | st.integers(T, T + 10),
    st.none() | st.integers(0, 300) | st.integers(-5, LAST_STEP),
    st.none() | names,
    st.none() | names,
    st.dictionaries(names, numbers, max_size=3) | st.dictionaries(names, others, max_size=3),
    st.just({}) | st.just({"k": "v"}),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(metrics, min_size=1, max_size=4), st.integers(1, 4), st.lists(others, min_size=8, max_size=8))
def test_any_metrics_become_the_same_rows(shapes: list[Metric], times: int, values: list[Any]) -> None:
    """Whatever differs between the records of a batch, and beside other batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metric_rows, "MIN_ROWS", 1)
        one = [
            msgspec.structs.replace(shapes[0], step=at, values=dict.fromkeys(shapes[0].values, values[at]))
            for at in range(4)
        ]
        batches: list[list[Record]] = [[*shapes] * times, [*one], [*plain(3)]]
        found = [unpack_columns(payload(batch))[1] for batch in batches]
        expected = [frames.unpack_batch(payload(batch))[1] for batch in batches]
        assert [list(each) for each in found] == expected
        found = [unpack_columns(payload(batch))[1] for batch in batches]
        assert rows_of(found) == rows_of(expected)


def test_what_is_no_number_is_kept() -> None:
    """NaN has its flag in the totals, with columns as without."""
    records = [msgspec.structs.replace(each, values={"loss": math.nan}) for each in plain(80)]
    assert rows_of([unpack_columns(payload(records))[1]]) == rows_of([records])


def test_names_in_columns_are_masked_and_cut() -> None:
    """A secret in a key, and a key that is too long, are found without looking at each record."""
    scrubber = Scrubber(Limits(name=100))
    secret = "postgres://bob:Zq7kV9xTr4@db/x"
    for key in (secret, "k" * 200):
        rows = unpack_columns(payload([Metric(T, at, None, None, {key: 1.0}) for at in range(80)]))[1]
        assert isinstance(rows, MetricRows)
        kept = scrubber.mask(rows)
        assert len(kept) == 80
        assert key not in repr(list(kept))
    known = unpack_columns(payload(plain(80)))[1]
    assert scrubber.mask(known) is known


@pytest.mark.parametrize("cut", [0, 1, 4, 5, 20])
def test_damage_is_no_metric(cut: int) -> None:
    """What is not whole is left to the reader that counts it."""
    whole = payload(plain(80))
    rest = len(bytes(whole)) - frames.BATCH_BYTES + 5
    assert metric_rows.metric_rows(memoryview(bytes(whole)[-rest:][:cut])) is None


def test_columns_are_journaled_and_split_as_records() -> None:
    """A batch that is deferred, passed on to another hub, or bisected has its records."""
    records = plain(80)
    found = Batch(WRITER, 7, unpack_columns(payload(records))[1])
    packed = pack(IntakeBatch.of("folder", found))
    assert packed is not None
    assert msgspec.msgpack.decode(packed, type=IntakeBatch).batch().records == records
    assert found.part(10, 20).records == records[10:20]
