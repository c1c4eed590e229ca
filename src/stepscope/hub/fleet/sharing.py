"""Changes made at one hub that all on the same store must know: edits, tokens, dashboards, views, rules, alerts."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from stepscope.hub.alerting.alert_log import AlertLog
from stepscope.hub.alerting.rule_files import PAGE_NAME
from stepscope.hub.dashboards import saved_views
from stepscope.hub.dashboards.dashboard import LONGEST
from stepscope.hub.fleet.client_homes import ClientHomes
from stepscope.hub.fleet.shared_alerts import SharedAlerts
from stepscope.hub.fleet.shared_state import SharedState
from stepscope.hub.home import HubHome
from stepscope.hub.refusals import Refused
from stepscope.hub.security.tokens import Token, Tokens
from stepscope.hub.store.cluster.documents import Document, DocumentWrite
from stepscope.hub.store.cluster.ownership import Ownership
from stepscope.hub.store.engine import Engine
from stepscope.hub.texts import TextFiles, check_version
from stepscope.journal.atomic_files import replace_file
from stepscope.journal.run_edits import Edits
from stepscope.model.errors import Retry
from stepscope.model.run_description import Edit
from stepscope.sinks.http import Connection

RULES, DASHBOARD, VIEWS, EDIT, TOKEN = "rules", "dashboard", "views", "edit", "token"
"""The kinds of documents that are shared."""
SHARED_TOKENS = "tokens-shared.json"
"""Beside the tokens: the ids of those that all hubs know, by which one that was revoked differs from one not read."""

_ids = msgspec.json.Decoder(set[str]).decode
_token = msgspec.json.Decoder(Token).decode
_edit = msgspec.json.Decoder(Edit).decode


class SharedTokens:
    """Exchanges tokens between a home and the other hubs; `sync` is called again and again, on one thread."""

    def __init__(self, state: SharedState, tokens: Tokens, folder: Path) -> None:
        self._state, self._tokens, self._path = state, tokens, folder / SHARED_TOKENS
        self._both: set[str] = set()
        """The tokens that were in the file and shared when last compared."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            self._both = _ids(self._path.read_bytes())

    def sync(self) -> None:
        """Take over what other hubs created and revoked, then pass on what was in this home; Retry when that waits."""
        local = self._tokens.reread()
        have = local or {}
        shared = {key: _token(each.value) for key, each in self._state.all(TOKEN).items()}
        gone = self._state.known(TOKEN).keys() - shared.keys()
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
        puts = [DocumentWrite(TOKEN, each.id, msgspec.json.encode(each).decode()) for each in created]
        deletions = [DocumentWrite(TOKEN, key, None) for key in revoked]
        try:
            self._state.write(*puts, *deletions)
        except Retry as error:
            raise Retry(f"tokens that were created or revoked here are not known to other hubs: {error}") from error

    def _keep(self, both: set[str]) -> None:
        if both != self._both:
            replace_file(self._path, msgspec.json.encode(sorted(both)), fsync=True)
            self._both = both


class SharedEdits:
    """Keeps the edits of a home for all hubs, and brings those of the others; none replaces another."""

    def __init__(self, state: SharedState, edits: Edits, on_deletion: Callable[[Sequence[str]], object]) -> None:
        self._state, self._edits, self._on_deletion = state, edits, on_deletion
        self._shared: list[Edit] | None = None
        """The edits on disk that are shared."""
        state.listen(EDIT, self._take)
        self._edits.add(_edit(each.value) for each in state.all(EDIT).values())
        edits.share_with(lambda edit: state.write(_document(edit)))

    def sync(self) -> None:
        """Share what commands wrote to the home; Retry when that must wait."""
        written = self._edits.written()
        if written is not self._shared:
            known = self._state.known(EDIT)
            self._state.write(*(_document(edit) for edit in written if edit.id not in known))
            self._shared = written

    def _take(self, found: Sequence[Document]) -> None:
        edits = [_edit(each.value) for each in found if not each.deleted]
        self._edits.add(edits)
        if deleted := [edit.run for edit in edits if edit.deleted]:
            self._on_deletion(deleted)


