"""A run in a temporary home, and its records read back from the journal."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.journal import layout, segments
from stepscope.model.records import Record

Records = Callable[..., list[Record]]


def python_core(call: Any) -> Any:
    """The function of the Python core behind a call that may have a compiled form."""
    return getattr(call, "__wrapped__", call)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[stepscope.Run]:
    """A current run without probes or providers, finished afterwards."""
    run = stepscope.init(project="test", home=tmp_path, probes=False, otel=False)
    yield run
    run.finish()


@pytest.fixture
def records(run: stepscope.Run) -> Records:
    """Read back what the run has recorded so far, of the given types."""

    def read_back(*kinds: type) -> list[Record]:
        assert run.flush(300)
        found: list[Record] = []
        for writer in layout.list_writers(run.home, run.id):
            for batch in segments.read_writer(layout.writer_folder(run.home, run.id, writer)):
                found.extend(batch.records)
        return [record for record in found if not kinds or isinstance(record, kinds)]

    return read_back
