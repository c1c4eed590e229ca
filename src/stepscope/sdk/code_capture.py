"""The uncommitted changes of the working tree, recorded once as a file of the run: git works on a thread of its own."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from stepscope.sdk.context import NO_MARK
from stepscope.sdk.run_protocols import Part
from stepscope.sdk.tensors import Row

if TYPE_CHECKING:
    from stepscope.sdk.media_values.medium import Medium

MAX_BYTES, MAX_SECONDS = 1024 * 1024, 10.0
"""Limits on the changes that are recorded, and on the time that git may take."""
LEAVE_SECONDS = 1.0
"""How long the end of a run waits for git."""
KEY, NAME = "code/diff", "diff.patch"
_DIFF = ("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv")


class CodedPart(Part, Protocol):
    """A process's part in a run that records media."""

    def put_media(self, media: "Sequence[tuple[str, Medium]]", row: Row, first: int = 0) -> None:
        """Record media."""


def capture(run: CodedPart, folder: str) -> Callable[[], None]:
    """Record what differs from the commit in a folder; returns what waits for it a moment, for the end of the run."""
    thread = threading.Thread(target=_record, args=(run, folder), name="stepscope-code", daemon=True)
    thread.start()
    return lambda: thread.join(LEAVE_SECONDS)


def _record(run: CodedPart, folder: str) -> None:
    from stepscope.model.redaction import redact
    from stepscope.sdk.media_values.kinds import File

    try:
        changes, problem = read_changes(folder)
    except OSError as error:
        changes, problem = b"", f"git cannot be started: {error}"
    if problem:
        run.outcomes.notice("code", problem, f"uncommitted changes are not recorded in full: {problem}")
    if not changes:
        return
    lines = changes.decode("utf-8", "replace").split("\n")
    masked = "\n".join(str(redact(line)) for line in lines)
    many = sum(line.startswith("diff --git ") for line in lines)
    caption = problem or f"{many} changed file{'s' * (many != 1)}"
    run.put_media([(KEY, File(masked.encode(), NAME, caption))], Row(time.time_ns(), *NO_MARK, None, {}))


def read_changes(folder: str) -> tuple[bytes, str]:
    """Return what `git diff HEAD` prints in a folder, up to a limit, and what is missing of it, if anything."""
    import subprocess

    line = ("git", "-C", folder, *_DIFF)
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    nothing = subprocess.DEVNULL
    with subprocess.Popen(line, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing, env=env) as git:
        assert git.stdout is not None
        try:
            return _read(git.stdout.fileno())
        finally:
            git.kill()


def _read(pipe: int) -> tuple[bytes, str]:
    import selectors  # not `select`, which refuses a pipe beside a thousand open files

    found, until = bytearray(), time.monotonic() + MAX_SECONDS
    with selectors.DefaultSelector() as waiting:
        waiting.register(pipe, selectors.EVENT_READ)
        while len(found) <= MAX_BYTES:
            if not waiting.select(max(0.0, until - time.monotonic())):
                return bytes(found), f"git took longer than {MAX_SECONDS:.0f} s"
            part = os.read(pipe, 65536)
            if not part:
                return bytes(found), ""
            found += part
    return bytes(found[:MAX_BYTES]), f"there are more than {MAX_BYTES // 1024} KiB of them"
