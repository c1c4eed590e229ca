"""A writer and its folder, and journals that are closed afterwards."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope.journal.segments import Journal
from stepscope.model.ports import Writer

OpenJournal = Callable[..., Journal]


@pytest.fixture
def writer() -> Writer:
    """The identity of a writer whose folder is named as the SDK would."""
    return Writer(id="r1-a2-host-7-abc", run="run-1", project="tests", rank=1, attempt=2, host="host", pid=7)


@pytest.fixture
def folder(tmp_path: Path, writer: Writer) -> Path:
    """The writer's folder; the first append makes it."""
    return tmp_path / "runs" / writer.run / writer.id


@pytest.fixture
def open_journal(folder: Path, writer: Writer) -> Iterator[OpenJournal]:
    """Open journals of the writer; each is closed after the test."""
    opened: list[Journal] = []

    def open_one(**options: int) -> Journal:
        opened.append(Journal(folder, writer, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for journal in opened:
        journal.close()
