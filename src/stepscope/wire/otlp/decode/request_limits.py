"""Limits on the content of a request, checked before it is parsed: empty messages grow thirtyfold in memory."""

from stepscope.wire.otlp.replies import BadRequest

MAX_GROUPS = 20_000
"""Resources and scopes of one request; each costs as much time as ten items."""
MOST = 500_000
"""Resources, scopes, items and data points of one request; our own encoder makes a tenth of it at most."""
MAX_ATTRIBUTES = 1_000_000
"""Attributes of one request, those of events, links and exemplars and the values inside others included."""
MAX_VALUES = 2_500_000
"""Values of a JSON document, in whatever place."""


class Counts:
    """What was found so far; BadRequest when it is too much."""

    def __init__(self) -> None:
        self._left = {"group": MAX_GROUPS, "item": MOST, "attribute": MAX_ATTRIBUTES}

    def add(self, kind: str, count: int = 1) -> None:
        """Count some of one kind."""
        left = self._left[kind] = self._left[kind] - count
        if left < 0:
            most = {"group": MAX_GROUPS, "item": MOST, "attribute": MAX_ATTRIBUTES}[kind]
            words = {"group": "resources and scopes", "item": "items", "attribute": "attributes"}[kind]
            raise BadRequest(f"more than {most} {words} in one request: send smaller batches")


def bound_values(data: bytes, most: int = MAX_VALUES) -> None:
    """Reject JSON with too many values before it is parsed; commas and braces inside texts count, too."""
    if len(data) > most and data.count(b",") + data.count(b"{") + data.count(b"[") > most:
        raise BadRequest(f"more than {most} values in one document: send smaller requests")
