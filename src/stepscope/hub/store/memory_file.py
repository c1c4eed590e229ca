"""A file in memory, which the embedded engine reads by its path."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def memory_file(data: bytes) -> Iterator[str]:
    """Make data readable by the engine under a path: in memory where the system can, else in a file."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
        return
    place = os.memfd_create("stepscope")
    try:
        written = 0
        while written < len(data):
            written += os.write(place, memoryview(data)[written:])
        yield f"/proc/self/fd/{place}"
    finally:
        os.close(place)
