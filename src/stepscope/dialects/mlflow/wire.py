"""MLflow's REST API: names and limits, points, params and tags, bodies of `runs/log-batch`."""

import hashlib
import math
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from stepscope.model.names import severity_word
from stepscope.model.ports import Writer
from stepscope.model.records import Alert, Event, Histogram, Metric, Summary, Value, word
from stepscope.model.redaction import redact
from stepscope.model.run_description import read_tags
from stepscope.wire.plain import dumps

API = "/api/2.0/mlflow/"
TRACES = "/v1/traces"

MAX_METRICS, MAX_PARAMS, MAX_TAGS = 1000, 100, 100
MAX_BYTES = 900_000
"""The most bytes of a request; the server accepts a million."""
LONGEST_KEY, LONGEST_PARAM, LONGEST_TAG = 250, 6000, 5000

TAG_RUN = "stepscope.run_id"
TAG_ATTEMPT = "stepscope.attempt"
"""The newest attempt; a run without it was created and never used."""
TAG_PRESUMED = "stepscope.presumed_dead"
"""The attempt that died without an exit record, as noticed by another process."""
TAG_CREATOR = "stepscope.creator"
TAG_PROJECT = "stepscope.project"
TAG_HOST = "stepscope.host"
TAG_WORLD_SIZE = "stepscope.world_size"
TAG_GROUP, TAG_JOB_TYPE = "stepscope.group", "stepscope.job_type"
TAG_NOTE, TAG_NAME = "mlflow.note.content", "mlflow.runName"
"""The tags that hold the description and the name of a run for MLflow's page."""
TAG_COMMIT, TAG_BRANCH, TAG_SOURCE = "mlflow.source.git.commit", "mlflow.source.git.branch", "mlflow.source.name"

STATUSES = {"finished": "FINISHED", "preempted": "KILLED", "failed": "FAILED"}
"""MLflow's status for each reported end, mildest first."""

_LEGAL = re.compile(r"[\w\-. :/]+")
_ILLEGAL = re.compile(r"[^\w\-. :/]")
_DIGITS = 6
_MEMO_LIMIT = 20_000
_memo: dict[str, str] = {}


def legal_key(key: str) -> str:
    """Return a valid MLflow key; a changed one ends in a digest, so that keys stay distinct."""
    known = _memo.get(key)
    if known is None:
        known = key if is_legal(key) else _mend(key)
        if len(_memo) < _MEMO_LIMIT:
            _memo[key] = known
    return known


def is_legal(key: str) -> bool:
    """Return whether MLflow accepts a key: its characters, its length, and that it is a normal path."""
    if len(key) > LONGEST_KEY or _LEGAL.fullmatch(key) is None:
        return False
    return posixpath.normpath(key) == key and key != "." and not key.startswith(("..", "/"))


def _mend(key: str) -> str:
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    parts = [part for part in _ILLEGAL.sub("_", key).split("/") if part]
    kept = "/".join("_" * len(part) if part in (".", "..") else part for part in parts)
    if kept.startswith(".."):
        kept = "_" + kept
    return f"{kept[: LONGEST_KEY - _DIGITS - 1]}-{digest}"


def shorten(text: str, longest: int) -> str:
    """Truncate a text that is too long, with an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def run_mark(run: str) -> str:
    """Escape a run id for MLflow's filter language; ids made by `init` need no escaping."""
    return quote(run, safe="")


def params(config: Mapping[str, Any]) -> dict[str, str]:
    """Flatten a config with `/`, with secrets masked and valid keys and values."""
    found: dict[str, str] = {}
    for path, value in _leaves(redact(dict(config)), ""):
        key = legal_key(path)
        while key in found:  # {"a/b": 1, "a": {"b": 2}}
            key = legal_key(f"{key}_")
        found[key] = shorten(_text(value), LONGEST_PARAM)
    return found


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}/{key}" if path else str(key))
    elif path:
        yield path, value


def _text(value: Any) -> str:
    if isinstance(value, (dict, list, tuple)):
        return dumps(value, indent=None)
    return value.hex() if isinstance(value, bytes) else str(value)


def fresh_params(wanted: Mapping[str, str], known: Mapping[str, str], writer: Writer) -> dict[str, str]:
    """The params that MLflow does not have yet. Params cannot be changed, so a new value gets a new key."""
    found: dict[str, str] = {}
    for key, value in wanted.items():
        if key not in known:
            found[key] = value
        elif known[key] != value:
            other = legal_key(f"attempt_{writer.attempt}/rank_{writer.rank}/{key}")
            if other not in known:
                found[other] = value
    return found


def start_tags(writer: Writer, creator: str) -> dict[str, str]:
    """The tags a run is created with, which identify it."""
    return {TAG_RUN: run_mark(writer.run), TAG_CREATOR: creator, TAG_PROJECT: writer.project}


def attempt_tags(writer: Writer) -> dict[str, str]:
    """The tags that a new attempt sets on its run."""
    found = {
        TAG_ATTEMPT: str(writer.attempt),
        TAG_RUN: run_mark(writer.run),
        TAG_WORLD_SIZE: str(writer.world_size),
    }
    return {**found, TAG_HOST: writer.named_host} if writer.named_host else found


