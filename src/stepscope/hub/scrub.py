"""What is done to records before they are taken: mask secrets, cut long texts, refuse endless keys."""

import threading
from collections import Counter
from typing import Any

from msgspec import structs

from stepscope.hub.limits import Limits
from stepscope.model.records import Attrs, Event, Log, Metric, Record, Span
from stepscope.model.redaction import MASK, is_secret

CUT = "attribute cut"
TOO_MANY = "attribute beyond the limit"
TOO_DEEP = "attribute nested too deep"
TOO_MANY_KEYS = "too many metric keys in one run"
_PLAIN = (int, float, bool, type(None))
_MOST_RUNS = 2_000
_MOST_NAMES = 10_000


class Scrubber:
    """Applies the limits of a hub, from any thread; the attributes of records are changed in place."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._keys: dict[str, set[str]] = {}
        self._lock = threading.Lock()
        self._harmless: set[str] = set()
        """Names of attributes that are no secrets."""

    def mask(self, records: list[Record]) -> list[Record]:
        """Mask and cut without a bound on keys, for records that our own SDK wrote."""
        if {Metric}.issuperset(map(type, records)) and not [True for record in records if record.attrs]:
            return records  # most batches by far
        return self.scrub(None, records, Counter())

    def scrub(self, run: str | None, records: list[Record], lost: "Counter[str]") -> list[Record]:
        """Return the records fit to be kept; what was cut or refused is counted by reason in `lost`."""
        kept: list[Record] = []
        known = self._known(run) if run is not None else None
        for record in records:
            if type(record) is Metric and not record.attrs and (known is None or known.issuperset(record.values)):
                kept.append(record)  # most records by far
                continue
            if record.attrs:
                self.scrub_attrs(record.attrs, lost)
            if isinstance(record, Metric):
                if known is not None and not self._has_room(known, record):
                    lost[TOO_MANY_KEYS] += 1
                    continue
            elif isinstance(record, Span):
                if record.events or record.links:
                    self._scrub_span(record, lost)
            elif isinstance(record, (Log, Event)) and record.body is not None:
                record = self._with_body(record, lost)
            kept.append(record)
        return kept

    def scrub_attrs(self, attrs: Attrs, lost: "Counter[str]") -> None:
        """Mask, cut and bound attributes in place."""
        limits = self._limits
        if self._is_harmless(attrs):
            return
        if len(attrs) > limits.attributes:
            for key in list(attrs)[limits.attributes :]:
                del attrs[key]
                lost[TOO_MANY] += 1
        for key, value in attrs.items():
            if is_secret(key):
                attrs[key] = MASK
            elif type(value) is str:
                if len(value) > limits.text:
                    attrs[key] = value[: limits.text]
                    lost[CUT] += 1
            elif type(value) not in _PLAIN:
                attrs[key] = _bounded(value, limits, lost, limits.depth)

    def _is_harmless(self, attrs: Attrs) -> bool:
        """Tell, quickly, whether attributes are few and short under names known to be no secrets."""
        if len(attrs) > self._limits.attributes or not self._harmless.issuperset(attrs):
            if len(self._harmless) < _MOST_NAMES:
                self._harmless.update([key for key in attrs if not is_secret(key)])
            return False
        most = self._limits.text
        for value in attrs.values():
            if (len(value) > most) if type(value) is str else (type(value) not in _PLAIN):
                return False
        return True

    def _scrub_span(self, span: Span, lost: "Counter[str]") -> None:
        for event in span.events:
            if event.attrs:
                self.scrub_attrs(event.attrs, lost)
        for link in span.links:
            if link.attrs:
                self.scrub_attrs(link.attrs, lost)

    def _with_body(self, record: Log | Event, lost: "Counter[str]") -> Record:
        body = record.body
        if isinstance(body, str):
            if len(body) <= self._limits.long_text:
                return record
            lost[CUT] += 1
            return structs.replace(record, body=body[: self._limits.long_text])
        if type(body) in _PLAIN:
            return record
        return structs.replace(record, body=_bounded(body, self._limits, lost, self._limits.depth))

    def _known(self, run: str) -> set[str]:
        known = self._keys.get(run)
        if known is None:
            with self._lock:
                if len(self._keys) >= _MOST_RUNS:
                    self._keys.clear()
                known = self._keys.setdefault(run, set())
        return known

    def _has_room(self, known: set[str], metric: Metric) -> bool:
        fresh = [key for key in metric.values if key not in known]
        if not fresh:
            return True
        if len(known) + len(fresh) > self._limits.keys:
            return False
        known.update(fresh)
        return True


def _bounded(value: Any, limits: Limits, lost: "Counter[str]", depth: int) -> Any:
    """Mask the secrets of a nested value, cut its long texts, and leave out what lies too deep."""
    if isinstance(value, (dict, list, tuple)):
        if depth == 0:
            lost[TOO_DEEP] += 1
            return None
        if isinstance(value, dict):
            return {
                key: MASK if isinstance(key, str) and is_secret(key) else _bounded(inner, limits, lost, depth - 1)
                for key, inner in value.items()
            }
        return [_bounded(inner, limits, lost, depth - 1) for inner in value]
    if isinstance(value, (str, bytes)) and len(value) > limits.text:
        lost[CUT] += 1
        return value[: limits.text]
    return value
