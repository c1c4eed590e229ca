"""Requests of Datadog's HTTP intake as items: series, distribution points, events, service checks and logs."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from stepscope.dialects.datadog.wire.dogstatsd_lines import Malformed, distinct, split_tags
from stepscope.dialects.datadog.wire.items import ALERT_TYPES, LONGEST, Check, Item, LogLine, Notice, Point, PointType
from stepscope.model.names import ATTR_RANK, ATTR_RUN_ID, STEP_ALIASES

NOT_JSON = "the body is not JSON"
MAX_VALUES = 2_500_000
"""Values of a body; an empty object takes thirty times its bytes in memory."""
BAD_SERIES = "a series that is not an object with a metric and points"
BAD_POINT = "a point that is not a time and a number"
BAD_EVENT = "an event without a title and a text"
BAD_CHECK = "a check without a name, or with an unknown status"
BAD_LOG = "a log that is not an object or a text"
_LATEST = 2**63 - 1
_MILLISECOND, _SECOND = 1_000_000, 1_000_000_000
_SERIES_TYPES: dict[Any, PointType] = {"count": "c", "counter": "c", 1: "c"}
_LOG_FIELDS = frozenset(("message", "msg", "status", "level", "severity", "timestamp", "ddtags", "hostname", "service"))
_LOG_PLACES = (ATTR_RUN_ID, ATTR_RANK, "run_id", *STEP_ALIASES)
"""Attributes of a log that say more about where it belongs than about what happened."""
Clock = Callable[[], int]


class BadBody(ValueError):
    """A body of which nothing can be taken."""


@dataclass(slots=True)
class Reading:
    """The items of a request, and how many were refused, by reason."""

    items: list[Item] = field(default_factory=list)
    refused: "Counter[str]" = field(default_factory=Counter)


def read_json(data: bytes) -> Any:
    """Read a body; bare NaN and Infinity are understood, for Python's own encoder writes them."""
    if len(data) > MAX_VALUES and data.count(b",") + data.count(b"{") + data.count(b"[") > MAX_VALUES:
        raise BadBody(f"more than {MAX_VALUES} values in one body: send smaller requests")
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        pass  # Python's parser takes more
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise BadBody(NOT_JSON) from None


def read_series(body: Any) -> Reading:
    """Read the series of both versions: points are pairs in the first, objects in the second."""
    found = Reading()
    for series in _series(body, found):
        kind = series.get("type", series.get("metric_type"))
        point = _point(series, _SERIES_TYPES.get(kind if isinstance(kind, (str, int)) else None, "g"), found)
        if point is None:
            continue
        for pair in series["points"]:
            at, value = _pair(pair)
            number = _number(value)
            if at is None or number is None or (point.type == "c" and not math.isfinite(number)):
                found.refused[BAD_POINT] += 1
            else:
                found.items.append(point._replace(value=number, time=at))
    return found


def read_distributions(body: Any) -> Reading:
    """Read distribution points: at each time a list of samples."""
    found = Reading()
    for series in _series(body, found):
        point = _point(series, "d", found)
        if point is None:
            continue
        for pair in series["points"]:
            at, values = _pair(pair)
            if at is None or not isinstance(values, list):
                found.refused[BAD_POINT] += 1
                continue
            for value in values:
                number = _number(value)
                if number is None:
                    found.refused[BAD_POINT] += 1
                else:
                    found.items.append(point._replace(value=number, time=at))
    return found


def _series(body: Any, found: Reading) -> Iterator[dict[str, Any]]:
    listed = body.get("series") if isinstance(body, dict) else None
    if not isinstance(listed, list):
        raise BadBody('the body is not an object with a list "series"')
    for series in listed:
        name = series.get("metric") if isinstance(series, dict) else None
        if isinstance(name, str) and 0 < len(name) <= LONGEST and isinstance(series.get("points"), list):
            yield series
        else:
            found.refused[BAD_SERIES] += 1


def _point(series: dict[str, Any], kind: PointType, found: Reading) -> Point | None:
    """Read what the points of a series share; None when its tags are refused."""
    host = series.get("host")
    listed = series.get("resources")
    for resource in listed if isinstance(listed, list) else ():
        if isinstance(resource, dict) and resource.get("type") == "host" and not host:
            host = resource.get("name")
    try:
        tags = read_tags(series.get("tags"))
    except Malformed as error:
        found.refused[str(error)] += len(series["points"])
        return None
    return Point(0, kind, text(series["metric"]), 0.0, tags, 0, text(host))


def _pair(point: Any) -> tuple[int | None, Any]:
    if isinstance(point, dict):
        return _time(point.get("timestamp"), _SECOND), point.get("value")
    if isinstance(point, list) and len(point) == 2:
        return _time(point[0], _SECOND), point[1]
    return None, None


