"""Several hubs, one answer: requests whose state or files are in the home of another hub are passed on to it."""

import asyncio
import hmac
import re
import ssl
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepscope.hub.fleet.client_homes import ClientHomes
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.security.guard import AccessRule, Guard, RequestHead, secured, too_slow
from stepscope.hub.store.cluster.ownership import Member
from stepscope.hub.upstream import Passing, Upstream, UpstreamFailed, pass_on
from stepscope.model.dialects import with_part
from stepscope.model.errors import Retry

MARK = b"x-stepscope-relayed"
"""The header with the secret of the hub that is asked: it answers itself, and passes nothing on."""
_FILES = re.compile(r"/api/runs/[^/]+/(?:files|files/(?:content|text|table)|media)")
_NO_BODY: Message = {"type": "http.request", "body": b"", "more_body": False}
_SECONDS = 10.0
_SILENT_SECONDS = 900.0
"""As with a service behind the hub: a client may be waiting for a long answer."""


class Relay:
    """ASGI middleware before access control, which is left to the hub that answers."""

    def __init__(
        self,
        app: ASGIApp,
        homes: ClientHomes,
        guard: Guard,
        rule_of: Callable[[RequestHead], AccessRule],
        body_seconds: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._app, self._homes, self._guard, self._rule_of, self._tls = app, homes, guard, rule_of, tls
        self._seconds = body_seconds
        self._secret = homes.secret.encode()
        self._headers = {header: each.name for each in with_part("receiver") for header in each.headers}
        """The receivers to whose runs a request of another dialect may refer, by header."""
        self._upstreams: dict[str, Upstream] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request here or at another hub; 503 when that hub is unavailable."""
        if scope["type"] != "http" or self._is_relayed(scope):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        head = RequestHead(scope["method"], scope["path"], headers)
        if head.method == "GET" and _FILES.fullmatch(head.path):
            await self._find_file(head, scope, receive, send)
        elif receiver := self._receiver(head):
            await self._ask_keeper(receiver, head, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_relayed(self, scope: Scope) -> bool:
        return any(name == MARK and hmac.compare_digest(value, self._secret) for name, value in scope["headers"])

    def _receiver(self, head: RequestHead) -> str:
        """The receiver whose clients' state a request needs; empty for others."""
        name = str(getattr(self._rule_of(head).policy, "name", ""))
        if name in self._homes.receivers:
            return name
        return next((owner for header, owner in self._headers.items() if header in head.headers), "") if name else ""

    async def _ask_keeper(self, receiver: str, head: RequestHead, scope: Scope, receive: Receive, send: Send) -> None:
        taken: list[Message] = []
        try:
            keeper = await self._keeper(receiver)
            if keeper is not None:
                taken.append(await self._first(receive))
                await self._pass(keeper, scope, receive, send, taken[0])
                return
        except (Retry, Refused) as error:
            if not self._homes.receivers[receiver] or isinstance(error, (_Cut, Refused)):
                await self._refuse(head, _refusal(error), scope, receive, send)
                return
        await self._app(scope, _replayed(taken, receive), send)

    async def _first(self, receive: Receive) -> Message:
        """The first part of a body; later ones are limited by the hub that answers."""
        try:
            async with asyncio.timeout(self._seconds):
                return await receive()
        except TimeoutError:
            raise Refused(too_slow(self._seconds)) from None

    async def _keeper(self, receiver: str) -> Member | None:
        if self._homes.must_write(receiver):
            return await run_in_threadpool(self._homes.keeper, receiver)
        return self._homes.keeper(receiver)

    async def _find_file(self, head: RequestHead, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask the other hubs for what this one does not have."""
        held = _Held(send)
        await self._app(scope, receive, held)
        if not held.is_missing:
            return
        away = self._away()
        for other in self._homes.others():
            answer = _Held(send)
            try:
                await self._pass(other, scope, receive, answer, _NO_BODY)
            except Retry:
                away = away or "another hub does not answer"
            if answer.has_begun:
                return
        if away:
            refusal = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"the files are not here: {away}", 5.0)
            await self._refuse(head, refusal, scope, receive, send)
        else:
            await held.release()

    async def _refuse(self, head: RequestHead, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer in the format of the client, with the headers that access control adds to every other answer."""
        response = self._rule_of(head).policy.refuse(head, refusal)
        await response(scope, receive, secured(send, head, scope["scheme"], self._guard))

    def _away(self) -> str:
        """Why files may be missing: a hub that keeps some is unavailable; empty when all of them answer."""
        for receiver in self._homes.receivers:
            try:
                if not self._homes.must_write(receiver):
                    self._homes.keeper(receiver)
            except Retry as error:
                return str(error)
        return ""

    async def _pass(self, keeper: Member, scope: Scope, receive: Receive, send: Send, first: Message) -> None:
        """Pass a request on; Retry when the other hub does not answer and nothing was sent to the client."""
        upstream = self._upstreams.get(keeper.address)
        if upstream is None:
            upstream = Upstream(keeper.address, tls=self._tls, connect_seconds=_SECONDS, silent_seconds=_SILENT_SECONDS)
            self._upstreams[keeper.address] = upstream
        if first["type"] != "http.request":
            return
        passing = Passing(scope, receive, send, first)
        began: list[int] = []
        headers = [each for each in passing.headers() if each[0] != MARK]
        try:
            await pass_on(
                upstream,
                passing,
                [*headers, (MARK, keeper.secret.encode())],
                on_answer=lambda answer: began.append(answer.status_code),
            )
        except UpstreamFailed as error:
            if not began:
                kind = _Cut if passing.has_begun else Retry
                raise kind("the hub that keeps the state of these clients does not answer", after=2.0) from error
            # The response has begun: the server closes the connection, and the client sees it cut off.


class _Cut(Retry):
    """A part of the request was sent: it may have been taken."""


def _replayed(taken: list[Message], receive: Receive) -> Receive:
    """A `receive` that begins with a message that was taken already."""

    async def next_message() -> Message:
        return taken.pop() if taken else await receive()

    return next_message


class _Held:
    """A `send` that holds an answer back which has nothing: 404, or an empty list of files or media."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._messages: list[Message] = []
        self._status = 0
        self.has_begun = False
        """Whether the client has got a part of the answer."""

    @property
    def is_missing(self) -> bool:
        """Whether an answer is held back."""
        return not self.has_begun

    async def __call__(self, message: Message) -> None:
        if self.has_begun:
            await self._send(message)
            return
        self._messages.append(message)
        if message["type"] == "http.response.start":
            self._status = message["status"]
            is_list = self._status == HTTPStatus.OK and (b"content-type", b"application/json") in message["headers"]
            if not is_list and self._status != HTTPStatus.NOT_FOUND:
                await self.release()
        elif self._status == HTTPStatus.OK and not message.get("more_body", False) and _has_some(self._messages):
            await self.release()

    async def release(self) -> None:
        """Send what was held back, and all that follows."""
        self.has_begun = True
        for message in self._messages:
            await self._send(message)


def _has_some(messages: Sequence[Message]) -> bool:
    body = b"".join(each.get("body", b"") for each in messages)
    try:
        found: Any = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return True
    if not isinstance(found, dict) or not {"files", "media"} & found.keys():
        return True
    return bool(found.get("total") or found.get("media"))


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, Refused):
        return error.refusal
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error), getattr(error, "after", None) or 2.0)
