"""The memory between the loop and the flusher."""

import sys
import threading
import time

import msgspec
import pytest

from stepscope.model.records import ALERT, EVENT, LOG, METRIC, SPAN
from stepscope.sdk.context import pack
from stepscope.sdk.outcomes import Outcomes
from stepscope.sdk.recorder import MAX_BYTES, MAX_RECORDS, Recorder, weight

QUOTA = 200_000


def metric(step: int, value: float = 1.0, key: str = "loss") -> bytes:
    """A packed metric."""
    return pack((METRIC, time.time_ns(), step, None, None, {key: value}))


def other(kind: int, text: str = "x" * 100) -> bytes:
    """A packed log, event or alert."""
    return pack((kind, time.time_ns(), 1, None, None, None, 9, text))


def recorder(quota: int = QUOTA) -> Recorder:
    """A recorder without a flusher thread; the flusher's work is done synchronously."""
    box = Recorder(quota, Outcomes(), lambda: None)
    box.wake = lambda: box.thin(lambda seconds: None)
    return box


def accounted(taken: Recorder) -> int:
    """Records that wait and records that were dropped."""
    dropped = sum(count for name, count in taken.outcomes.snapshot().items() if name.startswith("dropped/"))
    return len(taken.buffer) + dropped


def test_memory_stays_within_the_quota() -> None:
    """However much is put in, about the quota stays, and every record is kept or counted."""
    box = recorder()
    for step in range(50_000):
        box.put(metric(step))
        if step % 1000 == 0:
            assert sum(map(len, box.buffer)) < 1.5 * QUOTA
    assert accounted(box) == 50_000


def test_metrics_thin_out_evenly_and_the_new_stay() -> None:
    """Two interleaved series lose the same share, and the newest values are all there."""
    box = recorder()
    for step in range(20_000):
        box.put(metric(step, key="loss"))
        box.put(metric(step, key="lr"))
    losses = sum(b"loss" in packed for packed in box.buffer)
    rates = sum(b"lr" in packed for packed in box.buffer)
    assert abs(losses - rates) <= 1
    steps = [msgspec.msgpack.decode(packed)[2] for packed in box.buffer]
    assert steps[-200:] == [step for step in range(19_900, 20_000) for _ in range(2)]


@pytest.mark.parametrize("kind", [EVENT, ALERT])
def test_events_and_alerts_stay_while_anything_else_can_go(kind: int) -> None:
    """A flood of logs, spans and metrics does not cost one event or alert."""
    box = recorder()
    for step in range(10_000):
        box.put(other(LOG))
        box.put(metric(step))
        if step % 100 == 0:
            box.put(other(kind, f"note {step}"))
    assert sum(b"note" in packed for packed in box.buffer) == 100


def test_a_nan_is_not_thinned() -> None:
    """The value someone will look for survives a flood of others."""
    box = recorder()
    for step in range(20_000):
        box.put(metric(step, float("nan") if step == 7 else 1.0))
    assert any(b"\x7f\xf8\x00\x00\x00\x00\x00\x00" in packed for packed in box.buffer)


def test_the_quota_holds_even_against_events() -> None:
    """Memory is bounded although nothing but events came; what went is counted."""
    box = recorder()
    for number in range(5_000):
        box.put(other(EVENT, f"{number} " + "x" * 200))
    assert sum(map(len, box.buffer)) < 1.5 * QUOTA
    assert accounted(box) == 5_000
    assert box.outcomes.snapshot()["dropped/event/memory"] > 0


def test_what_the_flusher_holds_is_not_thinned() -> None:
    """Records shown to the flusher stay until it is done with them."""
    box = recorder()
    for step in range(100):
        box.put(metric(step))
    shown = box.take()
    for step in range(20_000):
        box.put(metric(step))
    assert box.buffer[: len(shown)] == shown
    box.taken(safe=True)
    assert accounted(box) == 20_000


def test_batches_are_bounded() -> None:
    """One batch holds at most so many records and bytes, unless one record alone is larger."""
    box = recorder(10**9)
    for step in range(MAX_RECORDS + 5):
        box.put(metric(step))
    assert len(box.take()) == MAX_RECORDS
    box.taken(safe=False)
    box.buffer.clear()
    for _ in range(9):
        box.put(other(SPAN, "y" * (MAX_BYTES // 4)))
    assert sum(map(len, box.take())) <= MAX_BYTES
    box.taken(safe=False)
    box.buffer[:] = [other(SPAN, "y" * 2 * MAX_BYTES)]
    assert len(box.take()) == 1


def test_after_the_end_records_are_counted_not_kept() -> None:
    """A closed recorder keeps nothing."""
    box = recorder()
    box.close()
    box.put(metric(1))
    assert box.buffer == []
    assert box.outcomes.snapshot() == {"dropped/metric/finished": 1}


def test_many_threads_lose_nothing() -> None:
    """Threads that put while another takes: each record is seen once."""
    box = recorder(10**9)
    seen: list[bytes] = []
    done = threading.Event()

    def drain() -> None:
        while not done.is_set() or box.buffer:
            seen.extend(box.take())
            box.taken(safe=True)

    threads = [
        threading.Thread(target=lambda n=n: [box.put(metric(n * 10_000 + i)) for i in range(5_000)]) for n in range(4)
    ]
    drainer = threading.Thread(target=drain)
    drainer.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    drainer.join()
    assert len(seen) == 20_000
    assert len(set(seen)) == 20_000


def test_the_quota_counts_what_small_records_really_take() -> None:
    """The object around a record is memory too: for small ones it is most of it."""
    box = recorder()
    for step in range(20_000):
        box.put(metric(step))
    assert sum(map(sys.getsizeof, box.buffer)) + 8 * len(box.buffer) < 1.3 * QUOTA


def test_a_caller_holds_the_quota_where_the_flusher_cannot() -> None:
    """While the disk hangs, every second record is dropped once memory is a quarter beyond the quota."""
    box = Recorder(QUOTA, Outcomes(), lambda: None)
    between = 50
    slack = between * weight([metric(50_000)])
    for step in range(50_000):
        box.put(metric(step))
        if step % between == 0:
            assert weight(box.buffer) + slack < 1.5 * QUOTA
    assert accounted(box) == 50_000
