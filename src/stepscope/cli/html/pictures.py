"""The media of runs in a report: the latest image of each key, inside the file."""

import base64
import contextlib
import io
from collections.abc import Iterator
from typing import Any, NamedTuple

from stepscope.hub.client import HubClient, HubError

MAX_IMAGES = 60
"""Images of one run."""
MAX_BYTES = 2_000_000
"""Bytes of one image; larger ones are left out, and named."""
_TYPES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)
"""Images that hold nothing but pixels, by their first bytes."""


class Picture(NamedTuple):
    """An image of a run; `address` is empty where it is left out."""

    key: str
    step: int | None
    caption: str
    address: str


def pictures(client: HubClient, run: str) -> list[Picture]:
    """The images that a run logged last under each key."""
    latest: dict[str, dict[str, Any]] = {}
    for each in client.get("/api/runs/{run}/media", run=run)["media"]:
        if each["kind"] == "image":
            latest[each["key"]] = each  # in order of their steps
    return list(_taken(client, run, latest))[:MAX_IMAGES]


def _taken(client: HubClient, run: str, latest: dict[str, dict[str, Any]]) -> Iterator[Picture]:
    for left, each in zip(range(MAX_IMAGES, 0, -1), latest.values(), strict=False):
        for file in each["files"][:left]:
            out = io.BytesIO()
            with contextlib.suppress(HubError):  # it is not there any more
                client.copy(out, "/api/runs/{run}/files/content", run=run, name=file["name"])
            yield Picture(each["key"], each["step"], file["caption"] or "", _address(out.getvalue()))


def _address(data: bytes) -> str:
    kind = next((kind for start, kind in _TYPES if data.startswith(start)), "")
    if not kind or len(data) > MAX_BYTES or (kind == "image/webp" and data[8:12] != b"WEBP"):
        return ""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
