"""POST /files/ENTITY/PROJECT/RUN/file_stream: chunks of lines with offsets, the summary, and the end of a run."""

import hashlib
import json
import re
from collections.abc import Callable
from concurrent.futures import Future
from http import HTTPStatus
from itertools import islice
from typing import Any

import msgspec

from stepscope.dialects.wandb.receiver.descriptions import begin, definitions_of
from stepscope.dialects.wandb.receiver.line_records import (
    UNREADABLE,
    Decoded,
    console_records,
    history_records,
    machine_records,
    read_row,
)
from stepscope.dialects.wandb.receiver.tracked_runs import END, LONGEST_NAME, Block, Sent, TrackedRuns
from stepscope.extend.receiver import Ingest, Refusal, Refused
from stepscope.model.names import EVENT_FINISHED, SEVERITIES
from stepscope.model.records import Event, Record
from stepscope.model.redaction import redact

HISTORY, EVENTS, SUMMARY, OUTPUT = "wandb-history.jsonl", "wandb-events.jsonl", "wandb-summary.json", "output.log"
MAX_LINES = 400_000
"""Of one request; clients send at most 10 MB, and a line of the console has 25 characters before its text."""
MAX_STRINGS = MAX_LINES + 1000
"""The lines of a request, and the names around them."""
MAX_SKIPPED = 1_000_000
"""Lines that an offset may skip."""
_ITEM = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Where `str.splitlines` splits."""
_CONSOLE_LINES = 2000
"""The number of last console lines that are compared with lines sent again."""
UNKNOWN_FILE = "lines of an unknown file"


class Chunk(msgspec.Struct):
    """Consecutive lines of one file."""

    content: list[str] | str
    offset: int = 0


class Posted(msgspec.Struct):
    """The body of a request; empty for a heartbeat."""

    files: dict[str, Chunk] | None = None
    complete: bool | None = None
    exitcode: int | None = None
    preempting: bool | None = None


_decode = msgspec.json.Decoder(Posted).decode


class FileStream:
    """Receives streamed files. Safe to use from any thread."""

    def __init__(self, runs: TrackedRuns, ingest: Ingest) -> None:
        self._runs, self._ingest = runs, ingest

    def take(self, data: bytes, project: str, id: str, bound: str | None, process: str = "") -> "Future[None]":
        """Journal a request; the future completes once it is on disk. Refused when it cannot be parsed.

        `process` identifies a process when several write to the run.
        """
        if len(process) > LONGEST_NAME or not process.isprintable():
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, "the client id is not valid"))
        posted = self._read(data)
        run = self._runs.find_or_make(project, id, bound)
        with run.lock:
            sent = Sent(run, bound, process)
            begin(self._runs, sent)
            self._take_files(sent, posted.files or {})
            if posted.complete or posted.exitcode is not None:
                self._end(sent, posted)
            if beat := self._runs.heartbeat(run):
                self._runs.add(sent, beat)
            return self._runs.submit(sent)

    def _read(self, data: bytes) -> Posted:
        if data.count(b'",') > MAX_LINES and sum(1 for _ in islice(_ITEM.finditer(data), MAX_STRINGS)) == MAX_STRINGS:
            raise _too_many_lines()  # before they are in memory, where each takes fifty times its bytes
        try:
            posted = _decode(data or b"{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            self._ingest.reject("unreadable request")
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, f"not a file_stream request: {error}")) from None
        if sum(_count_lines(chunk) for chunk in (posted.files or {}).values()) > MAX_LINES:
            raise _too_many_lines()
        return posted

    def _take_files(self, sent: Sent, files: dict[str, Chunk]) -> None:
        lines = {name: _lines(chunk) for name, chunk in files.items()}
        self._start_over(sent, files, lines)
        now, about = self._runs.clock(), sent.run.about
        before, history = about.step, Decoded()

        def decode_history(block: list[str]) -> Decoded:
            return history_records(block, definitions_of(about.config), now, about.step)

        def decode_events(block: list[str]) -> Decoded:
            return machine_records(block, history, before, now)

        if HISTORY in files:
            history = self._take(sent, HISTORY, files[HISTORY].offset, lines[HISTORY], decode_history)
            about.step = history.steps[-1] if history.steps else about.step
        if EVENTS in files:
            self._take(sent, EVENTS, files[EVENTS].offset, lines[EVENTS], decode_events)
        if OUTPUT in files:
            self._take_output(sent, files[OUTPUT].offset, lines[OUTPUT], history, before)
        if lines.get(SUMMARY) and (found := read_row(lines[SUMMARY][-1])) is not None:
            others = (read_row(about.summary) or {}) if sent.process else {}
            about.summary = json.dumps({**others, **redact(found)})
        for name in files.keys() - {HISTORY, EVENTS, OUTPUT, SUMMARY}:
            self._ingest.reject(UNKNOWN_FILE, len(lines[name]))

    def _start_over(self, sent: Sent, files: dict[str, Chunk], lines: dict[str, list[str]]) -> None:
        """Start a new attempt when a stream restarts with a different first line: a new process reused the id."""
        for name in (HISTORY, EVENTS):
            if name not in files or files[name].offset or not lines[name]:
                continue
            stream, first = sent.stream(name), _digest(lines[name][0])
            if stream.first and stream.first != first:
                begin(self._runs, sent, start_over=True)
            sent.stream(name).first = first

    def _take(
        self, sent: Sent, name: str, offset: int, lines: list[str], decode: Callable[[list[str]], Decoded]
    ) -> Decoded:
        """Journal the new lines of a chunk; lines sent again keep their original batches, and so are stored once."""
        stream = sent.stream(name)
        if not 0 <= offset <= stream.lines + MAX_SKIPPED:
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, f"the offset {offset} of {name} is out of range"))
        last = stream.last
        if last is not None and last.seq in sent.run.unsure and offset <= last.start < offset + len(lines):
            repeated = lines[last.start - offset : last.stop - offset]
            if len(repeated) == last.stop - last.start:
                self._add(sent, decode(repeated), last)
        fresh = lines[max(stream.lines - offset, 0) :]
        if not fresh:
            self._ingest.repeat()
            return Decoded()
        decoded = decode(fresh)
        start = max(stream.lines, offset)
        block = self._add(sent, decoded, None)
        stream.last = Block(start, start + len(fresh), block.seq, block.attempt)
        stream.lines = start + len(fresh)
        stream.tail = json.dumps(decoded.tail) if decoded.tail else stream.tail
        return decoded

    def _add(self, sent: Sent, decoded: Decoded, block: Block | None) -> Block:
        if decoded.rejected:
            self._ingest.reject(UNREADABLE, decoded.rejected)
        return self._runs.add(sent, decoded.records, block)

    def _take_output(self, sent: Sent, offset: int, lines: list[str], history: Decoded, before: int | None) -> None:
        """Journal console lines, also those that changed: a progress bar sends its line again and again."""
        now, known = self._runs.clock(), sent.run.console

        def decode(block: list[str]) -> Decoded:
            return Decoded(console_records(block, history, before, now))

        taken = sent.stream(OUTPUT).lines
        repeated = zip(range(offset, taken), lines, strict=False)
        numbered = [((sent.process, number), line) for number, line in repeated]
        changed = {at: line for at, line in numbered if known.get(at, line) != line}
        if changed:
            self._runs.add(sent, decode(list(changed.values())).records)
            sent.rewritten.extend(changed)
        if offset + len(lines) > taken or not changed:
            self._take(sent, OUTPUT, offset, lines, decode)
        last = max(len(lines) - _CONSOLE_LINES, 0)
        known.update(((sent.process, offset + at), lines[at]) for at in range(last, len(lines)))
        while len(known) > 2 * _CONSOLE_LINES:
            del known[next(iter(known))]

    def _end(self, sent: Sent, posted: Posted) -> None:
        """Record the end of the run, once."""
        about = sent.run.about
        stream = about.stream(END)
        if stream.last is not None and stream.last.seq not in sent.run.unsure:
            return
        code = posted.exitcode or 0
        status = "preempted" if posted.preempting and code else "failed" if code else "finished"
        now = self._runs.clock()
        records: list[Record] = []
        summary: dict[str, Any] = read_row(about.summary) or {}
        if summary:
            kept = {key: _summarized(value) for key, value in summary.items() if key != "_wandb"}
            records.append(Event(now, None, None, None, None, SEVERITIES["INFO"], "train.summary", kept))
        attrs = {"status": status, "exit_code": code}
        records.append(Event(now, None, None, None, None, SEVERITIES["INFO"], EVENT_FINISHED, attrs))
        stream.last = self._runs.add(sent, records, stream.last)


def _summarized(value: Any) -> Any:
    """Return the one number of a summary such as `{"max": 0.9}`, which `define_metric(summary="max")` makes."""
    if isinstance(value, dict) and len(value) == 1 and not value.keys().isdisjoint(("min", "max", "mean", "last")):
        return next(iter(value.values()))
    return value


def _count_lines(chunk: Chunk) -> int:
    """Return the number of lines of a chunk, at least; those of a short text are not counted one by one."""
    if isinstance(chunk.content, list):
        return len(chunk.content)
    return sum(map(chunk.content.count, _BREAKS)) if len(chunk.content) > MAX_LINES else 0


def _too_many_lines() -> Refused:
    return Refused(Refusal(HTTPStatus(413), f"the request has more than {MAX_LINES} lines; send smaller requests"))


def _lines(chunk: Chunk) -> list[str]:
    return chunk.content.splitlines() if isinstance(chunk.content, str) else chunk.content


def _digest(line: str) -> str:
    """Return a digest of a line that does not depend on the order of its keys, which clients vary."""
    text = json.dumps(read_row(line), sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
