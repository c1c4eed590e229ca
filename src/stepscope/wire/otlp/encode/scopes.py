"""Instrumentation scopes to protobuf: their fields and attributes, taken from the records made in them."""

from functools import lru_cache

from stepscope.model.records import Attrs
from stepscope.wire.otlp.encode.attributes import Pairs
from stepscope.wire.otlp.fields import MASK, delimited, text, varint
from stepscope.wire.otlp.names import ATTR_SCOPE, ATTR_TRACE_STATE

_ATTRS = Pairs(b"\x1a")
_MOST = 4096
_plain: set[str] = set()
"""Names of attributes that stand for no field, for the same ones come again and again."""


def are_plain(attrs: Attrs) -> bool:
    """Tell whether no attribute stands for a field of the record or of its scope."""
    if _plain.issuperset(attrs):
        return True
    if any(key.startswith("otel.") or key == ATTR_TRACE_STATE for key in attrs):
        return False
    if len(_plain) >= _MOST:
        _plain.clear()
    _plain.update(attrs)
    return True


def write_scope(name: str, attrs: Attrs) -> tuple[bytes, Attrs]:
    """Write the scope of a record with its schema URL, ready to stand in front of the scope's items.

    Also return the attributes of the record that are not the scope's: the same dict where none stands for a field.
    """
    if are_plain(attrs):
        return _named(name), attrs
    own = {key: value for key, value in attrs.items() if not key.startswith(ATTR_SCOPE)}
    said = {key.removeprefix(ATTR_SCOPE): value for key, value in attrs.items() if key not in own}
    fields = {field: said.pop(field) for field in ("name", "version", "schema_url") if type(said.get(field)) is str}
    dropped = said.pop("dropped_attributes_count") if type(said.get("dropped_attributes_count")) is int else 0
    inside = (
        text(b"\x0a", name or fields.get("name", "")) + text(b"\x12", fields.get("version", "")) + _ATTRS.write(said)
    )
    if dropped:
        inside += b"\x20" + varint(dropped & MASK)
    return (delimited(b"\x0a", inside) if inside else b"") + text(b"\x1a", fields.get("schema_url", "")), own


@lru_cache(maxsize=1024)
def _named(name: str) -> bytes:
    return delimited(b"\x0a", text(b"\x0a", name)) if name else b""
