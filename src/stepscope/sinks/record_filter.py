"""Which records a sink gets: patterns on the keys of metrics, the names of other records, and kinds."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import structs

from stepscope.model import names
from stepscope.model.errors import ConfigError
from stepscope.model.records import KINDS, Log, Metric, Record, kind

OPTIONS = ("include", "exclude")
"""The options that every sink has."""
SELF_TELEMETRY = ("stepscope/*", "stepscope.*", "system/*")
"""What Stepscope records by itself of its own work and of the machine."""
OWN_RECORDS = (*SELF_TELEMETRY, names.EVENT_STARTED, names.EVENT_FINISHED, names.EVENT_EDITED)
"""The same and the start of a run, which has the command line, the configuration and the environment; end and edits."""
_KIND = "kind:"
_MEMO = 10_000


class RecordFilter(msgspec.Struct, frozen=True):
    """Patterns as in a shell. A record passes if it matches `include`, or that is empty, and no pattern of `exclude`.

    A pattern matches the key of a metric with its category (`trainer/loss`), the name of a span, event or alert, the
    logger of a log line, or with `kind:` in front a kind of record (`kind:log`).
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.include or self.exclude)

    def apply(self, record: Record) -> Record | None:
        """Return the record, a metric without the keys that do not pass, or None when nothing of it passes."""
        if not isinstance(record, Metric):
            return self._whole(record, record.scope if isinstance(record, Log) else record.name)
        front = "" if record.category is None else f"{record.category}/"
        if not record.values:
            return self._whole(record, front)
        kept = {key: value for key, value in record.values.items() if self._passes("metric", front + key)}
        if len(kept) == len(record.values):
            return record
        return structs.replace(record, values=kept) if kept else None

    def _whole(self, record: Record, name: str) -> Record | None:
        return record if self._passes(kind(record), name) else None

    def _passes(self, kind: str, name: str) -> bool:
        return _passes(self.include, self.exclude, kind, name)


def read_filter(sink: str, options: Mapping[str, Any], default: tuple[str, ...]) -> RecordFilter:
    """Read `include` and `exclude` of a sink's options; with neither, `default` is excluded. ConfigError if wrong."""
    given = {key: _patterns(sink, key, options[key]) for key in OPTIONS if options.get(key) is not None}
    return RecordFilter(**given) if given else RecordFilter(exclude=default)


def _patterns(sink: str, option: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str):
        given = given.split(",")
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise ConfigError(f"sinks: {sink}: {option}={given!r}: expected a list of patterns, such as ['trainer/*']")
    found = tuple(each.strip() if isinstance(each, str) else each for each in given)
    for each in found:
        if not isinstance(each, str) or not each:
            raise ConfigError(f"sinks: {sink}: {option}: {each!r} is not a pattern, such as 'trainer/*' or 'kind:log'")
        if each.startswith(_KIND) and each.removeprefix(_KIND) not in KINDS:
            raise ConfigError(f"sinks: {sink}: {option}: {each!r} is not a kind; known: {', '.join(KINDS)}")
    return found


@lru_cache(maxsize=_MEMO)
def _passes(include: tuple[str, ...], exclude: tuple[str, ...], kind: str, name: str) -> bool:
    if include and not any(_matches(pattern, kind, name) for pattern in include):
        return False
    return not any(_matches(pattern, kind, name) for pattern in exclude)


def _matches(pattern: str, kind: str, name: str) -> bool:
    if pattern.startswith(_KIND):
        return pattern.removeprefix(_KIND) == kind
    return _compiled(pattern).match(name) is not None


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> "re.Pattern[str]":
    return re.compile(translate(pattern))
