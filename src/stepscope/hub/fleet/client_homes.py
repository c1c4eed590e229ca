"""Which hub keeps the state of the clients of a receiver: their runs, offsets and uploads are files of its home."""

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from stepscope.hub.fleet.shared_state import POLL_SECONDS, SharedState
from stepscope.hub.refusals import Refused
from stepscope.hub.store.cluster.documents import DocumentWrite
from stepscope.hub.store.cluster.ownership import Member, Ownership
from stepscope.model.dialects import with_part
from stepscope.model.errors import Retry

KIND = "client_home"
_POLLS = 8
"""After so many polls a hub knows what another one wrote, if the store answers."""


def stateful_receivers() -> dict[str, bool]:
    """The receivers for whose clients a hub keeps state, and whether another hub may take it over at once."""
    return {each.name: each.client_state == "movable" for each in with_part("receiver") if each.client_state != "none"}


class ClientHomes:
    """The hub that keeps the clients of each receiver: the first one that was asked, from then on. Any thread."""

    def __init__(self, state: SharedState, ownership: Ownership, sleep: Callable[[float], None] = time.sleep) -> None:
        self._state, self._ownership, self._sleep = state, ownership, sleep
        self.receivers = stateful_receivers()
        """The receivers with state, and whether another hub may take it over."""

    @property
    def secret(self) -> str:
        """What other hubs show to this one."""
        return self._ownership.member.secret

    def adopt(self, files: Path) -> None:
        """Keep the clients whose files are in this home already, unless another hub does; Retry when that must wait."""
        for receiver in self.receivers:
            if not self._known(receiver) and _has_clients(files / receiver):
                self._take(receiver)

    def keeper(self, receiver: str) -> Member | None:
        """The hub that answers the clients of a receiver: None for this one; Retry while it is unavailable."""
        if self.must_write(receiver):
            self._take(receiver)
        hub = self._known(receiver)
        if hub == self._ownership.member.hub:
            return None
        for each in self.others():
            if each.hub == hub:
                return each
        raise Retry(f"the hub that keeps the runs and files of {receiver} clients is unavailable", after=5.0)

    def must_write(self, receiver: str) -> bool:
        """Return whether `keeper` changes the store, which takes a while: this hub begins to keep these clients."""
        hub = self._known(receiver)
        living = {self._ownership.member.hub, *(each.hub for each in self.others())}
        return not hub or (self.receivers[receiver] and hub not in living)

    def others(self) -> list[Member]:
        """The other hubs that are alive and take requests."""
        own = self._ownership.member.hub
        return [each for each in self._ownership.living() if each.hub != own and each.address]

    def _known(self, receiver: str) -> str:
        found = self._state.all(KIND).get(receiver)
        return found.value if found is not None else ""

    def _take(self, receiver: str) -> None:
        found = self._state.all(KIND).get(receiver)
        try:
            self._state.write(
                DocumentWrite(KIND, receiver, self._ownership.member.hub, found.version if found is not None else 0)
            )
        except Refused as error:  # another hub was faster
            for _ in range(_POLLS):
                if self._state.all(KIND).get(receiver) != found:
                    return
                self._sleep(POLL_SECONDS)
            raise Retry(f"another hub begins to keep the state of {receiver} clients", after=1.0) from error


def _has_clients(folder: Path) -> bool:
    """Return whether clients have left something; a database may be there before the first one comes."""
    database = folder / "tracking.db"
    if not database.exists():
        return folder.is_dir() and any(folder.iterdir())
    with contextlib.closing(sqlite3.connect(database)) as opened:
        return bool(opened.execute("SELECT EXISTS (SELECT 1 FROM runs)").fetchone()[0])
