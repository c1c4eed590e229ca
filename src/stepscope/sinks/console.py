"""Readable lines, in the format `TRAINER - Loss: 0.500000 | Grad norm: 2.300000`; on a terminal, progress below."""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from stepscope.model import formatting
from stepscope.model.errors import ConfigError
from stepscope.model.metric_labels import LABELS, VARIABLES, label, number, parse_labels
from stepscope.model.names import SEVERITIES, severity_word
from stepscope.model.ports import Batch
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span
from stepscope.sinks.registry import convert, wants_debug
from stepscope.wire.plain import dumps, plain

SHOW_SECONDS = 0.1
"""Shortest interval between two updates of the progress line."""
RATE_SECONDS = 30.0
"""The period over which steps per second are measured."""


def has_terminal() -> bool:
    """Return whether standard output is a terminal and rich is installed."""
    try:
        if not sys.stdout.isatty():
            return False
        import rich.live  # noqa: F401
    except (AttributeError, ValueError, ImportError):
        return False
    return True


def printable(text: str, stream: Any) -> str:
    """Escape characters that a stream's encoding lacks, so that the rest is printed."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


class Terminal:
    """Prints lines above one line of progress; standard output itself is left as it is."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)
        # Nothing is redirected, and no thread refreshes: a loop that prints must not pay for our line.
        self._live = Live(
            "", console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def show(self, lines: Iterable[str], progress: str) -> None:
        """Print lines, and draw the progress line; errors of a closed terminal are ignored."""
        try:
            if progress and not self._live.is_started:
                self._live.start()
            text = printable("\n".join(lines), self._console.file)
            if text:
                self._console.print(text)
            if progress:
                progress = printable(progress, self._console.file)
                self._live.update(progress[: max(self._console.width - 1, 1)], refresh=True)
        except (OSError, ValueError):
            pass

    def close(self) -> None:
        """Remove the progress line."""
        try:
            self._live.stop()
        except (OSError, ValueError):
            pass


class Pace:
    """Progress and speed of a run, from its steps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._seen: deque[tuple[float, int]] = deque(maxlen=1000)
        self._shown = float("-inf")

    def reach(self, step: int) -> None:
        """Note a step; lower ones are ignored."""
        if not self._seen or step > self._seen[-1][1]:
            self._seen.append((self._clock(), step))

    def is_due(self) -> bool:
        """Return whether to update the progress line; at most ten times a second."""
        now = self._clock()
        if now - self._shown < SHOW_SECONDS:
            return False
        self._shown = now
        return True

    def text(self, latest: str = "") -> str:
        """Format progress in one line, followed by the latest values."""
        now = self._clock()
        while len(self._seen) > 2 and now - self._seen[0][0] > RATE_SECONDS:
            self._seen.popleft()
        if not self._seen:
            return ""
        (first, low), (_, high) = self._seen[0], self._seen[-1]
        rate = (high - low) / (now - first) if now > first else 0.0
        lasted = formatting.duration(math.floor(now - self._began))
        parts = [f"step {high}", f"{formatting.number(rate, 3)} steps/s", lasted, latest]
        return " · ".join(part for part in parts if part)


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