def _document(edit: Edit) -> DocumentWrite:
    return DocumentWrite(EDIT, edit.id, msgspec.json.encode(edit).decode())


class SharedTexts:
    """Texts that are documents of one kind."""

    def __init__(self, state: SharedState, kind: str) -> None:
        self._state, self._kind = state, kind

    def names(self) -> list[str]:
        """List the names, sorted."""
        return sorted(self._state.all(self._kind))

    def read(self, name: str) -> str | None:
        """Read a text; None when there is none."""
        found = self._state.all(self._kind).get(name)
        return None if found is None else found.value

    def save(self, name: str, text: str, version: str | None = None) -> None:
        """Save a text for all hubs."""
        found = self._state.all(self._kind).get(name)
        check_version(name, None if found is None else found.value, version)
        self._state.write(DocumentWrite(self._kind, name, text, 0 if found is None else found.version))

    def delete(self, name: str, version: str | None = None) -> bool:
        """Delete a text for all hubs; False when there is none."""
        found = self._state.all(self._kind).get(name)
        check_version(name, None if found is None else found.value, version)
        if found is not None:
            self._state.write(DocumentWrite(self._kind, name, None, found.version))
        return found is not None

    def stamp(self, name: str) -> object:
        """Return the version of the document."""
        found = self._state.known(self._kind).get(name)
        return None if found is None else found.version

    def subscribe(self, subscriber: Callable[[], object]) -> None:
        """Call a function when a text changed; it must be quick."""
        self._state.listen(self._kind, lambda changed: subscriber())

    def adopt(self, files: TextFiles, *only: str) -> None:
        """Share the texts of a home that no hub has shared before; else the shared ones count."""
        for name in only or files.names():
            text = files.read(name) if name not in self._state.known(self._kind) else None
            if text is not None:
                with contextlib.suppress(Refused):  # another hub shared one of this name just now
                    self._state.write(DocumentWrite(self._kind, name, text, 0))


class Sharing:
    """The shared state of a hub. What its home has from the time before is shared at the first start."""

    def __init__(
        self,
        engine: Engine,
        ownership: Ownership,
        connect: Callable[[str], Connection],
        home: HubHome,
        tokens: Tokens,
        edits: Edits,
        on_deletion: Callable[[Sequence[str]], object],
    ) -> None:
        self.state = SharedState(engine, ownership, connect)
        self.rules = SharedTexts(self.state, RULES)
        self.dashboards = SharedTexts(self.state, DASHBOARD)
        self.views = SharedTexts(self.state, VIEWS)
        self.alerts = SharedAlerts(self.state)
        self.homes = ClientHomes(self.state, ownership)
        self._home = home
        self._adopted = False
        self._tokens = SharedTokens(self.state, tokens, home.folder)
        self._edits = SharedEdits(self.state, edits, on_deletion)
        self.state.after_each_poll(self.sync)
        self._unshared = ""
        if self.state.loaded:
            self.sync()

    @property
    def problem(self) -> str:
        """Why hubs do not know of each other's changes at present; empty when they do."""
        return self._unshared or self.state.problem

    def sync(self) -> None:
        """Share what was changed in the files of the home, and take over the tokens of other hubs."""
        try:
            self._tokens.sync()
            self._edits.sync()
            if not self._adopted:
                self._adopt()
                self._adopted = True
            self._unshared = ""
        except Retry as error:
            self._unshared = str(error)

    def _adopt(self) -> None:
        home = self._home
        self.homes.adopt(home.folder / "files")
        self.dashboards.adopt(TextFiles(home.home / "dashboards", LONGEST))
        self.views.adopt(TextFiles(home.home / "views", saved_views.LONGEST))
        self.rules.adopt(TextFiles(home.home, LONGEST), PAGE_NAME)
        self.alerts.adopt(AlertLog(home.folder, write=False))