def _time(value: Any, unit: int) -> int | None:
    """Read a time in units of nanoseconds; None when it is out of range."""
    number = _number(value)
    if number is None or not 0 < number <= _LATEST / unit:
        return None
    return min(int(number * unit), _LATEST)


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and len(value) < 64 and "_" not in value:
        try:
            value = float(value)
        except ValueError:
            return None
    return value if isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63) else None


def text(value: Any) -> str:
    """Read a text, or the text of a number; half a surrogate pair becomes a question mark."""
    if not isinstance(value, str):
        return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def read_tags(value: Any) -> tuple[str, ...]:
    """Read tags given as a list or as one text with commas; Malformed when there are too many."""
    if isinstance(value, str):
        return split_tags(text(value))
    return distinct(map(text, value)) if isinstance(value, list) else ()


def read_event(body: Any, clock: Clock) -> Notice:
    """Read the one event of a request; BadBody when it is invalid."""
    if not isinstance(body, dict) or not isinstance(body.get("title"), str) or not isinstance(body.get("text"), str):
        raise BadBody(BAD_EVENT)
    try:
        tags = read_tags(body.get("tags"))
    except Malformed as error:
        raise BadBody(str(error)) from None
    kind = body.get("alert_type")
    return Notice(
        0,
        text(body["title"]),
        text(body["text"]),
        kind if isinstance(kind, str) and kind in ALERT_TYPES else "info",
        tags,
        _time(body.get("date_happened"), _SECOND) or clock(),
        text(body.get("host")),
        text(body.get("aggregation_key")),
        text(body.get("priority")),
        text(body.get("source_type_name")),
    )


def read_checks(body: Any, clock: Clock) -> Reading:
    """Read service checks: a list, or one alone as the official client sends it."""
    found = Reading()
    if not isinstance(body, (dict, list)):
        raise BadBody("the body is not a service check or a list of them")
    for check in body if isinstance(body, list) else [body]:
        name = text(check.get("check")) if isinstance(check, dict) else ""
        status = check.get("status") if isinstance(check, dict) else None
        if not name or type(status) is not int or not 0 <= status <= 3:
            found.refused[BAD_CHECK] += 1
            continue
        try:
            tags = read_tags(check.get("tags"))
        except Malformed as error:
            found.refused[str(error)] += 1
            continue
        at, host = _time(check.get("timestamp"), _SECOND) or clock(), text(check.get("host_name"))
        found.items.append(Check(0, name[:LONGEST], status, text(check.get("message")), tags, at, host))
    return found


def read_logs(body: Any, parameters: Mapping[str, str], clock: Clock) -> Reading:
    """Read logs: a list of objects or texts, or one alone; `parameters` are those of the query string."""
    found = Reading()
    if not isinstance(body, (dict, list, str)):
        raise BadBody("the body is not a log or a list of them")
    try:
        shared = split_tags(parameters.get("ddtags", ""))
    except Malformed as error:
        raise BadBody(str(error)) from None
    for log in body if isinstance(body, list) else [body]:
        if isinstance(log, str):
            log = {"message": log}
        if not isinstance(log, dict):
            found.refused[BAD_LOG] += 1
            continue
        try:
            found.items.append(_log(log, parameters, shared, clock))
        except Malformed as error:
            found.refused[str(error)] += 1
    return found


def _log(log: dict[str, Any], parameters: Mapping[str, str], shared: tuple[str, ...], clock: Clock) -> LogLine:
    attrs = {text(key): value for key, value in log.items() if key not in _LOG_FIELDS}
    attrs |= {"ddsource": parameters["ddsource"]} if parameters.get("ddsource") and "ddsource" not in attrs else {}
    message = log.get("message", log.get("msg"))
    status = next((log[key] for key in ("status", "level", "severity") if isinstance(log.get(key), str)), "info")
    service = text(log.get("service")) or parameters.get("service", "")
    tags = read_tags(log.get("ddtags")) + shared
    tags += tuple(f"{key}:{text(attrs.pop(key))}" for key in _LOG_PLACES if text(attrs.get(key)))
    at = _log_time(log.get("timestamp")) or clock()
    host = text(log.get("hostname")) or parameters.get("hostname", "")
    if isinstance(message, (dict, list)):
        attrs["message"] = message
    return LogLine(0, text(message), status, attrs, tags, at, host, service)


def _log_time(value: Any) -> int | None:
    """Read milliseconds, or a date as ISO 8601 writes it."""
    if isinstance(value, str) and not value.isdigit():
        try:
            date = datetime.fromisoformat(value)
            return _time((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1000, _MILLISECOND)
        except (ValueError, OverflowError):
            return None
    return _time(value, _MILLISECOND)
