"""Tables among the uploaded files of a run, whose rows become samples."""

import re
from concurrent.futures import Future
from pathlib import Path

from stepscope.dialects.wandb.receiver.tracked_runs import MAX_STREAMS, OpenRun, Sent, Stream, TrackedRuns
from stepscope.dialects.wandb.wire import Row, read_table
from stepscope.extend.receiver import Ingest
from stepscope.model.names import SCOPE_SAMPLES, SEVERITIES
from stepscope.model.records import LAST_STEP, Log, Record

_NAME = re.compile(r"media/table/(.{1,256})_([0-9]{1,18})_[0-9a-f]{6,64}\.table\.json", re.DOTALL)
"""As the client names the file: the key, the step, and the beginning of a hash of its content."""
_INFO = SEVERITIES["INFO"]
TOO_MANY, UNREADABLE = "rows of a table beyond the limit", "unreadable table"


def is_table(name: str) -> bool:
    """Return whether a file is a table that was logged."""
    return _NAME.fullmatch(name) is not None


class UploadedTables:
    """Reads the rows of tables. The name of a file has a hash of its content, so a file that is there was read."""

    def __init__(self, runs: TrackedRuns, ingest: Ingest) -> None:
        self._runs, self._ingest = runs, ingest

    def take(self, run: OpenRun, bound: str | None, name: str, path: Path) -> "Future[None] | None":
        """Journal the new rows of a table; None when there are none. The future completes once they are on disk."""
        found = _NAME.fullmatch(name)
        rows = [] if found is None else self._read(path)
        if found is None or not rows:
            return None
        step, now = min(int(found[2]), LAST_STEP), self._runs.clock()
        with run.lock:
            fresh = _fresh(rows, _progress(run, f"table {found[1]}"))
            records: list[Record] = [
                Log(now + at, step if own is None else own, None, None, None, _INFO, found[1], cells, SCOPE_SAMPLES)
                for at, (own, cells) in enumerate(fresh)
            ]
            if not records:
                return None
            sent = Sent(run, bound)
            self._runs.add(sent, records)
            return self._runs.submit(sent)

    def _read(self, path: Path) -> list[Row]:
        try:
            rows, more = read_table(path)
        except ValueError:
            self._ingest.reject(UNREADABLE)
            return []
        if more:
            self._ingest.reject(TOO_MANY)
        return rows


def _progress(run: OpenRun, name: str) -> Stream:
    """The progress of a table; of very many it is not kept, and their rows may be recorded again."""
    streams = run.about.streams
    return run.about.stream(name) if name in streams or len(streams) < MAX_STREAMS // 2 else Stream()


def _fresh(rows: list[Row], stream: Stream) -> list[Row]:
    """Leave out the rows of steps that an earlier table of this name had: each has all rows so far again."""
    new = [(step, cells) for step, cells in rows if step is None or step >= stream.lines]
    stream.lines = max([stream.lines, *(step + 1 for step, _ in new if step is not None)])
    return new
