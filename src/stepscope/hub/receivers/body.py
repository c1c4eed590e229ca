"""A request's body: read whole, then decompressed and worked on by a thread, never on the event loop."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from stepscope.hub.receivers.inflate import ENCODINGS, Broken, TooLarge, inflate
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.security.bodies import MOST, too_large
from stepscope.hub.workers import Workers

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Body:
    """A body as it came."""

    data: bytes
    encoding: str
    most: int

    def unpacked(self) -> bytes:
        """Decompress it; Refused with 400 or 413. This takes time: not on the event loop."""
        try:
            return inflate(self.data, self.encoding, self.most)
        except TooLarge:
            raise Refused(too_large(self.most)) from None
        except Broken as error:
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, str(error))) from None


async def read_body(request: Request) -> Body:
    """Read a body; Refused with 400, 408, 413, 415 or 503."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    try:
        data = await request.body()
    except ClientDisconnect:
        raise Refused(Refusal(HTTPStatus.BAD_REQUEST, "the body was cut off")) from None
    if encoding not in ("", "x-gzip", *ENCODINGS):
        text = f"the Content-Encoding {encoding[:40]!r} is not known; known are {', '.join(ENCODINGS)}"
        raise Refused(Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text))
    return Body(data, encoding, request.scope[MOST])


async def with_body(request: Request, workers: Workers, work: Callable[[bytes], Result]) -> Result:
    """Read a body and run `work` on it on a thread.

    It is decompressed by the thread that works on it, so that no more bodies than threads are unpacked at a time.
    """
    body = await read_body(request)
    return await workers.run(lambda: work(body.unpacked()))
