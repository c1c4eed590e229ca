"""Doubles for users' own tests: start a run in a temporary home, read back what a run recorded."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import stepscope
from stepscope.journal import layout, segments
from stepscope.model.names import canonical_key
from stepscope.model.ports import Batch
from stepscope.model.records import Metric, Record, Value

SELF = "stepscope"
"""The category of Stepscope's own counters."""


def read_batches(home: str | os.PathLike[str], run_id: str) -> list[Batch]:
    """Read every batch of a run, writer by writer, each in the order written; damaged frames are skipped.

    None for a run that is not there: one that has recorded nothing yet has no folder either.
    """
    place = Path(home).expanduser()
    folders = (layout.writer_folder(place, run_id, name) for name in layout.list_writers(place, run_id))
    return [batch for folder in folders for batch in segments.read_writer(folder)]


def read_run(home: str | os.PathLike[str], run_id: str) -> list[Record]:
    """Read every record of a run, writer by writer, each in the order it was written; none when it is not there."""
    return [record for batch in read_batches(home, run_id) for record in batch.records]


def series(records: Iterable[Record], key: str) -> list[tuple[int | None, Value]]:
    """List the (step, value) pairs of one metric, such as `trainer/loss`, in the order of the records."""
    metrics = (record for record in records if isinstance(record, Metric))
    points = ((metric.step, name, value) for metric in metrics for name, value in metric.points())
    return [(step, value) for step, name, value in points if canonical_key(name) == canonical_key(key)]


@dataclass(slots=True)
class Recording:
    """A run under test; `records` is filled when the block of `recorded` ends."""

    run: stepscope.Run
    records: list[Record] = field(default_factory=list)

    def of(self, kind: type[Record]) -> list[Any]:
        """The user's records of one type, without Stepscope's own counters."""
        found = (record for record in self.records if isinstance(record, kind))
        return [record for record in found if not isinstance(record, Metric) or record.category != SELF]

    def series(self, key: str) -> list[tuple[int | None, Value]]:
        """The (step, value) pairs of one metric."""
        return series(self.records, key)


@contextmanager
def recorded(
    *,
    config: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    capture_logs: bool = False,
    otel: bool = False,
    probes: bool = False,
) -> Iterator[Recording]:
    """Start a run in a temporary home and make it the current one; afterwards its records are in `records`.

        with recorded() as recording:
            train()
        assert recording.series("trainer/loss")[-1][1] < 0.1

    Not promised: anything about other settings; they come from the environment, as usual.
    """
    with tempfile.TemporaryDirectory(prefix="stepscope-test-") as home:
        run = stepscope.init(
            config=config,
            run_id=run_id,
            home=home,
            disabled=False,
            capture_logs=capture_logs,
            otel=otel,
            probes=probes,
        )
        recording = Recording(run)
        try:
            with run:
                yield recording
        finally:
            recording.records = read_run(home, run.id)
