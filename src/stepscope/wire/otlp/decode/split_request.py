"""A large OTLP/JSON request as several small ones, so that only one of them is in memory as objects."""

from collections.abc import Iterator

import msgspec

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def split_spans(data: bytes, most: int) -> Iterator[bytes]:
    """Split a request of spans into requests of at most `most` spans each; one that cannot be split comes back whole.

    Resource and scope are repeated in each part.
    """
    places = _places(data)
    if places is None:
        yield data
        return
    for resource, scope, spans in places:
        for start in range(0, len(spans), most):
            inner = _with(scope, b"spans", b",".join(spans[start : start + most]))
            yield b'{"resourceSpans":[' + _with(resource, b"scopeSpans", inner) + b"]}"


_Fields = dict[str, msgspec.Raw]
_Place = tuple[_Fields, _Fields, list[msgspec.Raw]]


def _places(data: bytes) -> list[_Place] | None:
    """All scopes of a request with their spans; None when it is not as it should be, and nothing of it is kept."""
    try:
        parts = _elements(_fields(data)["resourceSpans"])
        return [each for part in parts for each in _scopes(_fields(part))]
    except (ValueError, KeyError, RecursionError):
        return None


def _scopes(resource: _Fields) -> Iterator[_Place]:
    """Each scope of a resource with its spans, which are taken out of the fields."""
    for part in _elements(resource.pop("scopeSpans")):
        scope = _fields(part)
        yield resource, scope, _elements(scope.pop("spans"))


def _with(fields: _Fields, name: bytes, elements: bytes) -> bytes:
    """Write an object with its fields and one array more."""
    others = _encode(fields)[1:-1]
    return b"{" + others + (b"," if others else b"") + b'"' + name + b'":[' + elements + b"]}"
