"""One OTLP request as the hub takes it: the first byte tells the signal, the rest is the body."""

from collections.abc import Iterator

from stepscope.dialects.otlp.receiver import OtlpReceiver, guess_signal
from stepscope.hub.security.guard import Access
from stepscope.wire.otlp.encode.encode_request import encode
from stepscope.wire.otlp.names import SIGNALS, Encoding, Signal
from stepscope.wire.otlp.replies import BadRequest, write_reply
from tests.fuzz.hub_path import HubPath
from tests.fuzz.records import WRITER, every_kind


def receive(encoding: Encoding, data: bytes) -> None:
    """Take a request; what it holds is stored, refused item by item, or refused as a whole."""
    if not data:
        return
    body = data[1:]
    signal = SIGNALS[data[0]] if data[0] < len(SIGNALS) else guess_signal(encoding, body)
    path = HubPath()
    try:
        taken = OtlpReceiver(path.entry).take(signal, encoding, body, {}, Access())
    except BadRequest as error:
        str(error).encode()
        return
    write_reply(encoding, taken.rejections)
    path.finish()


def requests() -> Iterator[tuple[Signal, bytes]]:
    """Requests that our own encoder makes, of every kind of record, in protobuf."""
    for records in every_kind():
        for request in encode([(WRITER, records)]).requests:
            yield request.signal, request.body


def marked(signal: Signal, body: bytes) -> bytes:
    """Put the byte in front that tells the signal."""
    return bytes([SIGNALS.index(signal)]) + body
