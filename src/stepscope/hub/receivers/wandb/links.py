"""Signed links to files: whoever has one may read that file for an hour, as clients that send no key need it."""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from http import HTTPStatus
from urllib.parse import quote

from stepscope.hub.receivers.wandb.tracked_runs import TrackedRuns
from stepscope.hub.refusals import Refusal, Refused
from stepscope.journal.files import replace_file
from stepscope.model.errors import Retry

SECONDS = 3600
PATH = "/wandb/files/{ticket}/{name:path}"


class Links:
    """Makes links and checks them; the key lies in a file for the hub's owner alone."""

    def __init__(self, runs: TrackedRuns) -> None:
        self._runs = runs
        self._key = b""

    def make(self, base: str, name: str, *where: str) -> str:
        """A link to a file: the kind and the names by which the receiver finds it."""
        said = json.dumps([int(time.time()) + SECONDS, *where]).encode()
        ticket = base64.urlsafe_b64encode(said).decode().rstrip("=")
        return f"{base}/wandb/files/{ticket}.{self._sign(ticket)}/{quote(name)}"

    def read(self, ticket: str) -> list[str]:
        """The kind and the names in a link; Refused when it is not ours or too old."""
        said, _, signature = ticket.partition(".")
        if not hmac.compare_digest(self._sign(said).encode(), signature.encode("utf-8", "replace")):
            raise Refused(Refusal(HTTPStatus.FORBIDDEN, "this link was not made by this hub"))
        try:
            until, *where = json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
        except (ValueError, binascii.Error):
            raise Refused(Refusal(HTTPStatus.FORBIDDEN, "this link cannot be read")) from None
        if until < time.time():
            raise Refused(Refusal(HTTPStatus.FORBIDDEN, "this link is too old"))
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
            raise Retry(f"the key of links cannot be written: {error}", after=5.0) from error
