"""The quota: metrics thin out evenly, logs and spans go, events and alerts stay, and all of it is counted."""

import math
import os
import resource
import stat
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.journal import layout, quota
from stepscope.journal.segments import Journal, read_writer
from stepscope.model.records import KINDS, Alert, Event, Log, Metric, Record, Span, kind
from stepscope.wire import frames

OpenJournal = Callable[..., Journal]


def pack(record: Record) -> bytes:
    """Pack a record."""
    return msgspec.msgpack.encode(record)


def metric(step: int, key: str = "loss", value: float = 0.5, **attrs: Any) -> Metric:
    """Make a metric of one key."""
    return Metric(step, step, None, "trainer", {key: value}, attrs)


def others(number: int) -> list[Record]:
    """Make one record of each kind but metrics."""
    return [
        Span(number, 1, None, None, bytes(16), bytes(8), None, "span"),
        Log(number, None, None, None, None, 9, "log"),
        Event(number, None, None, None, None, 9, "event"),
        Alert(number, None, None, None, None, 9, "alert"),
    ]


def on_disk(folder: Path) -> list[Record]:
    """Return all records of a folder."""
    return [record for batch in read_writer(folder) for record in batch.records]


def size_of(folder: Path) -> int:
    """Return the bytes of a folder."""
    return sum(path.stat().st_size for path in folder.iterdir())


def no_pause(seconds: float) -> None:
    """Go on at once."""


def test_the_kind_of_a_packed_record_is_known_without_reading_it() -> None:
    """The tag is found in short arrays and in long ones."""
    assert [KINDS[quota.kind_of(pack(record))] for record in (metric(1), *others(1))] == list(KINDS)
    long = Event(1, None, None, None, None, 9, "event")
    assert quota.kind_of(b"\xdc\x00\x0a" + pack(long)[1:]) == 3
    assert quota.kind_of(msgspec.Raw(pack(long))) == 3


def test_every_second_metric_of_each_set_of_keys_stays() -> None:
    """Two series in turn thin out alike, and so do those that differ only in their attributes."""
    records = [metric(step, key, gpu=gpu) for step in range(8) for key in "ab" for gpu in (0, 1)]
    kept, dropped = quota.thin([pack(record) for record in records])
    assert dropped == {"metric": 16}
    assert kept == [pack(record) for record in records if record.time % 2 == 0]


def test_the_turn_is_carried_from_one_call_to_the_next() -> None:
    """Batches of one metric each thin out too."""
    turns: quota.Turns = {}
    kept = [len(quota.thin([pack(metric(step))], turns)[0]) for step in range(6)]
    assert kept == [1, 0, 1, 0, 1, 0]


def test_a_metric_that_is_not_finite_stays() -> None:
    """NaN and the infinities are what someone will look for; they go only under `hard`."""
    records = [pack(metric(step, value=value)) for step, value in enumerate([math.nan, math.inf, -math.inf] * 4)]
    assert quota.thin(records) == (records, Counter())
    kept, dropped = quota.thin(records, hard=True)
    assert (len(kept), dropped) == (6, {"metric": 6})


def test_logs_and_spans_go_and_events_and_alerts_stay() -> None:
    """Events and alerts are kept in any number, also under `hard`."""
    records = [pack(record) for number in range(5) for record in others(number)]
    for hard in (False, True):
        kept, dropped = quota.thin(records, hard=hard)
        assert dropped == {"span": 5, "log": 5}
        assert [quota.kind_of(packed) for packed in kept] == [3, 4] * 5


def test_records_that_cannot_be_read_thin_out_like_the_others() -> None:
    """Odd keys, a broken metric or an unknown kind stop nothing and are counted."""
    odd = msgspec.msgpack.encode((0, 1, None, None, None, {7: True}))
    broken = msgspec.msgpack.encode((0, "soon"))
    unknown = msgspec.msgpack.encode((77, 1))
    kept, dropped = quota.thin([odd, odd, broken, broken, unknown])
    assert kept == [odd, broken]
    assert dropped == {"metric": 2, "unknown": 1}


@given(st.lists(st.sampled_from(["a", "b", "nan", "span", "log", "event", "alert"]), max_size=60))
def test_what_goes_and_what_stays_are_all_there_was(given_kinds: list[str]) -> None:
    """Before is after plus dropped for each kind, and the order is kept."""
    records: list[Record] = []
    for number, word in enumerate(given_kinds):
        by_kind = {kind(record): record for record in others(number)}
        value = math.nan if word == "nan" else 1.0
        records.append(by_kind.get(word) or metric(number, word, value))
    packed = [pack(record) for record in records]
    kept, dropped = quota.thin(packed)
    assert Counter(map(kind, records)) == Counter(KINDS[quota.kind_of(each)] for each in kept) + dropped
    assert [packed.index(each) for each in kept] == sorted(packed.index(each) for each in kept)
    assert set(kept) >= {each for each, word in zip(packed, given_kinds, strict=True) if word == "nan"}


def fill(journal: Journal, batches: int, per_batch: int = 4) -> None:
    """Append metrics of two keys, and one of each other kind now and then."""
    for number in range(batches):
        records: list[Record] = [metric(number * per_batch + n, "ab"[n % 2]) for n in range(per_batch)]
        if number % 10 == 0:
            records += others(number)
        journal.append([pack(record) for record in records])


