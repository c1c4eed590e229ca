"""One OTLP request, whatever carried it: decode, take what is good, say what is not."""

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import NamedTuple

from msgspec import structs

from stepscope.hub.receivers.entry import Entry, Load, Writers
from stepscope.hub.receivers.repeats import Repeats, digest
from stepscope.hub.security.guard import Access
from stepscope.wire.otlp.decode.bulk import bound_values
from stepscope.wire.otlp.decode.request import decode
from stepscope.wire.otlp.names import HEADER_EXPERIMENT, HEADER_RUN, SIGNALS, Encoding, Signal
from stepscope.wire.otlp.refusals import BadRequest, Rejections

NO_RECORDED_VALUE = "a point without a recorded value"


class Taken(NamedTuple):
    """A request that could be read: when it is safe, and what of it was refused."""

    safe: "Future[None]"
    rejections: Rejections


class OtlpReceiver:
    """Takes export requests of all signals. Safe to use from any thread."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._writers = Writers()
        self._repeats: Repeats[Taken] = Repeats()

    def take(
        self, signal: Signal, encoding: Encoding, data: bytes, headers: Mapping[str, str], access: Access
    ) -> Taken:
        """Decode a request and hand it on; BadRequest when it cannot be read.

        One that came before is answered as then, and not taken again: its client lost the answer.
        """
        who = access.token.id if access.token is not None else ""
        said = (headers.get(HEADER_RUN, ""), headers.get(HEADER_EXPERIMENT, ""))
        key = digest((signal, encoding, who, *said), data)
        if (known := self._repeats.find(key)) is not None:
            self._entry.repeat()
            return known
        clock = _Clock()
        taken = self._take(signal, encoding, data, headers, access, clock)
        if not clock.asked:
            self._repeats.keep(key, taken)
            taken.safe.add_done_callback(lambda done: self._settle(key, done, taken.rejections))
        return taken

    def _settle(self, key: bytes, done: "Future[None]", rejections: Rejections) -> None:
        """Remember of a request that is safe no more than what was refused; of one that is not, nothing."""
        if done.cancelled() or done.exception() is not None:
            self._repeats.forget(key)
        else:
            self._repeats.keep(key, Taken(_SAFE, rejections if rejections.message else _NOTHING[rejections.signal]))

    def _take(
        self,
        signal: Signal,
        encoding: Encoding,
        data: bytes,
        headers: Mapping[str, str],
        access: Access,
        clock: "_Clock",
    ) -> Taken:
        try:
            if encoding == "json":
                bound_values(data)
            decoded = decode(signal, encoding, data, headers, clock)
        except BadRequest:
            self._entry.reject("unreadable request")
            raise
        load = Load()
        for origin, records in decoded.groups:
            writer = self._writers.same(origin.writer(), records)
            if access.project is not None:
                writer = structs.replace(writer, project=access.project)
            self._entry.add(load, writer, records, access.project)
        rejections = decoded.rejections
        for reason, count in rejections.reasons.items():
            self._entry.reject(reason, count)
        load.cut.update(rejections.warnings)
        load.cut[NO_RECORDED_VALUE] += decoded.gaps
        safe = self._entry.hand_over(load)
        for reason, count in (+load.rejected).items():
            rejections.add(reason, count=count)
        return Taken(safe, rejections)


class _Clock:
    """The time, for items that have none; two requests of such items may be alike and yet not the same."""

    asked = False

    def __call__(self) -> int:
        self.asked = True
        return time.time_ns()


_SAFE: "Future[None]" = Future()
_SAFE.set_result(None)
_NOTHING = {signal: Rejections(signal) for signal in SIGNALS}
