"""Validation by MLflow's rules: names, lengths, batch sizes and metric values."""

import math
import posixpath
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from stepscope.dialects.mlflow.receiver.errors import invalid_value, missing_value, refused, wrong_type
from stepscope.dialects.mlflow.receiver.request_fields import Fields, item_key, item_text, step_number, whole_number
from stepscope.extend.receiver import Refused
from stepscope.model.records import FIRST_STEP
from stepscope.model.redaction import redact

MAX_METRICS, MAX_PARAMS, MAX_TAGS, MAX_ITEMS = 1000, 100, 100, 1000
LONGEST_KEY, LONGEST_PARAM, LONGEST_TAG = 250, 6000, 8000
LONGEST_EXPERIMENT, LONGEST_EXPERIMENT_TAG = 500, 20_000
_FAR = 2**63
_NAME = re.compile(r"[/\w.\- :]*")
_RUN = re.compile(r"[a-zA-Z0-9][\w\-]{0,255}")
_LETTERS = (
    "Names may only contain alphanumerics, underscores (_), dashes (-), periods (.), spaces ( ), colon(:) "
    "and slashes (/)."
)


_SENT = {"model": "model_id", "dataset": "dataset_name", "digest": "dataset_digest"}


class Point(msgspec.Struct, frozen=True, gc=False, rename=_SENT):
    """One value of a metric."""

    key: str
    value: float
    timestamp: int
    step: int = 0
    model: str = ""
    dataset: str = ""
    digest: str = ""


class LogBatch(NamedTuple):
    """The content of a log request; `read_as_nan` counts values sent as null or a bare token, which are read as NaN."""

    points: Sequence[Point]
    params: Mapping[str, str]
    tags: Mapping[str, str]
    read_as_nan: int = 0


def check_name(name: str, path: str) -> None:
    """Refuse a key with invalid characters, or one that is not a normalized path."""
    if _NAME.fullmatch(name) is None:
        raise invalid_value(path, name, _LETTERS)
    check_path(name, path)


def check_path(name: str, path: str) -> None:
    """Refuse a name that is not a normalized path."""
    plain = posixpath.normpath(name)
    if plain != name or plain == "." or plain.startswith(("..", "/")):
        raise invalid_value(
            path,
            name,
            "Names may be treated as files in certain cases, and must not resolve to other names when treated as such. "
            f"This name would resolve to {plain!r}",
        )


def check_run_id(run: str) -> None:
    """Refuse an invalid run id."""
    if _RUN.fullmatch(run) is None:
        raise invalid_value("run_id", run)


def check_length(what: str, longest: int, text: str) -> None:
    """Refuse a text that is too long."""
    if len(text) > longest:
        raise refused(f"'{what}' exceeds the maximum length of {longest} characters")


def check_experiment_name(name: str) -> None:
    """Refuse an empty or too long experiment name."""
    if not name:
        raise refused(f"Invalid experiment name: '{name}'")
    check_length("name", LONGEST_EXPERIMENT, name)


def check_experiment_tag(key: str, value: str) -> None:
    """Refuse an invalid experiment tag."""
    check_name(key, "key")
    check_length("key", LONGEST_KEY, key)
    check_length("value", LONGEST_EXPERIMENT_TAG, value)


def checked_param(key: str, value: str, path: str = "") -> tuple[str, str]:
    """Return a valid param: a long value is truncated, as in MLflow, and secrets are masked."""
    check_name(key, _joined(path, "key"))
    check_length("Param key", LONGEST_KEY, key)
    return key, masked(key, value[:LONGEST_PARAM])


def checked_tag(key: str, value: str, path: str = "") -> tuple[str, str]:
    """Return a valid tag: a long value is truncated, as in MLflow, and secrets are masked."""
    check_name(key, _joined(path, "key"))
    check_length(_joined(path, "key"), LONGEST_KEY, key)
    return key, masked(key, value[:LONGEST_TAG])


def read_pairs(fields: Fields, kind: str = "tags") -> dict[str, str]:
    """Return the initial tags or params of an experiment, run or model, with secrets masked."""
    return {
        key: masked(key, item_text(item, "value", f"{kind}[{at}]"))
        for at, item in enumerate(fields.items(kind))
        if (key := item_text(item, "key", f"{kind}[{at}]"))
    }


