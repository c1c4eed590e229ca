"""OTLP over HTTP: POST /v1/traces, /v1/metrics, /v1/logs, protobuf or JSON; and / for who forgot the path."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stepscope.hub.receivers.body import with_body
from stepscope.hub.receivers.guess import guess_signal
from stepscope.hub.receivers.otlp import OtlpReceiver, Taken
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.security.gate import access_of
from stepscope.hub.security.guard import Access
from stepscope.hub.workers import Workers
from stepscope.model.errors import Retry
from stepscope.wire.otlp.names import CONTENT_TYPES, HTTP_PATHS, Encoding, Signal, encoding_of
from stepscope.wire.otlp.refusals import BadRequest
from stepscope.wire.otlp.replies import write_reply

Answer = Callable[[Request], Awaitable[Response]]


class OtlpHttp:
    """The routes of OTLP/HTTP."""

    def __init__(self, receiver: OtlpReceiver, workers: Workers) -> None:
        self._receiver = receiver
        self._workers = workers

    def routes(self) -> list[Route]:
        """The paths of the three signals, and the root."""
        found = [Route(path, self._exporter(signal), methods=["POST"]) for path, signal in HTTP_PATHS.items()]
        return [*found, Route("/", self._exporter(None), methods=["POST"])]

    def _exporter(self, signal: Signal | None) -> Answer:
        async def export(request: Request) -> Response:
            encoding = encoding_of(request.headers.get("content-type", ""))
            if encoding is None:
                known = " or ".join(CONTENT_TYPES.values())
                raise Refused(Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the Content-Type must be {known}"))
            return await self._export(request, signal, encoding)

        return export

    async def _export(self, request: Request, signal: Signal | None, encoding: Encoding) -> Response:
        access, headers = access_of(request.scope), dict(request.headers)
        try:
            taken = await with_body(
                request, self._workers, lambda data: self._take(signal, encoding, data, headers, access)
            )
            await asyncio.shield(asyncio.wrap_future(taken.safe))  # who goes away cancels for himself only
        except BadRequest as error:
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, str(error))) from None
        except Retry as error:
            raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error), error.after or 5.0)) from None
        return Response(write_reply(encoding, taken.rejections), media_type=CONTENT_TYPES[encoding])

    def _take(
        self,
        signal: Signal | None,
        encoding: Encoding,
        data: bytes,
        headers: Mapping[str, str],
        access: Access,
    ) -> Taken:
        return self._receiver.take(signal or guess_signal(encoding, data), encoding, data, headers, access)
