"""Our own protocol: POST /v1/stepscope with journal frames, a header for each writer followed by its batches.

The files that records name are uploaded before them: HEAD, then PUT /v1/stepscope/blobs/RUN/SHA256.
"""

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import Future
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from stepscope.hub.receivers.bodies import with_body
from stepscope.hub.receivers.file_uploads import keep_file, sync
from stepscope.hub.receivers.ingest import Upload, written
from stepscope.hub.receivers.receiver import ReceiverPorts, ReceiverRoute
from stepscope.hub.refusals import Refusal, Refused, error_response, json_response
from stepscope.hub.security.guard import Access, RequestHead, access_of, bearer
from stepscope.journal.blobs import DIGEST, Blobs
from stepscope.journal.layout import is_safe
from stepscope.model.errors import Retry
from stepscope.model.ports import SCHEMA, Writer
from stepscope.model.run_requests import Requests
from stepscope.wire import frames

PATH = "/v1/stepscope"
MAX_RECORDS = 1_000_000
UNREADABLE = "unreadable record"
BLOB = PATH + "/blobs/{run}/{digest}"
MAX_BLOB = 1024**3
"""Bytes of an uploaded file, as many as the SDK logs."""


class Safe(msgspec.Struct, frozen=True):
    """Acknowledges a writer's batches of this request up to and including `seq`."""

    run: str
    writer: str
    seq: int


class Taken(NamedTuple):
    """What became of a request; `done` completes when it is synced."""

    safe: list[Safe]
    upload: Upload
    requests: dict[str, Requests]
    done: "Future[None]"


class Native:
    """The receiver of the native protocol; sequence numbers make retries idempotent."""

    name = "native"
    prefixes = (PATH,)

    def __init__(self, ports: ReceiverPorts) -> None:
        self._ingest = ports.ingest(self.name, ours=True)
        self._workers = ports.workers
        self._requests = ports.edits.requests
        self._uploads = ports.files / "media"
        self._blobs = ports.blobs
        ports.deleting.append(self._delete)

    def routes(self) -> list[ReceiverRoute]:
        """Return the routes."""
        return [
            ReceiverRoute(PATH, self._post),
            ReceiverRoute(BLOB, self._has_blob, methods=("HEAD",)),
            ReceiverRoute(BLOB, self._put_blob, methods=("PUT",), body=MAX_BLOB, stream=True),
        ]

    def credential(self, head: RequestHead) -> str:
        """Return the bearer token."""
        return bearer(head.headers.get("authorization", ""))

    def refuse(self, head: RequestHead, refusal: Refusal) -> Response:
        """Return an error of the JSON API."""
        return error_response(refusal)

    async def _post(self, request: Request) -> Response:
        access = access_of(request.scope)
        taken = await with_body(request, self._workers, lambda data: self.take(data, access))
        await written(taken.done)
        upload = taken.upload
        answer = {"safe": taken.safe, "written": upload.taken, "rejected": +upload.rejected, "refused": upload.refused}
        return json_response({**answer, "requests": taken.requests} if taken.requests else answer)

    async def _has_blob(self, request: Request) -> Response:
        """Answer whether a run has a blob; its age then begins again, so that a deletion in between keeps it."""
        path = self._path_of(request)
        try:
            await run_in_threadpool(os.utime, path)
        except OSError:
            run, digest = request.path_params["run"], path.name
            if self._blobs is None or not await run_in_threadpool(self._blobs.has, run, digest):
                return Response(status_code=HTTPStatus.NOT_FOUND)
        return Response()

    async def _put_blob(self, request: Request) -> Response:
        """Keep a blob whose content has the digest that it is named by."""
        path, digest = self._path_of(request), hashlib.sha256()

        def finish(file: BinaryIO) -> None:
            if digest.hexdigest() != path.name:
                text = f"the SHA-256 of the file is {digest.hexdigest()}, not {path.name}"
                raise Refused(Refusal(HTTPStatus.BAD_REQUEST, text))
            sync(file)

        try:
            await run_in_threadpool(path.parent.mkdir, 0o700, True, True)
            await keep_file(path, request.stream(), finish, digest.update)
        except ClientDisconnect:
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, "the body was cut off")) from None
        except OSError as error:
            raise Retry(f"an uploaded file cannot be written: {error}", after=10.0) from error
        if self._blobs is not None:
            self._blobs.expect(request.path_params["run"])
        return json_response({"sha256": path.name})

    def _path_of(self, request: Request) -> Path:
        run, digest = request.path_params["run"], request.path_params["digest"]
        if not is_safe(run) or not DIGEST.fullmatch(digest):
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, "the address must name a run and a SHA-256"))
        return Blobs(self._uploads / run).path(digest)

    def _delete(self, run: str, before: int) -> int:
        if not is_safe(run):
            return 0
        if self._blobs is not None:
            self._blobs.expect_removal(run, before)
        return Blobs(self._uploads / run).remove(before=before / 1e9)

    def take(self, data: bytes, access: Access) -> Taken:
        """Read and submit frames; Refused when any of them is damaged, and then none is accepted."""
        upload = Upload()
        runs: set[str] = set()
        safe: dict[tuple[str, str], int] = {}
        writer: Writer | None = None
        count = 0
        number = -1
        for found in frames.scan(data, final=True):
            try:
                if isinstance(found, frames.Damage):
                    raise ValueError("damaged frame")
                if frames.is_head(found.payload):
                    writer = _head(found.payload, access)
                    continue
                if writer is None:
                    raise ValueError("a batch must follow the header of its writer")
                seq, records, bad = frames.unpack_batch(found.payload)
            except ValueError as error:
                self._ingest.reject("unreadable request")
                raise Refused(Refusal(HTTPStatus.BAD_REQUEST, f"at byte {found.start}: {error}")) from None
            count += len(records)
            if count > MAX_RECORDS:
                raise Refused(Refusal(HTTPStatus(413), f"more than {MAX_RECORDS} records; send smaller requests"))
            upload.rejected[UNREADABLE] += bad
            number += 1
            reason = self._ingest.add(upload, writer, records, access.project, seq)
            if reason:
                upload.refused.append((number, reason))
            else:
                runs.add(writer.run)
            key = (writer.run, writer.id)
            safe[key] = max(seq, safe.get(key, -1))
        answer = [Safe(run, name, seq) for (run, name), seq in safe.items()]
        return Taken(answer, upload, self._asked(runs), self._ingest.submit(upload))

    def _asked(self, runs: Iterable[str]) -> dict[str, Requests]:
        """What users ask of the programs that this client delivers for; the next answer has what cannot be read now."""
        try:
            return {run: found for run in runs if (found := self._requests(run))}
        except OSError:
            return {}


def _head(payload: memoryview, access: Access) -> Writer:
    writer = frames.unpack_head(payload)
    if writer.schema > SCHEMA:
        raise ValueError(f"the writer uses schema {writer.schema} and this hub supports {SCHEMA}: upgrade the hub")
    if access.project not in (None, writer.project):
        text = f"this token is for the project {access.project!r}, not {writer.project!r}"
        raise Refused(Refusal(HTTPStatus.FORBIDDEN, text))
    if not writer.run or not writer.id:
        raise ValueError("the header must name a run and a writer")
    return writer
