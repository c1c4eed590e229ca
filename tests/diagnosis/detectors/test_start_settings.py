"""Settings that ranks change after they started: compared when all have changed them."""

from typing import Any

from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.names import EVENT_CONFIG, EVENT_STARTED
from stepscope.model.records import Event


def diagnosed(*changes: tuple[int, dict[str, Any]]) -> list[tuple[str, tuple[int, ...], str | None]]:
    """The findings of a run of three ranks that change settings in this order."""
    diagnosis = Diagnosis(world=3)
    for rank in range(3):
        diagnosis.feed(rank, Event(rank, None, None, None, None, 9, EVENT_STARTED, {"config": {"lr": 0.1}}))
    for at, (rank, settings) in enumerate(changes):
        diagnosis.feed(rank, Event(10 + at, None, None, None, None, 9, EVENT_CONFIG, settings))
    return [(each.kind, each.ranks, each.key) for each in diagnosis.findings()]


def test_a_later_setting_that_differs_is_named() -> None:
    """The finding names the rank whose setting differs from the majority."""
    same = [(rank, {"data": {"batch_size": 8}}) for rank in (0, 1)]
    assert diagnosed(*same, (2, {"data": {"batch_size": 4}})) == [("config_differs", (2,), "config.data.batch_size")]


def test_ranks_that_are_not_at_the_same_change_are_not_compared() -> None:
    """One is ahead of the others, one alone logs, and some may differ."""
    assert diagnosed((0, {"lr": 0.2}), (0, {"lr": 0.3}), (1, {"lr": 0.2}), (2, {"lr": 0.2}), (1, {"lr": 0.3})) == []
    assert diagnosed(*((rank, {"seed": rank}) for rank in range(3))) == []
