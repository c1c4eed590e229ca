"""The hub's folder: HOME/hub with journal, cursors, tokens and store; one hub at a time has it open."""

import contextlib
import os
import re
import secrets
from pathlib import Path

from stepscope.hub.store.store_folder import full_disk, is_full
from stepscope.journal.atomic_files import FileLock, Locked, lock_folder, signed_lock
from stepscope.journal.layout import address_of as address_of
from stepscope.model.errors import ConfigError, Retry

MARKER = "STEPSCOPE_HUB"
_TEXT = "This folder belongs to a Stepscope hub. Stop the hub before you move or delete it.\n"
_OURS = {"runs", "cursors", "hub", "stepscope.yaml", "alerts.yaml"}
_WITHOUT_MARKER = {"alerts.log", "tokens.json", "tokens.lock", "lock", "journal", "cursors", "files"}
"""Files that may exist before the first hub: tokens, and those of a hub whose folder was deleted while it ran."""

_IDENTITY = re.compile(r"[0-9a-f]{16}")


class HubHome:
    """The paths below a home, created if missing and locked until `close`; ConfigError has the fix."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "hub"
        self.journal = self.folder / "journal" / "intake"
        self.store = self.folder / "store"
        self.saved_runs = self.folder / "runs.cache"
        self.tokens = tokens_path(home)
        self._lock: FileLock | None = None
        self._held = -1
        """The descriptor of the locked folder itself, because a file in it can be removed."""
        self._address = ""
        try:
            _claim(home, self.folder)
            self._held = lock_folder(self.folder)
            self._lock = signed_lock(self.folder / "lock", f"{os.getpid()}\n")
        except ConfigError:
            self.close()
            raise
        except Locked:
            self.close()
            raise ConfigError(_taken(self.folder)) from None
        except OSError as error:
            self.close()
            raise self._unusable(error) from error

    def announce(self, address: str) -> None:
        """Write the hub's address where other commands find it; ConfigError when that fails."""
        if self._lock is not None:
            try:
                self._address = address
                self._lock.sign(f"{os.getpid()} {address}\n")
            except OSError as error:
                raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> ConfigError:
        if is_full(error):
            return ConfigError(full_disk(self.home))
        return ConfigError(
            f"the hub cannot use {error.filename or self.folder}: {error.strerror or error}. "
            "Choose another folder with --home or fix its permissions"
        )

    def problem(self) -> str:
        """Return what is wrong when the opened folder is no longer at its path; else nothing."""
        try:
            if self._held >= 0 and os.path.samestat(os.fstat(self._held), os.stat(self.folder)):
                self._restore_lock()
                return ""
        except (OSError, ValueError, Locked):
            pass
        return f"{self.folder} was deleted, moved or replaced under the hub: put it back, or restart the hub"

    def _restore_lock(self) -> None:
        """Recreate the lock file with the hub's address, if it was removed."""
        lock = self._lock
        if lock is None or lock.is_at(self.folder / "lock"):
            return
        self._lock = signed_lock(self.folder / "lock", f"{os.getpid()}\n")
        if self._address:
            self._lock.sign(f"{os.getpid()} {self._address}\n")
        lock.release()

    def check(self) -> None:
        """Raise Retry when the folder is not at its path: what is written there now would be lost."""
        if problem := self.problem():
            raise Retry(problem, after=10.0)

    @property
    def read_from(self) -> str:
        """The store that the cursors belong to, as given to `forget_cursors`; empty before that."""
        try:
            return (self.folder / "cursors" / "store.of").read_text(encoding="utf-8")
        except OSError:
            return ""

    def forget_cursors(self, store: str) -> None:
        """Make everything be read again, for a store that is new or another than before."""
        place = self.folder / "cursors"
        try:
            (place / "store.json").unlink(missing_ok=True)
            place.mkdir(exist_ok=True)
            (place / "store.of").write_text(store, encoding="utf-8")
        except OSError as error:
            raise self._unusable(error) from error

    def identity(self) -> str:
        """The id of the hub of this home, the same at every start."""
        path = self.folder / "identity"
        try:
            known = path.read_text(encoding="utf-8").strip() if path.exists() else ""
            if not _IDENTITY.fullmatch(known):
                known = secrets.token_hex(8)
                path.write_text(known + "\n", encoding="utf-8")
        except OSError as error:
            raise self._unusable(error) from error
        return known

    def close(self) -> None:
        """Release the folder."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock.sign("")
            self._lock.release()
            self._lock = None
        if self._held >= 0:
            os.close(self._held)
            self._held = -1


def tokens_path(home: Path) -> Path:
    """The file of tokens."""
    return home / "hub" / "tokens.json"


def _claim(home: Path, folder: Path) -> None:
    """Create the folders; ConfigError for a home that holds something else."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (folder / MARKER).is_file():
        return
    present = {name for name in os.listdir(home) if not name.startswith(".")}
    if present and not present & _OURS:
        raise ConfigError(
            f"{home} is not a Stepscope home: it holds {', '.join(sorted(present)[:3])}. "
            "Choose an empty or a new folder with --home"
        )
    folder.mkdir(exist_ok=True, mode=0o700)
    unexpected = set(os.listdir(folder)) - _WITHOUT_MARKER
    if unexpected:
        raise ConfigError(
            f"{folder} is not a hub's folder: it holds {', '.join(sorted(unexpected)[:3])}. "
            "Move it away or choose another --home"
        )
    (folder / MARKER).write_text(_TEXT, encoding="utf-8")


def _taken(folder: Path) -> str:
    """The message that another hub has a folder open."""
    try:
        pid, _, address = (folder / "lock").read_text(encoding="utf-8").strip().partition(" ")
    except OSError:
        pid, address = "", ""
    if not address:
        return (
            f"another hub that is starting, or a command (pid {pid or 'unknown'}), has {folder} open. "
            "Try again when it is done, stop it, or choose another --home"
        )
    return f"another hub (pid {pid}, {address}) has {folder} open. Use that one, stop it, or choose another --home"
