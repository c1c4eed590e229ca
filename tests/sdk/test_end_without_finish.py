"""The end of a program that never calls finish; since Python 3.12 no thread starts any more at that time.

`make test-pythons` runs this with every newer interpreter.
"""

import json
from pathlib import Path

import pytest

from tests.conftest import Python

pytest.importorskip("opentelemetry.proto", reason="the server reads OTLP with it")

from tests.sinks.servers import running

COUNT = 200
TRAIN = f"""
    import stepscope
    run = stepscope.init(project="p", shipper="thread")
    for step in range({COUNT}):
        run.log({{"loss": float(step)}}, step=step, category="trainer")
"""


def test_the_end_without_finish(python: Python, home: Path) -> None:
    """A trainer that delivers in threads ends silently; all records arrive, none is refused."""
    with running() as server:
        sinks = json.dumps([{"otlp": {"endpoint": server.url}}])
        done = python(TRAIN, env={"STEPSCOPE_SINKS": sinks}, fresh=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted(server.steps()) == list(range(COUNT))
    assert not (home / "quarantine").exists()
