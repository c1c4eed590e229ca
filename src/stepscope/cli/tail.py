"""`stepscope tail`: print the last records of a run, and with `--follow` those that come."""

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from stepscope.cli import text
from stepscope.cli.lines import line
from stepscope.cli.live import watch
from stepscope.cli.options import Commands, add_command, home_of, whole
from stepscope.cli.plain import record_line
from stepscope.journal import layout
from stepscope.journal.read import Position, Tail
from stepscope.journal.resolve_run import UnknownRun, find_run
from stepscope.model.ports import Batch
from stepscope.model.records import KINDS, Record, Span, kind
from stepscope.model.writer import Writer

POLL_SECONDS = 0.2

Row = tuple[Writer, Record]


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "tail", "print the last records of a run", command)
    made.add_argument("run", metavar="RUN", help="a run id, the beginning of one, a name, or `latest`")
    made.add_argument("-n", type=whole(), default=20, metavar="N", help="so many records (default 20)")
    made.add_argument("-f", "--follow", action="store_true", help="go on with those that come, until Ctrl-C")
    made.add_argument("--kind", choices=KINDS, help="records of this kind only")


def command(args: argparse.Namespace, pause: Callable[[float], None] = time.sleep) -> int:
    """Print the last records, then follow."""
    reader = _reader(home_of(args), args.run, args.kind)
    show = record_line if args.json else _for_people()
    try:
        _print(reader.last(args.n), show)
        while args.follow:
            pause(POLL_SECONDS)
            _print(reader.read(), show)
    except KeyboardInterrupt:
        pass
    return 0


class Reader(Protocol):
    """Where records come from."""

    def last(self, count: int) -> list[Row]:
        """The last records there are, by time."""

    def read(self) -> list[Row]:
        """The records that came since, by time."""


def _reader(home: Path, text: str, only_kind: str | None) -> Reader:
    """The journals of the run that is meant, which the hub itself reads; the hub where they are elsewhere."""
    try:
        return Follower(home, find_run(home, text), only_kind)
    except UnknownRun:
        watcher = watch(home, text, only_kind)
        if watcher is None:
            raise
        return watcher


def _for_people() -> Callable[[Writer, Record], str]:
    """Lines as wide as the terminal; whole ones where the output is no terminal."""
    if not sys.stdout.isatty():
        return line
    columns = text.width()
    return lambda writer, record: text.cut(line(writer, record), columns)


def _print(rows: list[Row], show: Callable[[Writer, Record], str]) -> None:
    for writer, record in rows:
        print(show(writer, record))
    sys.stdout.flush()


class Follower:
    """Reads all writers of a run side by side, also those that begin later."""

    def __init__(self, home: Path, run: str, only_kind: str | None = None) -> None:
        self._home = home
        self._run = run
        self._kind = only_kind
        self._tails: dict[str, Tail] = {}

    def last(self, count: int) -> list[Row]:
        """The last records there are, by time; each writer is read from its newest segment backwards."""
        rows: list[Row] = []
        for name in layout.list_writers(self._home, self._run):
            rows += self._last_of(name, count)
        return sorted(rows, key=_written)[-count:] if count else []

    def read(self) -> list[Row]:
        """The records that came since, by time."""
        for name in layout.list_writers(self._home, self._run):
            if name not in self._tails:
                self._tails[name] = Tail(layout.writer_folder(self._home, self._run, name))
        batches = [batch for tail in self._tails.values() for batch in tail.read_all()]
        return sorted((row for batch in batches for row in self._rows(batch)), key=_written)

    def _last_of(self, name: str, count: int) -> list[Row]:
        """The last rows of one writer; its segments are read from the newest back until there are enough."""
        folder = layout.writer_folder(self._home, self._run, name)
        newest, *older = [int(path.stem) for path in reversed(layout.list_segments(folder))] or [0]
        self._tails[name] = Tail(folder, Position(segment=newest))
        rows, first = self._part(self._tails[name], None, count)
        for segment in older:
            if len(rows) == count:
                break
            part, first = self._part(Tail(folder, Position(segment=segment)), first, count - len(rows))
            rows.extendleft(reversed(part))
        return list(rows)

    def _part(self, tail: Tail, below: int | None, count: int) -> tuple[deque[Row], int | None]:
        """The last rows of the batches numbered below one, and the number of the first batch."""
        rows: deque[Row] = deque(maxlen=count)
        first = below
        for batch in tail.read_all():
            if below is not None and batch.seq >= below:
                break
            first = batch.seq if first is None else min(first, batch.seq)
            rows.extend(self._rows(batch))
        return rows, first

    def _rows(self, batch: Batch) -> Iterator[Row]:
        for record in batch.records:
            if self._kind is None or kind(record) == self._kind:
                yield batch.writer, record


def _written(row: Row) -> int:
    """When a record was made: a span at its end."""
    record = row[1]
    return record.time + (record.duration or 0) if isinstance(record, Span) else record.time
