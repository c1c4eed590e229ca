"""Masking of records by the flusher, before they are written: calls only mark what may hold a secret."""

from typing import Any

from msgspec import msgpack

from stepscope.model.names import SCOPE_SAMPLES
from stepscope.model.records import LOG, SPAN, Alert, Event, Log, Metric, Span
from stepscope.model.redaction import is_secret, mask_data, redact
from stepscope.sdk.attributes import LONGEST_PLAIN, MAX_HARMLESS, NUMBERS, harmless, plain_texts
from stepscope.sdk.context import pack_any

_KINDS = (Metric, Span, Log, Event, Alert)
_TEXTS = ("name", "message", "body", "scope", "attrs")
_PLACES = {
    int(kind.__struct_config__.tag or 0): tuple(
        1 + kind.__struct_fields__.index(field) for field in _TEXTS if field in kind.__struct_fields__
    )
    for kind in _KINDS
}
"""Where the texts of each kind of record are."""
_SCOPE, _ATTRS = (1 + Log.__struct_fields__.index(field) for field in ("scope", "attrs"))
_EVENTS, _LINKS = (1 + Span.__struct_fields__.index(field) for field in ("events", "links"))
_decode = msgpack.Decoder().decode
_encode = msgpack.Encoder().encode


class Unmasked(bytes):
    """A packed record whose texts may hold secrets."""

    __slots__ = ()


class Unpacked(bytes):
    """The head of a row of a table, whose values nobody else changes: the flusher packs them, and masks their secrets.

    It has the kind of a record, as a packed one has, and the length that its values take in memory.
    """

    fields: tuple[Any, ...]
    size: int

    def __len__(self) -> int:
        return self.size


MASKED_LATER: frozenset[type[bytes]] = frozenset((Unmasked, Unpacked))
"""What the flusher masks before it is written."""
_ROW = bytes((0x91 + _SCOPE, LOG))
"""The head of a log record with all fields up to its scope."""


def unpacked(fields: tuple[Any, ...], size: int) -> Unpacked:
    """Keep the fields of a log record of samples, which take so many bytes, until the flusher packs them."""
    row = Unpacked(_ROW)
    row.fields, row.size = fields, size
    return row


def mask_record(packed: bytes) -> bytes:
    """Mask the secrets in a packed record. Names and texts without any are remembered, so that later records that
    have no others need not be marked.
    """
    if type(packed) is Unpacked:
        fields = packed.fields
        return pack_any((*fields[:_ATTRS], redact(fields[_ATTRS], mask_data), *fields[_ATTRS + 1 :]))
    fields = _decode(packed)
    kind = fields[0]
    if kind == LOG and len(fields) > _SCOPE and fields[_SCOPE] == SCOPE_SAMPLES:
        fields[_ATTRS] = redact(fields[_ATTRS], mask_data)
        return _encode(fields)
    for place in _PLACES[kind]:
        if place < len(fields):
            fields[place] = _masked(fields[place])
    if kind == SPAN and len(fields) > _LINKS:
        for each in (*fields[_EVENTS], *fields[_LINKS]):
            each[1:] = [_masked(inner) if type(inner) is not bytes else inner for inner in each[1:]]
    return _encode(fields)


def _masked(value: Any) -> Any:
    if type(value) is dict:
        return dict(_masked_item(key, inner) for key, inner in value.items())
    return _masked_text(value) if type(value) is str else redact(value)


def _masked_item(key: str, value: Any) -> tuple[Any, Any]:
    """Mask one attribute; most have a known key, and a number or a known text."""
    kind = type(value)
    if key in harmless:
        return key, value if kind in NUMBERS else _masked_text(value) if kind is str else redact(value)
    ((safe, inner),) = redact({key: value}).items()
    if not is_secret(key):
        _learn(harmless, key, safe)
        if kind is str:
            _learn(plain_texts, value, inner)
    return safe, inner


def _masked_text(text: str) -> Any:
    if text in plain_texts:
        return text
    safe = redact(text)
    _learn(plain_texts, text, safe)
    return safe


def _learn(known: set[str], text: str, safe: Any) -> None:
    if len(text) <= LONGEST_PLAIN and text == safe and len(known) < MAX_HARMLESS:
        known.add(text)
