"""Imports at first use: a large framework costs only the worker that runs its tests, not each that collects them."""

import importlib
import importlib.util
from typing import Any

import pytest


class _Late:
    """A proxy for a module that is imported when an attribute is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") or attribute == "_mock_name":  # pytest asks whether it is a class or a mock
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


def late(name: str, *needs: str) -> Any:
    """Return a module to be imported at first use; the file is skipped where a package that it needs is missing."""
    for each in needs or (name,):
        if importlib.util.find_spec(each.partition(".")[0]) is None:
            pytest.skip(f"{each} is not installed", allow_module_level=True)
    return _Late(name)
