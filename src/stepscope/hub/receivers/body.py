"""A request's body: read whole, decompressed, and never more of it than the limit."""

import asyncio
from concurrent.futures import Executor
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request

from stepscope.hub.receivers.inflate import ENCODINGS, Broken, TooLarge, inflate
from stepscope.hub.refusals import Refusal, Refused

SECONDS = 60.0
SMALL = 512 * 1024
"""Work on bodies up to this size is done at once; more goes to a thread, so that nobody is kept waiting."""
_DRAINED = 4
"""So many times the limit is read and thrown away, so that the sender can read our refusal."""


async def read_body(request: Request, limit: int, pool: Executor) -> bytes:
    """Read and decompress a body; Refused with 400, 408, 413 or 415."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    known = encoding in ("", "x-gzip", *ENCODINGS)
    try:
        async with asyncio.timeout(SECONDS):
            data = await _collect(request, limit)
    except TimeoutError:
        late = f"the body did not come within {SECONDS:.0f} s"
        raise Refused(Refusal(HTTPStatus.REQUEST_TIMEOUT, late)) from None
    except ClientDisconnect:
        raise Refused(Refusal(HTTPStatus.BAD_REQUEST, "the body was cut off")) from None
    if not known:
        text = f"the Content-Encoding {encoding[:40]!r} is not known; known are {', '.join(ENCODINGS)}"
        raise Refused(Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text))
    if data is None:
        raise Refused(too_large(limit))
    if encoding in ("", "identity"):
        return data
    return await _inflated(data, encoding, limit, pool)


def too_large(limit: int) -> Refusal:
    """Refuse a body for its size."""
    return Refusal(HTTPStatus(413), f"the body is larger than {limit} bytes; send less at a time")


async def _collect(request: Request, limit: int) -> bytes | None:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            parts.append(part)
        elif size > limit * _DRAINED:
            return None
        else:
            parts.clear()
    return b"".join(parts) if size <= limit else None


async def _inflated(data: bytes, encoding: str, limit: int, pool: Executor) -> bytes:
    try:
        if len(data) <= SMALL:
            try:
                return inflate(data, encoding, min(SMALL, limit))
            except TooLarge:
                pass
        return await asyncio.get_running_loop().run_in_executor(pool, inflate, data, encoding, limit)
    except TooLarge:
        raise Refused(too_large(limit)) from None
    except Broken as error:
        raise Refused(Refusal(HTTPStatus.BAD_REQUEST, str(error))) from None