def source_tags(started: Mapping[str, Any]) -> dict[str, str]:
    """The program and the commit, for MLflow's page."""
    argv = started.get("argv")
    program = argv[0] if isinstance(argv, (list, tuple)) and argv else None
    pairs = {
        TAG_COMMIT: started.get("git.commit"),
        TAG_BRANCH: started.get("git.branch"),
        TAG_SOURCE: program,
    }
    return {key: shorten(str(value), LONGEST_TAG) for key, value in pairs.items() if value}


def described_tags(description: Mapping[str, Any]) -> dict[str, str]:
    """The description of a run as tags: its tags, notes, group and name.

    A tag that was removed is left as it is: a batch can only set tags.
    """
    pairs = {
        TAG_NOTE: description.get("notes"),
        TAG_NAME: description.get("name"),
        TAG_GROUP: description.get("group"),
        TAG_JOB_TYPE: description.get("job_type"),
    }
    found = {key: value for key, value in pairs.items() if isinstance(value, str)}
    tags = redact(read_tags(description.get("tags")))
    found |= {legal_key(tag): "true" if value is True else str(value) for tag, value in tags.items()}
    return {key: shorten(value, LONGEST_TAG) for key, value in found.items()}


def note_tag(record: Event | Alert) -> tuple[str, str]:
    """The tag that holds the latest event or alert of a name: time, step, severity and text."""
    what = "alert" if isinstance(record, Alert) else "event"
    time = datetime.fromtimestamp(record.time / 1e9, UTC).isoformat(timespec="seconds")
    step = "" if record.step is None else f" step {record.step}"
    description = record.message if isinstance(record, Alert) else record.body
    details = " ".join(
        each
        for each in (
            str(description) if description else "",
            dumps(redact(record.attrs), indent=None) if record.attrs else "",
        )
        if each
    )
    text = f"{severity_word(record.severity)} {time}{step}: {details}".rstrip(": ")
    return legal_key(f"{what}.{record.name}"), shorten(text, LONGEST_TAG)


Point = dict[str, str | int | float]


def points(writer: Writer, record: Metric) -> Iterator[Point]:
    """Yield the points of a record.

    MLflow has no dimensions: what parts two series of ours is appended to the key, the attributes as `/name:value`,
    and any rank but the first as `/rank_N`. A distribution becomes its count, sum, extremes and quantiles.
    """
    ending = _ending(writer, record.attrs)
    time, step = max(record.time // 1_000_000, 0), record.step or 0
    for key, value in record.points():
        if isinstance(value, (bool, int, float)):
            yield {"key": legal_key(key + ending), "value": number(value), "timestamp": time, "step": step}
            continue
        for name, part in _parts(value):
            yield {"key": legal_key(f"{key}/{name}{ending}"), "value": number(part), "timestamp": time, "step": step}


def number(value: bool | int | float) -> float | str:
    """Convert a number for MLflow: non-finite ones are words, those beyond a double are infinite."""
    try:
        return word(float(value))
    except OverflowError:
        return word(math.inf if value > 0 else -math.inf)


def _parts(value: Value) -> Iterator[tuple[str, float]]:
    if isinstance(value, (bool, int, float)):
        return
    yield "count", value.count
    if value.total is not None:
        yield "sum", value.total
    if isinstance(value, Summary):
        for quantile, found in value.quantiles:
            yield f"p{quantile * 100:g}", found
        return
    low, high = value.low, value.high
    if low is not None:
        yield "min", low
    if high is not None:
        yield "max", high
    if isinstance(value, Histogram) and value.count and value.total is not None:
        yield "mean", value.total / value.count


def _ending(writer: Writer, attrs: Mapping[str, Any]) -> str:
    details = "".join(
        f"/{name}:{attrs[name]}"
        for name in sorted(attrs)
        if isinstance(attrs[name], (str, int, float)) and not name.startswith("otel.")
    )
    return f"{details}/rank_{writer.rank}" if writer.rank else details


_encode = msgspec.json.Encoder().encode


class LogBatch(NamedTuple):
    """A body, and the indices of the records it is made of."""

    body: bytes
    where: Sequence[int]


def metric_batches(run: str, found: Sequence[tuple[int, Point]], most_bytes: int = MAX_BYTES) -> list[LogBatch]:
    """Write points, each with the index of its record, in as few bodies as the limits allow."""
    made: list[LogBatch] = []
    for start in range(0, len(found), MAX_METRICS):
        made += _split(run, found[start : start + MAX_METRICS], most_bytes)
    return made


def _split(run: str, found: Sequence[tuple[int, Point]], most_bytes: int) -> Iterator[LogBatch]:
    body = _encode({"run_id": run, "metrics": [point for _, point in found]})
    if len(body) > most_bytes and len(found) > 1:
        middle = len(found) // 2
        yield from _split(run, found[:middle], most_bytes)
        yield from _split(run, found[middle:], most_bytes)
        return
    yield LogBatch(body, sorted({index for index, _ in found}))


def pair_batches(run: str, kind: str, found: Mapping[str, str]) -> list[bytes]:
    """Write params or tags (`kind`), at most a hundred in each body, within the size limit."""
    pairs = [{"key": key, "value": value} for key, value in found.items()]
    made, start = [], 0
    while start < len(pairs):
        size = min(MAX_PARAMS, len(pairs) - start)
        while len(body := _encode({"run_id": run, kind: pairs[start : start + size]})) > MAX_BYTES and size > 1:
            size //= 2
        made.append(body)
        start += size
    return made
