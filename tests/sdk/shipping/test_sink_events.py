"""Events about a sink: on a change, limited in number, in the runs it serves."""

from collections import Counter
from pathlib import Path

import msgspec

from stepscope.journal import layout
from stepscope.journal.segments import Journal
from stepscope.model.ports import Writer
from stepscope.model.records import Event, Metric
from stepscope.sdk.shipping.sink_worker import REFUSED_SECONDS, ShipperJournal, Watch, counters
from stepscope.testing import read_batches
from stepscope.wire import frames


class FakePump:
    """A pump as it stands."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.problem = ""
        self.is_stuck = False


class Told:
    """A watch on a pump, a clock, and the events."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pump = FakePump()
        self.events: list[Event] = []
        self.watch = Watch("otlp-1", lambda: "http://there", self._take, clock=lambda: self.now)

    def _take(self, records: object) -> None:
        for packed in records:  # type: ignore[attr-defined]
            event = frames.unpack_record(packed)
            assert isinstance(event, Event)
            self.events.append(event)

    def look(self) -> list[str]:
        """Look once; the names of the new events."""
        before = len(self.events)
        self.watch.look(self.pump)
        return [event.name.removeprefix("stepscope.sink.") for event in self.events[before:]]


def test_changes_are_told_once() -> None:
    """First delivery, death with the reason, return with how long it took; nothing when nothing changed."""
    told = Told()
    assert told.look() == []
    told.pump.counts["written"] = 5
    assert [told.look(), told.look()] == [["first_delivery"], []]
    told.pump.is_stuck, told.pump.problem = True, "refused"
    assert [told.look(), told.look()] == [["dead"], []]
    told.now += 90
    told.pump.is_stuck = False
    assert [told.look(), told.look()] == [["back"], []]
    dead, back = told.events[1:]
    assert dead.attrs == {"sink": "otlp-1", "place": "http://there", "reason": "refused"}
    assert back.attrs["seconds"] == 90


def test_a_sink_that_comes_and_goes_is_told_of_now_and_then() -> None:
    """A thousand deaths in a hundred seconds are about ten events of each kind."""
    told = Told()
    for turn in range(2000):
        told.pump.is_stuck = turn % 2 == 0
        told.look()
        told.now += 0.05
    assert 10 <= len(told.events) <= 22


def test_refusals_are_told_ever_more_rarely() -> None:
    """The event may itself be refused: a day of that is some thirty events, and all refusals are in them."""
    told = Told()
    for _ in range(24 * 60):
        told.pump.counts["rejected"] += 3
        told.pump.counts["rejected/bad key"] += 3
        told.look()
        told.now += REFUSED_SECONDS
    assert 5 < len(told.events) < 32
    assert told.events[0].attrs["reason"] == "bad key"
    assert sum(event.attrs["rejected"] for event in told.events) > 0.9 * told.pump.counts["rejected"]


def _trained(home: Path, *, attempt: int = 1, host: str = "here") -> None:
    name = f"r3-a{attempt}-{host}-7-{'ab' * 6}"
    writer = Writer(id=name, run="run", project="p", rank=3, attempt=attempt, host=host, pid=7, world_size=8)
    journal = Journal(layout.writer_folder(home, "run", name), writer)
    journal.append([msgspec.msgpack.encode(Metric(1, 1, None, None, {"loss": 1.0}))])
    journal.close()


def test_a_voice_is_a_writer_beside_the_trainer(tmp_path: Path) -> None:
    """In the newest attempt, of the same rank and host; not a main process, so it does not decide how the run ended."""
    _trained(tmp_path)
    shipper_journal = ShipperJournal(tmp_path, "here")
    shipper_journal.record([counters({"otlp-1": {"written": 5, "retried/busy": 3}})], ["run", "gone"])
    _trained(tmp_path, attempt=2)
    shipper_journal.record([counters({"otlp-1": {"written": 6}})], ["run"])
    shipper_journal.close()
    mine = [batch for batch in read_batches(tmp_path, "run") if not batch.writer.main]
    assert [(batch.writer.rank, batch.writer.attempt, batch.writer.world_size) for batch in mine] == [
        (3, 1, 8),
        (3, 2, 8),
    ]
    values = [record.values for batch in mine for record in batch.records if isinstance(record, Metric)]
    assert values == [{"sink/otlp-1/written": 5}, {"sink/otlp-1/written": 6}]
    assert layout.list_runs(tmp_path) == ["run"]


def test_a_voice_is_bounded(tmp_path: Path) -> None:
    """Beyond its bytes it says nothing more, and in a run of another host it says nothing."""
    _trained(tmp_path)
    shipper_journal = ShipperJournal(tmp_path, "here", most_bytes=2000)
    for _ in range(1000):
        shipper_journal.record([counters({"otlp-1": {"written": 5}})], ["run"])
    shipper_journal.close()
    other = ShipperJournal(tmp_path, "elsewhere")
    other.record([counters({"otlp-1": {"written": 5}})], ["run"])
    sizes = [
        path.stat().st_size
        for name in layout.list_writers(tmp_path, "run")
        for path in layout.list_segments(layout.writer_folder(tmp_path, "run", name))
    ]
    assert len(sizes) == 2
    assert max(sizes) < 2500
