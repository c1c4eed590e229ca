"""What the programs of a test left in their journal."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.sdk import otel
from stepscope.testing import read_run


@pytest.fixture
def left(home: Path) -> Callable[[type], list[Any]]:
    """Read back what the test's programs recorded, of one type."""

    def read_back(kind: type) -> list[Any]:
        return [record for record in read_run(home, "e2e") if isinstance(record, kind)]

    return read_back


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left() -> Iterator[None]:
    """The process has one set of instruments, and each would go on in the runs of other tests."""
    yield
    meters = otel._providers().meters
    for kept in (meters.series, meters.sources, meters._meters):
        kept.clear()
