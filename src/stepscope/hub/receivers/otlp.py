"""One OTLP request, whatever carried it: decode, take what is good, say what is not."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import NamedTuple

from msgspec import structs

from stepscope.hub.receivers.entry import Entry, Load, Writers
from stepscope.hub.security.guard import Access
from stepscope.wire.otlp.decode.request import decode
from stepscope.wire.otlp.names import Encoding, Signal
from stepscope.wire.otlp.refusals import BadRequest, Rejections


class Taken(NamedTuple):
    """A request that could be read: when it is safe, and what of it was refused."""

    safe: "Future[None]"
    rejections: Rejections


class OtlpReceiver:
    """Takes export requests of all signals. Safe to use from any thread."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._writers = Writers()

    def take(
        self, signal: Signal, encoding: Encoding, data: bytes, headers: Mapping[str, str], access: Access
    ) -> Taken:
        """Decode a request and hand it on; BadRequest when it cannot be read."""
        try:
            decoded = decode(signal, encoding, data, headers)
        except BadRequest:
            self._entry.reject("unreadable request")
            raise
        load = Load()
        for origin, records in decoded.groups:
            writer = self._writers.same(origin.writer())
            if access.project is not None:
                writer = structs.replace(writer, project=access.project)
            self._entry.add(load, writer, records, access.project)
        rejections = decoded.rejections
        for reason, count in rejections.reasons.items():
            self._entry.reject(reason, count)
        safe = self._entry.hand_over(load)
        for reason, count in (+load.rejected).items():
            rejections.add(reason, count=count)
        return Taken(safe, rejections)
