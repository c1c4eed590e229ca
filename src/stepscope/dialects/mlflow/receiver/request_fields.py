"""Typed access to the fields of a request, from its JSON body or query string, with MLflow's error messages."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec

from stepscope.dialects.mlflow.receiver.errors import missing_value, refused, wrong_type

_MOST = 2**63


def read_json(data: bytes) -> dict[str, Any]:
    """Parse a body as MLflow does: invalid JSON counts as empty, and JSON in a string is parsed again.

    Bare NaN and Infinity are accepted; lone surrogates, which UTF-8 cannot encode, are replaced.
    """
    if not data:
        return {}
    try:
        found = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        found = _read_loosely(data)
    if isinstance(found, str):
        found = _read_loosely(found.encode("utf-8", "replace"))
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise refused(f"the body must be a JSON object, got {type(found).__name__}")
    return found


def _read_loosely(data: bytes) -> Any:
    try:
        text = json.dumps(json.loads(data), ensure_ascii=False)
        return json.loads(text.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def read_query(query: str) -> dict[str, Any]:
    """Parse a query string; each field is a list of its values."""
    try:
        return dict(parse_qs(query, keep_blank_values=True, max_num_fields=2000))
    except ValueError:
        raise refused("the query has too many fields") from None


class Fields:
    """The fields of one request; `values` come from a body, or as lists of strings from a query."""

    def __init__(self, values: Mapping[str, Any], *, query: bool = False) -> None:
        self.values = values
        self.is_query = query

    def _get(self, name: str) -> Any:
        found = self.values.get(name)
        return found[0] if self.is_query and found else found

    def text(self, name: str) -> str:
        """Return a string; empty when it is missing."""
        found = self._get(name)
        if found is not None and not isinstance(found, str):
            raise wrong_type(name, found)
        return found or ""

    def required(self, name: str) -> str:
        """Return a string that must not be missing or empty."""
        found = self.text(name)
        if not found:
            raise missing_value(name)
        return found

    def optional_text(self, name: str) -> str | None:
        """Return a string; None when it is missing."""
        return None if self._get(name) is None else self.text(name)

    def run(self) -> str:
        """Return the run id, from `run_id` or the deprecated `run_uuid`."""
        if self._get("run_id") is None and self._get("run_uuid") is not None:
            return self.required("run_uuid")
        return self.required("run_id")

    def whole(self, name: str) -> int | None:
        """Return an int64, also from a string or an integral float; None when it is missing."""
        found = self._get(name)
        return None if found is None else whole_number(name, found)

    def items(self, name: str) -> list[dict[str, Any]]:
        """Return a list of objects; empty when it is missing."""
        found = self.values.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            raise wrong_type(name, found)
        for at, item in enumerate(found):
            if not isinstance(item, dict):
                raise wrong_type(f"{name}[{at}]", item)
        return found

    def texts(self, name: str) -> list[str]:
        """Return a list of strings; empty when it is missing."""
        found = self.values.get(name)
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise wrong_type(name, found)
        return list(found)

    def ids(self, name: str) -> list[str]:
        """Return a list of numeric strings, which some clients send as integers."""
        found = self.values.get(name)
        if isinstance(found, list) and any(type(each) is int for each in found):
            return Fields({name: [str(each) if type(each) is int else each for each in found]}).texts(name)
        return self.texts(name)


def whole_number(path: str, value: Any) -> int:
    """Return an int64, also from text such as `7` and `1e2`, or raise Refused."""
    if isinstance(value, str):
        try:
            value = int(value) if value.strip().lstrip("-").isdecimal() else float(value)
        except ValueError:
            raise wrong_type(path, value) from None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(path, value)
    if not -_MOST <= value < _MOST:
        raise wrong_type(path, value)
    return value


def step_number(path: str, value: Any) -> int:
    """Return the step of a metric or model; 0 when it is missing, null, false or empty."""
    return 0 if value in (None, False, "") else whole_number(path, value)


def item_text(item: Mapping[str, Any], name: str, path: str) -> str:
    """Return a string field of a list item; empty when it is missing. A number is converted to a string."""
    found = item.get(name)
    if name == "value" and isinstance(found, (int, float)):
        found = str(found)
    if found is not None and not isinstance(found, str):
        raise wrong_type(f"{path}.{name}" if path else name, found)
    return found or ""


def item_key(item: Mapping[str, Any], path: str) -> str:
    """Return the required key of a list item."""
    if item.get("key") in (None, ""):
        raise missing_value(f"{path}.key")
    return item_text(item, "key", path)
