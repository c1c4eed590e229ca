"""Texts that people edit on the page, as documents that several hubs share."""

import contextlib
from collections.abc import Callable

from stepscope.hub.fleet.shared_state import SharedState
from stepscope.hub.refusals import Refused
from stepscope.hub.store.cluster.documents import DocumentWrite
from stepscope.hub.texts import TextFiles, check_version


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
