"""What the programs of a test left in their journal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.testing import read_run


@pytest.fixture
def left(home: Path) -> Callable[[type], list[Any]]:
    """Read back what the test's programs recorded, of one type."""

    def read_back(kind: type) -> list[Any]:
        return [record for record in read_run(home, "e2e") if isinstance(record, kind)]

    return read_back
