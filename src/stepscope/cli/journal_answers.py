"""The questions of the API that commands ask about a run, answered from its journals alone.

Every field is one of the hub's answer to the same question, with the same value. A field that the hub does not have is
known to the journals only: `status`, `records` and damage of a writer, and the `curve` of a metric.
"""

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from stepscope.cli.journal_diagnosis import diagnose
from stepscope.journal.key_summary import KeySummary
from stepscope.journal.run_goodput import Folding
from stepscope.journal.run_summary import OnDisk, RunSummary, WriterSummary, disk_of, read_run
from stepscope.model import names
from stepscope.model.goodput_sums import GoodputJson, goodput_json
from stepscope.model.ports import Writer
from stepscope.model.records import Alert, Event, Span, word
from stepscope.model.states import writer_state
from stepscope.wire.plain import plain

RUN = "/api/runs/{run}"


class JournalAnswers:
    """Answers about one run; its journals are read once, and only for questions that need them."""

    def __init__(self, home: Path, run: str) -> None:
        self._home, self._run = home, run

    def get(self, path: str, *, run: str, **params: Any) -> Any:
        """Answer a question about the run, as a hub does."""
        assert run == self._run
        return _QUESTIONS[path](self, params)

    @cached_property
    def _read(self) -> tuple[RunSummary, Mapping[str, OnDisk]]:
        """The summary of its records, and the state of its files and processes before they were read."""
        disk = disk_of(self._home, self._run)
        return read_run(self._home, self._run), disk

    def about(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `/api/runs/{run}`."""
        (summary, disk), now = self._read, time.time()
        description, writers = summary.described, list(summary.writers.values())
        started, ended = summary.started, summary.ended
        return {
            "id": summary.run,
            "project": summary.project,
            "name": description.name,
            "notes": description.notes,
            "tags": plain(description.tags),
            "group": summary.group or None,
            "job_type": summary.job_type or None,
            "parent": summary.parent or None,
            "from_step": summary.from_step,
            "archived": description.archived,
            "status": summary.status(disk, now),
            "importing": None,
            "started": seconds(started),
            "seen": seconds(ended),
            "duration": round((ended - started) / 1e9, 6) if started and ended else None,
            "step": summary.last_step,
            "attempts": len(summary.attempts),
            "ranks": len(summary.ranks),
            "config": plain(summary.config),
            "environment": plain(summary.environment),
            "writers": [_writer(each, disk.get(each.writer.id, OnDisk()), now) for each in writers],
        }

    def keys(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `/api/runs/{run}/keys`, without Stepscope's own."""
        return {"keys": [_key(each) for _, each in sorted(self._read[0].keys.items())]}

    def summary(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `/api/runs/{run}/summary`."""
        summary = self._read[0]
        return {
            "spans": {
                name: {
                    "count": each.count,
                    "errors": each.errors,
                    "mean_ms": each.mean / 1e6,
                    "p50_ms": each.p50 / 1e6,
                    "max_ms": each.longest / 1e6,
                }
                for name, each in sorted(summary.spans.items())
            },
            "logs": summary.logs,
            "events": summary.events,
            "alerts": summary.alerts,
            "counters": dict(sorted(summary.counters.items())),
            "overhead": summary.overhead,
        }

    def logs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `/api/logs` for events: the newest of one name or of those that no other question tells."""
        summary, name = self._read[0], given.get("name")
        if name == names.EVENT_REJECTED:
            return {"logs": [{"attrs": {"keys": plain(summary.rejected_keys)}}]}
        events = summary.exceptions if name == names.EVENT_EXCEPTION else summary.recent_events
        return {"logs": list(map(_record, events))}

    def alerts(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `/api/alerts` with the newest ones."""
        return {"alerts": list(map(_record, self._read[0].recent_alerts))}

    def open_spans(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `/api/spans` for spans that have not ended."""
        return {"spans": [_open_span(*each) for each in self._read[0].open_spans.values()]}

    def findings(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `/api/runs/{run}/findings`: all that is written is diagnosed."""
        return {"run": self._run, "complete": True, "progress": 1.0, "findings": diagnose(self._home, self._run)}

    def goodput(self, _: Mapping[str, Any]) -> GoodputJson:
        """Answer `/api/runs/{run}/goodput`."""
        return goodput_json(self._run, Folding(self._home, self._run).look())


_QUESTIONS: dict[str, Callable[[JournalAnswers, Mapping[str, Any]], Mapping[str, Any]]] = {
    RUN: JournalAnswers.about,
    f"{RUN}/keys": JournalAnswers.keys,
    f"{RUN}/summary": JournalAnswers.summary,
    f"{RUN}/findings": JournalAnswers.findings,
    f"{RUN}/goodput": JournalAnswers.goodput,
    "/api/logs": JournalAnswers.logs,
    "/api/alerts": JournalAnswers.alerts,
    "/api/spans": JournalAnswers.open_spans,
}


def _writer(each: WriterSummary, disk: OnDisk, now: float) -> dict[str, Any]:
    who = each.writer
    return {
        **{name: getattr(who, name) for name in ("id", "attempt", "rank", "world_size", "main", "host", "pid")},
        "resource": plain(who.resource),
        "started": seconds(each.started),
        "seen": seconds(each.last),
        "step": each.last_step,
        "status": writer_state(each.facts(disk), now),
        "records": each.records,
        "damaged_frames": each.damaged,
        "unreadable_records": each.unreadable,
    }


def _key(each: KeySummary) -> dict[str, Any]:
    return {
        "key": each.key,
        "unit": each.unit,
        "ranks": sorted(each.latest.by_rank),
        "points": each.count,
        "last": None if each.last is None else word(each.last),
        "last_step": each.last_step,
        "min": each.low,
        "max": each.high,
        "non_finite": each.non_finite,
        "curve": each.curve.points if each.curve else [],
    }


def _record(record: Event | Alert) -> dict[str, Any]:
    return {
        "name": record.name,
        "time": seconds(record.time),
        "step": record.step,
        "severity": names.severity_word(record.severity),
        "body": record.message if isinstance(record, Alert) else plain(record.body),
        "attrs": plain(record.attrs),
        "trace_id": record.trace_id.hex() if record.trace_id else None,
        "span_id": record.span_id.hex() if record.span_id else None,
    }


def _open_span(who: Writer, span: Span) -> dict[str, Any]:
    return {
        "name": span.name,
        "start": seconds(span.time),
        "rank": who.rank,
        "step": span.step,
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_id": span.parent_id.hex() if span.parent_id else None,
        "attrs": plain(span.attrs),
    }


def seconds(ns: int | None) -> float | None:
    """A time as a hub answers it: in seconds to the microsecond, None for none."""
    return round(ns / 1e9, 6) if ns else None
