"""Stands for chDB in `pytest.importorskip("tests.chdb")`: the engine starts threads when it is imported.

Tests are collected in a process that is forked afterwards, and a fork has no threads but one.
"""

import importlib.util

if importlib.util.find_spec("chdb") is None:
    raise ModuleNotFoundError("chDB is not installed")
