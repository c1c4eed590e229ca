"""The sinks by name: options read from settings and checked, and which records each sink gets."""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import msgspec
from msgspec import structs

from stepscope.journal.layout import slug
from stepscope.model.dialects import Plugins, read_options
from stepscope.model.errors import ConfigError
from stepscope.model.names import EVENT_EDITED, EVENT_FINISHED, EVENT_STARTED, canonical_key
from stepscope.model.ports import Sink
from stepscope.model.records import KINDS, Log, Metric, Record, kind

OPTIONS = ("include", "exclude")
"""The options that every sink has."""
SELF_TELEMETRY = ("stepscope/*", "stepscope.*", "system/*")
"""Records that Stepscope makes about itself and the machine."""
OWN_RECORDS = (*SELF_TELEMETRY, EVENT_STARTED, EVENT_FINISHED, EVENT_EDITED)
"""The same and the start of a run, which has the command line, the configuration and the environment; end and edits."""
_KIND = "kind:"
_MEMO = 10_000


class RecordFilter(msgspec.Struct, frozen=True):
    """Patterns as in a shell. A record passes if it matches `include`, or that is empty, and no pattern of `exclude`.

    A pattern matches the key of a metric with its category (`trainer/loss`) in any spelling of it, the name of a span,
    event or alert, the logger of a log line, or with `kind:` in front a kind of record (`kind:log`).
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.include or self.exclude)

    def apply(self, record: Record) -> Record | None:
        """Return the record, a metric without the keys that do not pass, or None when nothing of it passes."""
        if not isinstance(record, Metric):
            return self._if_passing(record, record.scope if isinstance(record, Log) else record.name)
        front = "" if record.category is None else f"{record.category}/"
        if not record.values:
            return self._if_passing(record, front)
        kept = {key: value for key, value in record.values.items() if self._passes("metric", front + key)}
        if len(kept) == len(record.values):
            return record
        return structs.replace(record, values=kept) if kept else None

    def _if_passing(self, record: Record, name: str) -> Record | None:
        return record if self._passes(kind(record), name) else None

    def _passes(self, kind: str, name: str) -> bool:
        return _passes(self.include, self.exclude, kind, name)


def read_filter(sink: str, options: Mapping[str, Any], default: tuple[str, ...]) -> RecordFilter:
    """Read `include` and `exclude` of a sink's options; ConfigError if wrong.

    Without `include`, `default` is excluded too: leaving out more never lets something else pass. An empty `exclude`
    asks for everything.
    """
    given = {key: _patterns(sink, key, options[key]) for key in OPTIONS if options.get(key) is not None}
    if "include" in given or given.get("exclude") == ():
        return RecordFilter(**given)
    return RecordFilter(exclude=(*default, *given.get("exclude", ())))


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
    if kind == "metric" and _compiled(canonical_key(pattern)).match(canonical_key(name)):
        return True
    return _compiled(pattern).match(name) is not None


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> "re.Pattern[str]":
    return re.compile(translate(pattern))


def open_sink(config: "Config", home: Path) -> Sink:
    """Open a sink for the records of a home folder."""
    sink = config.open()
    if hasattr(sink, "home"):
        sink.home = home
    return sink


LOCAL = "local"
"""The journal itself: always written, so naming it changes nothing."""
DEBUG = ("STEPSCOPE_DEBUG", "TUFT_OTEL_DEBUG")
"""Variables that print every record on the console."""
SINKS = Plugins(
    "sink",
    "stepscope.sinks",
    {"console": "stepscope.sinks.console:Console", "hub": "stepscope.sinks.hub:Hub"},
)
"""Our own sinks; those of foreign systems are parts of dialects."""


class Config(Protocol):
    """What an entry point names: a frozen msgspec Struct of one sink's options, complete and checked.

    One whose sink wants the records packed, as the journal has them, says so with a property `packed` that is true.
    One whose sink learns its place only when it is open gives the sink a property `place` too, for reports.
    One that has `parts`, configs of its own type, is served as so many sinks, none of which waits for another.
    One whose sink sends files too gives the sink an attribute `home`, which is set to the folder that they are in.
    One whose class has `excluded`, patterns, gets no record that matches them unless the options say otherwise.
    """

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Config":
        """Read options and variables; ConfigError when they are wrong. Opens nothing."""

    @property
    def place(self) -> str:
        """The destination without secrets; the same place keeps its cursors when other options change."""

    @property
    def remote(self) -> bool:
        """Whether it is served by the shipper; else by a thread of the trainer. The same for all of one class."""

    def open(self) -> Sink:
        """Make the sink; connections are opened with the first write."""


class Chosen(msgspec.Struct, frozen=True):
    """A configured sink and its options; its repr omits them, because they may hold secrets."""

    name: str
    config: Any
    filter: RecordFilter = RecordFilter()
    """Which records it gets."""

    @property
    def id(self) -> str:
        """Names its cursors and its quarantine."""
        digest = hashlib.sha256(self.config.place.encode()).hexdigest()[:8]
        return f"{slug(self.name)}-{digest}"

    def __repr__(self) -> str:
        return f"{self.name} ({self.config.place})"

    def stored(self) -> "StoredSink":
        """What a file holds of it."""
        return StoredSink(self.name, msgspec.Raw(msgspec.json.encode(self.config)), self.filter)


class StoredSink(msgspec.Struct):
    """A configured sink in a file, which only its owner may read."""

    name: str
    config: msgspec.Raw
    filter: RecordFilter = RecordFilter()

    def chosen(self) -> Chosen:
        """The sink; ValueError when it is unknown or its options are."""
        return Chosen(self.name, msgspec.json.decode(self.config, type=find(self.name)), self.filter)


Options = TypeVar("Options")


def parse(given: Any, env: Mapping[str, str] | None = None) -> tuple[Chosen, ...]:
    """Read the `sinks` setting: names, or mappings of one name to its options; a text is split at commas."""
    env = os.environ if env is None else env
    if isinstance(given, str) and given.lstrip().startswith(("[", "{")):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError as error:
            what = f"a text that begins with {given.lstrip()[0]} is parsed as JSON, which failed"
            raise ConfigError(f"sinks: {what}: {error}") from None
        given = [given] if isinstance(given, dict) else given
    elif isinstance(given, str):
        given = [part.strip() for part in given.split(",") if part.strip()]
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise ConfigError("sinks: expected a list, such as [local, console, {hub: {endpoint: http://host:4318}}]")
    chosen: dict[str, Chosen] = {}
    for each in given:
        if isinstance(each, Chosen):  # read before
            chosen[each.id] = each
            continue
        name, options = _entry(each)
        if name == LOCAL:
            continue
        kind = find(name)
        config = kind.read({key: value for key, value in options.items() if key not in OPTIONS}, env)
        chosen_records = read_filter(name, options, getattr(kind, "excluded", ()))
        for part in getattr(config, "parts", (config,)):
            made = Chosen(name, part, chosen_records)
            chosen[made.id] = made
    return tuple(chosen.values())


def wants_debug(env: Mapping[str, str]) -> bool:
    """Return whether a variable requests every record on the console."""
    return any(env.get(name, "").strip().lower() in ("1", "true") for name in DEBUG)


def with_debug(chosen: tuple[Chosen, ...], env: Mapping[str, str]) -> tuple[Chosen, ...]:
    """Add the console when a variable requests it, unless it is configured."""
    if not wants_debug(env) or any(each.name == "console" for each in chosen):
        return chosen
    return (*parse(["console"], env), *chosen)


def _entry(each: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(each, str):
        return each.strip().lower(), {}
    if isinstance(each, Mapping) and len(each) == 1:
        ((name, options),) = each.items()
        if isinstance(name, str) and (options is None or isinstance(options, Mapping)):
            return name.strip().lower(), options or {}
    shown = f"a mapping of {', '.join(map(repr, each))}" if isinstance(each, Mapping) else repr(each)
    raise ConfigError(f"sinks: {shown} is neither a name nor one name with its options, {{name: {{option: value}}}}")


def names() -> list[str]:
    """Name the sinks that can be used here."""
    return sorted({LOCAL, *SINKS.names()})


def find(name: str) -> type[Config]:
    """Import the options of a sink; ConfigError when there is none of that name, or it needs more packages."""
    try:
        return cast(type[Config], SINKS.find(name, also=[LOCAL]))
    except ConfigError as error:
        raise ConfigError(f"sinks: {error}") from None


def convert(name: str, options: Mapping[str, Any], kind: type[Options]) -> Options:
    """Read options into a Struct; ConfigError names the option, the known ones and what would be right."""
    try:
        made = read_options(options, kind, also=OPTIONS)
    except ConfigError as error:
        raise ConfigError(f"sinks: {name}: {error}") from None
    timeout = getattr(made, "timeout", None)
    if timeout is not None and not timeout > 0:
        raise ConfigError(f"sinks: {name}: timeout must be a number of seconds above 0")
    return made
