"""Positions of the hub's journal, and waiting until the store has passed one."""

from pathlib import Path

import pytest

from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.intake.intake_journal import StoreProgress
from stepscope.hub.receivers.ingest import Upload
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.model.ports import Writer
from stepscope.model.records import Metric


def test_a_future_ends_when_the_store_has_passed_its_position() -> None:
    """It ends neither before nor for a later position, and at once where the store is further already."""
    progress = StoreProgress()
    first, second = progress.after((0, 10)), progress.after((1, 5))
    progress.store((0, 9))
    assert not first.done()
    progress.store((1, 4))
    assert (first.done(), second.done()) == (True, False)
    progress.store((1, 5))
    assert second.done()
    assert progress.after((1, 5)).done()


def test_waiting_is_announced() -> None:
    """Who waits for a position that is not stored is announced, so that the store need not be waited for long."""
    heard: list[str] = []
    progress = StoreProgress(on_wait=lambda: heard.append("waits"))
    progress.after((0, 0))
    assert not heard
    progress.after((0, 10))
    assert heard == ["waits"]


def test_the_store_never_goes_back() -> None:
    """A position that was stored stays stored, though a group is read again."""
    progress = StoreProgress(stored=(2, 7))
    progress.store((1, 0))
    assert progress.is_stored((2, 7))


def _open(home: Path) -> Hub:
    place = HubHome(home)
    return Hub(HubOptions(home=home), place, open_home_store(place), Tokens(place.tokens))


def test_a_hub_knows_what_it_has_stored(tmp_path: Path) -> None:
    """What was acknowledged is stored once the future has ended; after a restart everything is known to be stored."""
    pytest.importorskip("tests.chdb")
    hub = _open(tmp_path)
    upload, writer = Upload(), Writer(id="w", run="r", project="p")
    ingest = hub.ingest("test")
    ingest.add(upload, writer, [Metric(1_700_000_000_000_000_000, 1, None, None, {"loss": 1.0})], None)
    ingest.submit(upload).result(30)
    mark = hub.progress.written
    assert not hub.progress.is_stored(mark)
    hub.start()
    hub.progress.after(mark).result(30)
    assert hub.engine.query("SELECT count() AS n FROM metrics").one("n") == 1
    hub.close()
    again = _open(tmp_path)
    assert again.progress.is_stored(again.progress.written)
    again.close(0.1)
