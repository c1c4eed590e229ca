"""User input read safely: mappings, tags and instruments; invalid input is counted as rejected."""

from collections.abc import Iterable, Mapping
from typing import Any

import stepscope
from stepscope.extend import text_of
from stepscope.model.records import Instrument


def reject(what: str, found: object) -> None:
    """Count input as rejected, with its type as the reason; without a run nothing is counted."""
    run = stepscope.current_run()
    if run is not None:
        run.count("rejected", what, type(found).__name__)


def mapping(what: str, given: Any) -> dict[str, Any]:
    """Copy a mapping, its keys as strings; input that is not a readable mapping is counted as rejected."""
    if given is None:
        return {}
    try:
        return {text_of(key): value for key, value in given.items()}
    except Exception:  # not a mapping, or a user's mapping raised
        reject(what, given)
        return {}


GAUGE = Instrument("gauge")
COUNT = Instrument("sum", cumulative=False, monotonic=True)
CHANGE = Instrument("sum", cumulative=False)
HISTOGRAM = Instrument("histogram", cumulative=False)
MILLISECONDS = Instrument("histogram", "ms", cumulative=False)
DISTRIBUTION = Instrument("distribution", cumulative=False)
TIMING = Instrument("timing", "ms", cumulative=False)
SET = Instrument("set", cumulative=False)


def attrs_of(tags: Any) -> dict[str, Any]:
    """Read tags, a mapping or `key:value` strings, as attributes; a repeated key gets a list. Never raises."""
    try:
        return _attrs(tags)
    except Exception as error:  # a user's object raised
        reject("tags", error)
        return {}


def _attrs(tags: Any) -> dict[str, Any]:
    if isinstance(tags, Mapping):
        return {text_of(key): value for key, value in tags.items()}
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        tags = () if tags is None else (tags,)
    found: dict[str, Any] = {}
    for each in tags:
        key, _, value = text_of(each).partition(":")
        if not key:
            continue
        before = found.get(key)
        if before is None or before == value:
            found[key] = value
        elif isinstance(before, list):
            before.append(value)
        else:
            found[key] = [before, value]
    return found
