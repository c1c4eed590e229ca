"""One exception is recorded once, however many places it passes, and whatever it is made of."""

import copy
import dataclasses
import pickle
from pathlib import Path

import pytest

import stepscope
from stepscope.model.records import Event
from stepscope.sdk import exception_records
from stepscope.testing import read_run
from tests.sdk.conftest import Records


def recorded(records: Records) -> list[tuple[str, int]]:
    """The recorded exceptions: type and severity."""
    found = [event for event in records(Event) if event.name == "exception"]
    return [(event.attrs["exception.type"].rpartition(".")[2], event.severity) for event in found]


class Slotted(Exception):
    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int = 3


class Closed(Exception):
    """Neither tells nor takes anything."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)

    def __setattr__(self, name: str, value: object) -> None:
        raise RuntimeError(name)


@pytest.mark.parametrize("kind", [ValueError, Slotted, Frozen, Closed])
def test_the_innermost_records(run: stepscope.Run, records: Records, kind: type[Exception]) -> None:
    """A decorator, a block in it and who asks later leave one event, the innermost's."""
    error = kind()

    @stepscope.capture_exceptions
    def work() -> None:
        with stepscope.capture_exceptions(fatal=True):
            raise error

    with pytest.raises(kind) as caught:
        work()
    assert caught.value is error
    assert not exception_records.is_first_sight(error, run.id)
    assert recorded(records) == [(kind.__name__, 21)]


@pytest.mark.parametrize("fatal", [True, False])
def test_a_fatal_one_outside_still_writes_out(tmp_path: Path, fatal: bool) -> None:
    """What an inner block has recorded is in the journal before a fatal one around it lets the exception go on."""
    with stepscope.init(home=tmp_path, probes=False, otel=False, flush_interval=3600) as run:
        assert run.flush()
        with (
            pytest.raises(OSError, match="x"),
            stepscope.capture_exceptions(fatal=fatal),
            stepscope.capture_exceptions(),
        ):
            raise OSError("x")
        written = [record for record in read_run(tmp_path, run.id) if isinstance(record, Event)]
    assert [event.name for event in written if event.name == "exception"] == ["exception"] * fatal


def test_other_exceptions_are_others(run: stepscope.Run, records: Records) -> None:
    """A second object, a copy, one out of a pickle and one raised from it are recorded; so is one by another run."""
    error = ValueError("x")
    for each in (error, ValueError("x"), copy.copy(error), pickle.loads(pickle.dumps(error))):
        with pytest.raises(ValueError, match="x"), stepscope.capture_exceptions():
            raise each
    with pytest.raises(KeyError), stepscope.capture_exceptions():
        raise KeyError from error
    assert recorded(records) == [("ValueError", 17)] * 4 + [("KeyError", 17)]
    assert exception_records.is_first_sight(error, "another run")


def test_nothing_to_note_on_is_no_trouble() -> None:
    """What cannot be noted is new each time, and nothing is raised."""
    bare: BaseException = object()  # type: ignore[assignment]
    assert exception_records.is_first_sight(bare, "a")
    assert exception_records.is_first_sight(bare, "a")
