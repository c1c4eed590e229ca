"""Tokens of several hubs: the token file of each home and the documents that all hubs share are kept the same."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from stepscope.hub.fleet.shared_state import SharedState
from stepscope.hub.security.tokens import Token, Tokens
from stepscope.hub.store.cluster.documents import DocumentWrite
from stepscope.journal.atomic_files import replace_file
from stepscope.model.errors import Retry

KIND = "token"
NAME = "tokens-shared.json"
"""Beside the tokens: the ids of those that all hubs know, by which one that was revoked differs from one not read."""

_ids = msgspec.json.Decoder(set[str]).decode
_token = msgspec.json.Decoder(Token).decode


class SharedTokens:
    """Exchanges tokens between a home and the other hubs; `sync` is called again and again, on one thread."""

    def __init__(self, state: SharedState, tokens: Tokens, folder: Path) -> None:
        self._state, self._tokens, self._path = state, tokens, folder / NAME
        self._both: set[str] = set()
        """The tokens that were in the file and shared when last compared."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            self._both = _ids(self._path.read_bytes())

    def sync(self) -> None:
        """Take over what other hubs created and revoked, then pass on what was in this home; Retry when that waits."""
        local = self._tokens.reread()
        have = local or {}
        shared = {key: _token(each.value) for key, each in self._state.all(KIND).items()}
        gone = self._state.known(KIND).keys() - shared.keys()
        both = set() if local is None else self._both & shared.keys()  # a file that vanished revokes nothing
        added = {key: token for key, token in shared.items() if key not in have and key not in both}
        created = {key: token for key, token in have.items() if key not in shared and key not in gone}
        revoked = both - have.keys()
        if added or gone & have.keys():
            self._tokens.change(added.values(), gone)
        self._keep(both | (shared.keys() & (have.keys() | added.keys())))
        if created or revoked:
            self._publish(created.values(), revoked)
            self._keep((shared.keys() | created.keys()) - revoked)

    def _publish(self, created: Iterable[Token], revoked: Iterable[str]) -> None:
        puts = [DocumentWrite(KIND, each.id, msgspec.json.encode(each).decode()) for each in created]
        deletions = [DocumentWrite(KIND, key, None) for key in revoked]
        try:
            self._state.write(*puts, *deletions)
        except Retry as error:
            raise Retry(f"tokens that were created or revoked here are not known to other hubs: {error}") from error

    def _keep(self, both: set[str]) -> None:
        if both != self._both:
            replace_file(self._path, msgspec.json.encode(sorted(both)), fsync=True)
            self._both = both