@pytest.mark.parametrize("per_batch", [1, 4], ids=["a metric a batch", "four"])
def test_a_folder_over_its_quota_is_made_to_fit(folder: Path, open_journal: OpenJournal, per_batch: int) -> None:
    """The folder fits, the counts are exact, events and alerts are all there, the open segment is not touched."""
    journal = open_journal(segment_bytes=8000)
    fill(journal, 2000, per_batch)
    current = journal.current()
    assert current is not None
    untouched = current.read_bytes()
    before = Counter(map(kind, on_disk(folder)))
    for part in (0.9, 0.6, 0.6):
        target = int(size_of(folder) * part)
        there = Counter(map(kind, on_disk(folder)))
        dropped = quota.enforce(folder, target, current, pause=no_pause)
        after = Counter(map(kind, on_disk(folder)))
        assert there == after + dropped
        assert size_of(folder) <= target
        assert (after["event"], after["alert"]) == (before["event"], before["alert"])
        assert current.read_bytes() == untouched
    journal.append([pack(metric(-1))])
    assert on_disk(folder)[-1].time == -1


def test_the_oldest_go_first_and_what_stays_is_spread_evenly(folder: Path, open_journal: OpenJournal) -> None:
    """The newer half is whole; of the older, steps stay at even distances."""
    journal = open_journal(segment_bytes=8000)
    for step in range(2000):
        journal.append([pack(metric(step))])
    quota.enforce(folder, int(size_of(folder) * 0.8), journal.current(), pause=no_pause)
    steps = [record.time for record in on_disk(folder)]
    gaps = {after - before for before, after in pairwise(steps)}
    assert gaps <= {1, 2, 3}
    assert steps[0] == 0
    assert set(range(1200, 2000)) <= set(steps)


def test_a_folder_that_fits_is_left_alone(folder: Path, open_journal: OpenJournal) -> None:
    """Below the quota nothing is rewritten; a missing folder is not an error."""
    fill(open_journal(segment_bytes=1000), 20)
    before = {path: path.stat().st_mtime_ns for path in layout.list_segments(folder)}
    assert quota.enforce(folder, size_of(folder), None, pause=no_pause) == {}
    assert {path: path.stat().st_mtime_ns for path in layout.list_segments(folder)} == before
    assert quota.enforce(folder / "none", 0, None) == {}


@pytest.mark.parametrize("odd", ["nan", "keys"])
def test_metrics_that_would_stay_go_when_nothing_else_can(folder: Path, open_journal: OpenJournal, odd: str) -> None:
    """A permanent NaN, or a new key in each step, does not fill the disk."""
    journal = open_journal(segment_bytes=4000)
    for step in range(1000):
        changed = metric(step, value=math.nan) if odd == "nan" else metric(step, f"key{step}")
        journal.append([pack(changed)])
    dropped = quota.enforce(folder, 10_000, journal.current(), pause=no_pause)
    assert size_of(folder) <= 10_000
    assert len(on_disk(folder)) == 1000 - dropped["metric"]


def test_only_events_and_alerts_keep_a_folder_above_its_quota(folder: Path, open_journal: OpenJournal) -> None:
    """With a quota of nothing they, and one metric, are what is left of the closed segments, and it ends."""
    journal = open_journal(segment_bytes=4000)
    fill(journal, 200)
    journal.close()
    quota.enforce(folder, 0, None, pause=no_pause)
    assert Counter(map(kind, on_disk(folder))) == {"event": 20, "alert": 20, "metric": 1}


def test_a_segment_with_nothing_left_goes(folder: Path, open_journal: OpenJournal) -> None:
    """Heads do not pile up: an emptied segment is removed, and its index is not used again."""
    journal = open_journal(segment_bytes=1)
    for number in range(10):
        journal.append([pack(others(number)[1])])
    assert quota.enforce(folder, 0, journal.current(), pause=no_pause) == {"log": 9}
    assert layout.list_segments(folder) == [layout.segment_path(folder, 9)]
    journal.append([pack(metric(1))])
    assert journal.current() == layout.segment_path(folder, 10)


def test_a_thinned_segment_keeps_heads_numbers_and_secrecy(folder: Path, open_journal: OpenJournal) -> None:
    """The head stays in front, batches keep their numbers, damage goes, and others still cannot read the file."""
    journal = open_journal()
    fill(journal, 50)
    journal.close()
    (path,) = layout.list_segments(folder)
    odd = frames.frame(b"\x93\x07 a frame of a later version")
    path.write_bytes(path.read_bytes() + b"garbage" + odd)
    numbers = {record: batch.seq for batch in read_writer(folder) for record in map(str, batch.records)}
    quota.enforce(folder, path.stat().st_size // 2, None, pause=no_pause)
    found = list(frames.scan(path.read_bytes(), final=True))
    assert all(isinstance(each, frames.Frame) for each in found)
    assert path.read_bytes().startswith(frames.pack_head(journal.writer))
    assert path.read_bytes().endswith(odd)
    assert all(numbers[str(record)] == batch.seq for batch in read_writer(folder) for record in batch.records)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_disk_without_room_for_the_thinned_segment_keeps_the_old(folder: Path, open_journal: OpenJournal) -> None:
    """Where the new file cannot be written the old one stays whole, nothing counts as dropped, nothing is left."""
    fill(open_journal(segment_bytes=4000), 200)
    before = on_disk(folder)
    files = sorted(folder.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
    try:
        assert quota.enforce(folder, 30_000, None, pause=no_pause) == {}
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert on_disk(folder) == before
    assert sorted(folder.iterdir()) == files
    assert size_of(folder) > 30_000


def test_thinning_lets_others_run_between_batches(folder: Path, open_journal: OpenJournal) -> None:
    """The thread that thins pauses after each batch, so the training loop gets the interpreter."""
    journal = open_journal()
    fill(journal, 30)
    journal.close()
    pauses: list[float] = []
    quota.enforce(folder, os.path.getsize(layout.list_segments(folder)[0]) - 1, None, pause=pauses.append)
    assert pauses == [0] * 30
