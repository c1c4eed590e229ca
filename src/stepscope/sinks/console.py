"""Readable lines on a terminal, in the format `TRAINER - Loss: 0.500000 | Grad norm: 2.300000`."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from stepscope.model import formatting
from stepscope.model.errors import ConfigError
from stepscope.model.metric_labels import LABELS, VARIABLES, label, number, parse_labels
from stepscope.model.names import SEVERITIES, severity_word
from stepscope.model.ports import Batch
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span
from stepscope.sinks.registry import convert, wants_debug
from stepscope.sinks.terminal import Pace, Terminal, has_terminal, printable
from stepscope.wire.plain import dumps, plain

_QUIET = ("system", "stepscope")
_HEAD = "misc"


class Console(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which records are printed, and the labels of metrics."""

    debug: bool = False
    labels: dict[str, str] = {}
    severity: str = "WARN"
    progress: bool | None = None
    """Whether to show progress with rich; by default when standard output is a terminal and rich is installed."""

    remote: ClassVar[bool] = False  # it runs in the trainer, which has the terminal

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Console":
        """Read options and variables; labels of both are merged, the options' win."""
        made = convert("console", options, cls)
        if made.severity.upper() not in SEVERITIES:
            raise ConfigError(f"sinks: console: severity {made.severity!r} is not known; use {', '.join(SEVERITIES)}")
        labels: dict[str, str] = {}
        for name in VARIABLES:
            labels.update(parse_labels(env.get(name, "")))
        return msgspec.structs.replace(made, labels={**labels, **made.labels}, debug=made.debug or wants_debug(env))

    @property
    def place(self) -> str:
        """Always the same: there is one terminal."""
        return "console"

    def open(self) -> "ConsoleSink":
        """Make the sink; without rich or a terminal there is no progress line."""
        shows = self.progress is not False and not self.debug and has_terminal()
        return ConsoleSink(self, terminal=Terminal() if shows else None)


class ConsoleSink:
    """Prints lines with `emit`, or on a terminal with progress below them."""

    timeout = 1.0
    divisible = True

    def __init__(
        self,
        config: Console,
        emit: Callable[[str], object] | None = None,
        *,
        terminal: Terminal | None = None,
    ) -> None:
        self._config = config
        self._labels = {**LABELS, **config.labels}
        self._least = SEVERITIES[config.severity.upper()]
        self._emit = emit or _print
        self._terminal, self._pace = terminal, Pace()
        self._latest = ""

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Print the lines of all records that have one; errors of a closed terminal are ignored."""
        lines = [line for batch in batches for record in batch.records for line in self.lines(record)]
        if self._terminal is not None:
            for batch in batches:
                self._note_progress(batch.records)
            self._terminal.show(lines, self._pace.text(self._latest) if self._pace.is_due() else "")
        elif lines:
            self._emit("\n".join(lines))
        return {}

    def close(self) -> None:
        """Remove the progress line."""
        if self._terminal is not None:
            self._terminal.close()

    def _note_progress(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, Metric) and record.step is not None and record.category not in _QUIET:
                self._pace.reach(record.step)
                key, value = next(iter(record.values.items()), ("", 0.0))
                if key:
                    self._latest = f"{label(key, self._labels)}: {number(value)}"

    def lines(self, record: Record) -> Iterator[str]:
        """Format a record for reading; with `debug` every record, as JSON."""
        if self._config.debug:
            yield dumps(plain(record), indent=None)
        elif isinstance(record, Metric):
            if record.category not in _QUIET and record.instrument is None:
                yield self._metric(record)
        elif isinstance(record, Alert):
            yield f"ALERT - {severity_word(record.severity)} {record.name}: {record.message}".rstrip(": ")
        elif isinstance(record, Event):
            yield f"EVENT - {record.name}"
        elif isinstance(record, Log) and record.severity >= self._least:
            yield f"LOG - {severity_word(record.severity)} {record.body}"
        elif isinstance(record, Span) and record.status == 2 and record.duration is not None:
            took = formatting.duration(record.duration / 1e9)
            yield f"SPAN - {record.name} failed after {took}: {record.message}".rstrip(": ")

    def _metric(self, record: Metric) -> str:
        parts = [f"{label(key, self._labels)}: {number(value)}" for key, value in record.values.items()]
        return f"{(record.category or _HEAD).upper()} - {' | '.join(parts) or 'No metrics'}"


def _print(text: str) -> None:
    try:
        sys.stdout.write(f"{printable(text, sys.stdout)}\n")
        sys.stdout.flush()
    except (OSError, ValueError):  # a closed terminal: the journal has it all
        pass
