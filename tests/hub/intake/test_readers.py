"""Whether anyone reads."""

from stepscope.hub.intake.readers import QUIET_SECONDS, Readers


def test_recent_requests() -> None:
    """Somebody reads for a while after each request, and nobody does before the first."""
    now = 0.0
    readers = Readers(lambda: now)
    assert not readers.any()
    readers.note()
    now = QUIET_SECONDS - 1
    assert readers.any()
    now = QUIET_SECONDS
    assert not readers.any()


def test_long_requests() -> None:
    """A request that takes hours, such as a live stream, counts as long as it lasts."""
    now = 0.0
    readers = Readers(lambda: now)
    with readers.reading():
        now = 7200.0
        assert readers.any()
    assert readers.any()
    now += QUIET_SECONDS
    assert not readers.any()


def test_each_request_is_announced() -> None:
    """The store pump hears of each request when it begins."""
    heard: list[bool] = []
    readers = Readers()
    readers.subscribe(lambda: heard.append(readers.any()))
    with readers.reading():
        assert heard == [True]
    readers.note()
    assert heard == [True, True]
