"""What subscriptions get: everything that concerns them, once, or a word that something was left out."""

import pytest

from stepscope.hub.intake.sources import ReceivedBatch
from stepscope.hub.live import Live, TooMany
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Log


def items(run: str = "r", count: int = 1, project: str = "p") -> list[ReceivedBatch]:
    """A batch of logs that was just stored."""
    records = [Log(1, None, None, None, None, 9, "x")] * count
    return [ReceivedBatch("folder", Batch(Writer(id="w", run=run, project=project), 1, list(records)))]


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
