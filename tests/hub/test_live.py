"""What subscriptions get: everything that concerns them, once, or a word that something was left out."""

import pytest

from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.live import KEPT_SECONDS, Live, TooMany
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Log


def items(run: str = "r", count: int = 1, project: str = "p", size: int = 0) -> list[ReceivedBatch]:
    """A batch of logs that was just stored, of a size in bytes."""
    records = [Log(1, None, None, None, None, 9, "x")] * count
    return [ReceivedBatch("folder", Batch(Writer(id="w", run=run, project=project), 1, list(records)), size)]


def nothing() -> None:
    """Wake nobody."""


def test_a_watcher_gets_what_concerns_it() -> None:
    """A subscriber gets only the batches of its run and project, and is woken for them."""
    live, woken = Live(), []
    mine, _ = live.subscribe(lambda: woken.append(1), run="r", project="p")
    live.take(items("other"))
    live.take(items("r", project="secret"))
    assert woken == []
    live.take(items("r"))
    moments, missed, _ = live.drain(mine)
    assert [batch.writer.run for moment in moments for batch in moment.batches] == ["r"]
    assert (len(woken), missed) == (1, 0)
    assert live.drain(mine)[0] == []


def test_coming_back_with_a_cursor() -> None:
    """Events since a cursor are replayed once; a cursor that is too old or of another hub gives a gap."""
    live = Live(most_records=10)
    first, _ = live.subscribe(nothing, run="r")
    live.take(items(count=2))
    cursor = live.drain(first)[2]
    live.unsubscribe(first)
    live.take(items(count=3))
    again, forgot = live.subscribe(nothing, run="r", cursor=cursor)
    assert not forgot
    assert sum(moment.records for moment in live.drain(again)[0]) == 3
    live.take(items(count=9))
    assert live.subscribe(nothing, run="r", cursor=cursor)[1]
    for strange in ("", "x", "abc-1", "-", cursor + "000"):
        assert live.subscribe(nothing, run="r", cursor=strange)[1]


def test_a_slow_watcher_loses_and_is_told() -> None:
    """A queue never grows beyond its bound; what did not fit is counted."""
    live = Live(most_records=10)
    slow, _ = live.subscribe(nothing)
    for _ in range(5):
        live.take(items(count=4))
    moments, missed, _ = live.drain(slow)
    assert moments == []
    assert missed == 20


def test_few_records_with_long_texts_are_bounded_too() -> None:
    """Twenty thousand generated texts would take gigabytes, for as long as the hub runs."""
    live = Live(most_bytes=1000)
    slow, _ = live.subscribe(nothing)
    quick, _ = live.subscribe(nothing)
    cursors = []
    for _ in range(5):
        live.take(items(size=400))
        moments, _, cursor = live.drain(quick)
        assert len(moments) == 1
        cursors.append(cursor)
    assert live.drain(slow)[:2] == ([], 5)
    assert [live.subscribe(nothing, cursor=cursor)[1] for cursor in cursors] == [True, True, False, False, False]


def test_what_nobody_watches_is_not_kept() -> None:
    """A hub without a page holds no records; one whose page was closed for a moment does."""
    now = 0.0
    live = Live(clock=lambda: now)
    live.take(items())
    cursor = live.cursor(0)
    first, forgot = live.subscribe(nothing, cursor=cursor)
    assert forgot
    cursor = live.drain(first)[2]
    live.unsubscribe(first)
    for gone, kept in ((KEPT_SECONDS - 1, True), (2.0, False)):
        now += gone
        live.take(items())
        again, forgot = live.subscribe(nothing, cursor=cursor)
        assert forgot is not kept
        live._subscriptions.remove(again)  # as if it had never been


def test_only_so_many_may_watch() -> None:
    """Subscriptions beyond the limit, and after the hub's end, are refused."""
    live = Live(most_subscriptions=1)
    first, _ = live.subscribe(nothing)
    with pytest.raises(TooMany):
        live.subscribe(nothing)
    live.unsubscribe(first)
    live.subscribe(nothing)
    live.close()
    with pytest.raises(TooMany):
        live.subscribe(nothing)


def test_what_another_hub_could_not_send_is_a_gap() -> None:
    """Every subscription gets a gap, and one that resumes from an earlier cursor gets no incomplete history."""
    live = Live()
    mine, _ = live.subscribe(nothing, run="r")
    live.take(items())
    cursor = live.cursor(0)
    live.miss(7)
    assert live.drain(mine)[1] == 7
    assert live.subscribe(nothing, run="r", cursor=cursor)[1]
    again, forgot = live.subscribe(nothing, run="r", cursor=live.drain(mine)[2])
    assert (forgot, live.drain(again)[1]) == (False, 0)