def masked(key: str, value: str) -> str:
    """Return the value of a pair with secrets masked."""
    return str(redact({key: value})[key])


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def read_batch(fields: Fields) -> tuple[str, LogBatch]:
    """Parse `runs/log-batch` into a run id and its content; the first error refuses the whole request."""
    run = fields.run()
    metrics, params, tags = fields.items("metrics"), fields.items("params"), fields.items("tags")
    plain = _plain_points(metrics)
    for at, item in enumerate(metrics if plain is None else ()):
        item_key(item, f"metrics[{at}]")
        _check_given(item, f"metrics[{at}]")
    keys = [item_key(item, f"params[{at}]") for at, item in enumerate(params)]
    names = [item_key(item, f"tags[{at}]") for at, item in enumerate(tags)]
    check_run_id(run)
    if plain is None:
        found = [_read_point(item, f"metrics[{at}]") for at, item in enumerate(metrics)]
        plain, read_as_nan = [point for point, _ in found], sum(read_as_nan for _, read_as_nan in found)
    else:
        read_as_nan = 0
    batch = LogBatch(
        plain,
        dict(
            checked_param(key, item_text(item, "value", f"params[{at}]"), f"params[{at}]")
            for at, (key, item) in enumerate(zip(keys, params, strict=True))
        ),
        dict(
            checked_tag(key, item_text(item, "value", f"tags[{at}]"), f"tags[{at}]")
            for at, (key, item) in enumerate(zip(names, tags, strict=True))
        ),
        read_as_nan,
    )
    _check_limits(len(metrics), len(params), len(tags))
    repeated = [key for at, key in enumerate(keys) if key in keys[:at]]
    if repeated:
        raise refused(
            f"Duplicate parameter keys have been submitted: {repeated}. Please ensure the request contains only one "
            "param value per param key."
        )
    return run, batch


def _plain_points(items: Sequence[Mapping[str, Any]]) -> list[Point] | None:
    """Return the values of a batch of the usual form, all fields checked at once; None for any other form."""
    try:
        points = msgspec.convert(items, list[Point])
    except (msgspec.ValidationError, UnicodeEncodeError):  # a lone surrogate, which UTF-8 cannot encode
        return None
    are_plain = [
        _is_plain_key(point.key) and point.value == point.value and 0 <= point.timestamp < _FAR
        and FIRST_STEP <= point.step < _FAR and bool(point.dataset) == bool(point.digest)
        for point in points
    ]  # fmt: skip
    return points if all(are_plain) else None


@lru_cache(maxsize=10_000)
def _is_plain_key(key: str) -> bool:
    """Return whether the key of a metric needs no change and is valid."""
    try:
        check_name(key, "")
    except Refused:
        return False
    return key.isascii() and 0 < len(key) <= LONGEST_KEY


def _check_limits(metrics: int, params: int, tags: int) -> None:
    for what, most, count in (
        ("metrics", MAX_METRICS, metrics),
        ("params", MAX_PARAMS, params),
        ("tags", MAX_TAGS, tags),
        ("metrics, params, and tags", MAX_ITEMS, metrics + params + tags),
    ):
        if count > most:
            raise refused(
                f"A batch logging request can contain at most {most} {what}. Got {count} {what}. "
                f"Please split up {what} across multiple requests and try again."
            )


def read_point(fields: Fields) -> tuple[str, LogBatch]:
    """Parse `runs/log-metric` into a run id and one value."""
    run = fields.run()
    values = fields.values
    fields.required("key")
    _check_given(values, "")
    point, read_as_nan = _read_point(values, "")
    return run, LogBatch([point], {}, {}, read_as_nan)


def _check_given(item: Mapping[str, Any], path: str) -> None:
    """Refuse a missing value; null is read as NaN, since JSON cannot express it."""
    if "value" not in item or item["value"] == "":
        raise missing_value(_joined(path, "value"))
    if item.get("timestamp") in (None, ""):
        raise missing_value(_joined(path, "timestamp"))


def _read_point(item: Mapping[str, Any], path: str) -> tuple[Point, bool]:
    key = item_text(item, "key", path) if path else str(item["key"])
    value, read_as_nan = _number(item["value"], _joined(path, "value"))
    timestamp = whole_number(_joined(path, "timestamp"), item["timestamp"])
    step = step_number(_joined(path, "step"), item.get("step"))
    if step < FIRST_STEP:
        raise invalid_value(_joined(path, "step"), step)
    check_name(key, _joined(path, "name"))
    if timestamp < 0:
        why = f"metric '{key}' (value={value}). Timestamp must be a nonnegative long (64-bit integer) "
        raise invalid_value(_joined(path, "timestamp"), timestamp, why)
    check_length("Metric name", LONGEST_KEY, key)
    about = [item_text(item, name, path) for name in ("model_id", "dataset_name", "dataset_digest")]
    if bool(about[1]) != bool(about[2]):
        raise refused("Both dataset_name and dataset_digest must be provided if one is provided")
    return Point(key, value, timestamp, step, *about), read_as_nan


def _number(value: Any, path: str) -> tuple[float, bool]:
    """Return a float, and whether it was sent as null or a bare token and read as NaN."""
    if type(value) is float:
        return value, math.isnan(value)
    if value is None:
        return math.nan, True
    if isinstance(value, (int, str)):
        try:
            return float(value), False
        except OverflowError:
            return (math.inf if int(value) > 0 else -math.inf), False
        except ValueError:
            pass
    raise wrong_type(path, value)
