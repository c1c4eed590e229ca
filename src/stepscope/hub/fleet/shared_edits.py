"""Edits and deletions of runs that all hubs of a store share."""

from collections.abc import Callable, Sequence

import msgspec

from stepscope.hub.fleet.shared_state import SharedState
from stepscope.hub.store.cluster.documents import Document, DocumentWrite
from stepscope.journal.run_edits import Edits
from stepscope.model.run_description import Edit

KIND = "edit"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Edit).decode


class SharedEdits:
    """Keeps the edits of a home for all hubs, and brings those of the others; none replaces another."""

    def __init__(self, state: SharedState, edits: Edits, on_deletion: Callable[[Sequence[str]], object]) -> None:
        self._state, self._edits, self._on_deletion = state, edits, on_deletion
        self._shared: list[Edit] | None = None
        """The edits on disk that are shared."""
        state.listen(KIND, self._take)
        self._edits.add(map(_of, state.all(KIND).values()))
        edits.share_with(lambda edit: state.write(_document(edit)))

    def sync(self) -> None:
        """Share what commands wrote to the home; Retry when that must wait."""
        written = self._edits.written()
        if written is not self._shared:
            known = self._state.known(KIND)
            self._state.write(*(_document(edit) for edit in written if edit.id not in known))
            self._shared = written

    def _take(self, found: Sequence[Document]) -> None:
        edits = [_of(each) for each in found if not each.deleted]
        self._edits.add(edits)
        if deleted := [edit.run for edit in edits if edit.deleted]:
            self._on_deletion(deleted)


def _document(edit: Edit) -> DocumentWrite:
    return DocumentWrite(KIND, edit.id, _encode(edit).decode())


def _of(document: Document) -> Edit:
    return _decode(document.value)
