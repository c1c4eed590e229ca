"""Run a program and write down which files of the package execute in it, from a signal on: `traced.py OUT ARGUMENTS`.

SIGUSR1 begins (and forgets what ran before); SIGUSR2, and the end of the program, write the files, in the order of
their first call and with the name of their thread, to OUT. Only functions count: a module that is imported and never
called does not execute. Threads of background work that no request waits for do not count either.
"""

import os
import runpy
import signal
import sys
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

BACKGROUND = ("stepscope-diagnosing", "stepscope-alerts", "stepscope-upkeep", "stepscope-tokens", "stepscope-counts")
BACKGROUND += ("stepscope-probes", "stepscope-notify", "stepscope-reaper", "stepscope-diagnosis", "stepscope-on-alert")


class Trace:
    """The files of a package whose functions were called."""

    def __init__(self, package: Path) -> None:
        self._package = f"{package}{os.sep}"
        self.calls: dict[tuple[str, str], None] = {}
        """Threads and files, in the order of the first call."""

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a call; the profile function of all threads."""
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(self._package):
            return
        known = threading.current_thread().name, path.removeprefix(self._package)
        if known not in self.calls and not known[0].startswith(BACKGROUND) and not self._is_import(frame):
            self.calls[known] = None

    def _is_import(self, frame: FrameType) -> bool:
        """Whether a module or a class of the package is being defined, or something that its definition calls."""
        own: FrameType | None = frame
        while own is not None and own.f_code.co_filename.startswith(self._package):
            if not own.f_code.co_flags & CO_OPTIMIZED:
                return own is frame or own.f_globals["__name__"] != "__main__"
            own = own.f_back
        return False

    def start(self) -> None:
        """Trace every thread that is started from now on, and this one."""
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def write(self, path: Path) -> None:
        """Write threads and files, one pair on each line, at once."""
        part = path.with_suffix(".part")
        part.write_text("\n".join(f"{thread}\t{file}" for thread, file in list(self.calls)))
        part.replace(path)


def main() -> None:
    """Trace `python -m stepscope ARGUMENTS`."""
    import stepscope

    out = Path(sys.argv[1])
    trace = Trace(Path(stepscope.__file__).parent)
    signal.signal(signal.SIGUSR1, lambda number, frame: trace.calls.clear())
    signal.signal(signal.SIGUSR2, lambda number, frame: trace.write(out))
    sys.argv = ["stepscope", *sys.argv[2:]]
    trace.start()
    try:
        runpy.run_module("stepscope", run_name="__main__")
    finally:
        trace.write(out)


if __name__ == "__main__":
    main()
