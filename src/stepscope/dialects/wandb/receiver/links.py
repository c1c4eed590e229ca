"""Signed links to files, valid for an hour, for downloads that clients make without their API key."""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from http import HTTPStatus
from urllib.parse import quote

from stepscope.dialects.wandb.receiver.tracked_runs import TrackedRuns
from stepscope.extend.receiver import Refusal, Refused, replace_file
from stepscope.model.errors import Retry

SECONDS = 3600
PATH = "/wandb/files/{ticket}/{name:path}"


class Links:
    """Signs and verifies links; the signing key is in a file that only the hub's user can read."""

    def __init__(self, runs: TrackedRuns) -> None:
        self._runs = runs
        self._key = b""

    def make(self, base: str, name: str, *where: str) -> str:
        """Return a link that carries the kind and the names of a file."""
        payload = json.dumps([int(time.time()) + SECONDS, *where]).encode()
        ticket = base64.urlsafe_b64encode(payload).decode().rstrip("=")
        return f"{base}/wandb/files/{ticket}.{self._sign(ticket)}/{quote(name)}"

    def read(self, ticket: str) -> list[str]:
        """Return the kind and the names in a link; Refused when its signature is wrong or it has expired."""
        payload, _, signature = ticket.partition(".")
        if not hmac.compare_digest(self._sign(payload).encode(), signature.encode("utf-8", "replace")):
            raise Refused(Refusal(HTTPStatus.FORBIDDEN, "the signature of this link is not valid"))
        try:
            until, *where = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (ValueError, binascii.Error):
            raise Refused(Refusal(HTTPStatus.FORBIDDEN, "this link cannot be read")) from None
        if until < time.time():
            raise Refused(Refusal(HTTPStatus.FORBIDDEN, "this link has expired"))
        return [str(each) for each in where]

    def _sign(self, text: str) -> str:
        if not self._key:
            self._key = self._load()
        return hmac.new(self._key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:40]

    def _load(self) -> bytes:
        path = self._runs.folder("").parent / "links.key"
        try:
            self._runs.make(path.parent)
            if not path.exists():
                replace_file(path, secrets.token_bytes(32), fsync=True)
            return path.read_bytes()
        except OSError as error:
            raise Retry(f"the signing key of links cannot be written: {error}", after=5.0) from error
