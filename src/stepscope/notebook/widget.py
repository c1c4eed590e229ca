"""The widget of a view: the kernel reads the runs and sends what changed, so the browser needs no way to the hub."""

import threading
import weakref
from collections import deque
from typing import Any

import anywidget
import traitlets

from stepscope.notebook.cell_document import WEB, document
from stepscope.notebook.view import View

SECONDS = 2.0
"""Between two looks at runs that go on."""
READ_SECONDS = 0.1
"""How long a look reads the journals of a run, beside a training loop in the same process."""
MAX_FOLLOWING = 8
"""Views of a kernel that follow their runs; the oldest stays as it is when there are more."""
_following: "deque[threading.Event]" = deque()


class Live(anywidget.AnyWidget):
    """A view that follows its runs until they have ended, it is closed, or there are too many newer ones."""

    _esm = (WEB / "notebook" / "widget.js").read_text(encoding="utf-8")
    page = traitlets.Unicode().tag(sync=True)
    view = traitlets.Dict().tag(sync=True)
    height = traitlets.Int().tag(sync=True)

    def __init__(self, view: View, height: int) -> None:
        super().__init__(page=document(view.last), view=view.last, height=height)
        self._closing = threading.Event()
        _following.append(self._closing)
        while len(_following) > MAX_FOLLOWING:
            _following.popleft().set()
        self.following = threading.Thread(
            target=_follow, args=(weakref.ref(self), view, self._closing), name="stepscope-notebook", daemon=True
        )
        self.following.start()

    def close(self) -> None:
        """Stop following, and leave the notebook."""
        self._closing.set()
        super().close()


def _follow(widget: "weakref.ref[Live]", view: View, closing: threading.Event) -> None:
    """Read the runs again and again; the last look is after their end."""
    ended = view.ended
    while not closing.wait(SECONDS):
        before: Any = view.last
        after = view.read(READ_SECONDS)
        shown = widget()
        if shown is None or closing.is_set():
            return
        if after != before:
            shown.view = after
        elif ended:
            return
        ended = view.ended
        del shown
