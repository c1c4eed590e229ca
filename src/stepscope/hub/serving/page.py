"""The page: one document and its files, served from memory as they are in `hub/web`.

The document names each file below a version, `/web/@VERSION/NAME`, which changes with any of them: browsers keep
those for good, and only ask for the document anew. `/web/NAME` is the file as it is now.
"""

import gzip
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

WEB = Path(__file__).parents[1] / "web"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""Content types of the served files; others are not served."""
_PACKED = (".js", ".css", ".svg")
ASK, KEEP = "no-cache", "public, max-age=31536000, immutable"
"""Cache headers: revalidate the document, keep versioned files forever."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file as last read."""

    changed: int
    tag: str
    kind: str
    plain: bytes
    packed: bytes | None


class Files:
    """The files of a folder by name; each is read once, and again when it changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._known: dict[str, _File] = {}
        self.version = ""
        """A digest of all files as of the last request for the document."""

    def document(self) -> str:
        """The document, with the current versions of its files."""
        found = sorted(path for path in self._folder.rglob("*") if path.suffix in _TYPES)
        known = "".join(f"{path}{path.stat().st_mtime_ns}" for path in found)
        self.version = hashlib.sha256(known.encode()).hexdigest()[:12]
        return self._find("index.html").plain.decode().replace('="web/', f'="web/@{self.version}/')

    def answer(self, name: str, request: Request, keep: str) -> Response:
        """Respond with a file; `keep` is the cache header."""
        file = self._find(name)
        headers = {"Cache-Control": keep, "ETag": file.tag, "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        if file.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.kind)
        return Response(file.plain, headers=headers, media_type=file.kind)

    def _find(self, name: str) -> _File:
        path = Path(os.path.normpath(self._folder / name))
        kind = _TYPES.get(path.suffix)
        if kind is None or not path.is_relative_to(self._folder):
            raise HTTPException(404)
        try:
            changed = path.stat().st_mtime_ns
            known = self._known.get(name)
            if known is None or known.changed != changed:
                known = self._known[name] = _read(path, changed, kind)
        except (OSError, ValueError):
            raise HTTPException(404) from None
        return known


def _read(path: Path, changed: int, kind: str) -> _File:
    plain = path.read_bytes()
    packed = gzip.compress(plain, mtime=0) if path.suffix in _PACKED else None
    return _File(changed, f'"{hashlib.sha256(plain).hexdigest()[:20]}"', kind, plain, packed)


def page_routes(folder: Path = WEB) -> list[BaseRoute]:
    """Make the routes of the page: the document at `/`, its files under `/web/`."""
    files = Files(folder)

    async def document(request: Request) -> Response:
        text = await run_in_threadpool(files.document)
        return Response(text, headers={"Cache-Control": ASK}, media_type=_TYPES[".html"])

    async def file(request: Request) -> Response:
        name, keep = request.path_params["name"], ASK
        if name.startswith("@"):
            version, _, name = name[1:].partition("/")
            keep = KEEP if version == files.version else ASK
        return await run_in_threadpool(files.answer, name, request, keep)

    return [Route("/", document, methods=["GET"]), Route("/web/{name:path}", file, methods=["GET"])]
