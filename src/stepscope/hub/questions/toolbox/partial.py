"""How an answer says that it lacks shards: a field of its JSON, a header, and no 404 for what may be on one of them."""

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import msgspec

from stepscope.hub.questions.toolbox.params import INTEGER, Schema, list_of, object_of
from stepscope.hub.refusals import Refusal, Refused
from stepscope.hub.store.engine import EngineError, MissingShards, partial_answers
from stepscope.model.names import PARTIAL_HEADER

FIELD = "partial"
SCHEMA: Schema = {
    **object_of(missing=list_of(INTEGER), shards=INTEGER),
    "description": "Present when shards of a cluster did not answer: their runs are not in the answer.",
}
_RETRY_SECONDS = 5.0


def partial_field(missing: MissingShards) -> dict[str, Any]:
    """The field of the JSON, and its value; nothing when the answer is complete."""
    return {FIELD: {"missing": missing.numbers, "shards": missing.shards}} if missing else {}


def headers(missing: MissingShards) -> dict[str, str]:
    """The header of the answer, which answers that are no JSON object have too."""
    return {PARTIAL_HEADER: str(missing)} if missing else {}


def encode(found: Any, missing: MissingShards) -> bytes:
    """Encode an answer."""
    return msgspec.json.encode({**found, **partial_field(missing)} if missing and isinstance(found, dict) else found)


@contextmanager
def partial_reads(method: str) -> Iterator[MissingShards]:
    """Allow answers that lack shards to what only reads, and collect which.

    "Not found" becomes "not now" while a shard is unavailable: what was asked for may be there.
    """
    if method != "GET":
        yield MissingShards()
        return
    try:
        with partial_answers() as missing:
            yield missing
    except Refused as refused:
        if not missing or refused.refusal.status != HTTPStatus.NOT_FOUND:
            raise
        message = f"{refused.refusal.message}, or it is on {missing}, which does not answer"
        raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, message, _RETRY_SECONDS)) from None


def stream(pieces: Iterator[bytes], missing: MissingShards) -> Iterator[bytes]:
    """Yield the rest of an answer, under the terms of its beginning, from any thread.

    EngineError, which ends the answer early, when a shard is missing of which its header says nothing.
    """
    context, known = contextvars.copy_context(), missing.numbers

    def rest() -> Iterator[bytes]:
        while (piece := context.run(next, pieces, None)) is not None:
            if missing.numbers != known:
                raise EngineError(f"{missing} does not answer any more")
            yield piece

    return rest()
