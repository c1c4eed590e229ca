"""The embedded engine: queries, inserts, limits, closing."""

import subprocess
import sys

import pytest

pytest.importorskip("chdb")

PROGRAM = """
import sys
from pathlib import Path
from stepscope.hub.store import embedded

engine = embedded.Chdb(Path(sys.argv[1]) / "store")
known = engine.query("SELECT name FROM system.server_settings")["name"]
print(sorted(set(embedded._SERVER) - set(known)))
for many in range(100, 110):
    engine.query(f"SELECT number % 7 AS n, min(number), sum(number) FROM numbers({many}) GROUP BY n ORDER BY n")
print(engine.query("SELECT sum(value) AS n FROM system.events WHERE event = 'CompileFunction'").one("n"))
engine.close()
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What an engine says of itself, in a process of its own: one process opens one folder."""
    line = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("engine"))]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()


def test_every_limit_of_the_engine_is_known_to_it(said: list[str]) -> None:
    """It passes over names it does not know, and would then take a thousand threads and gigabytes of caches."""
    assert said[0] == "[]"


def test_a_query_that_ran_ten_times_is_not_compiled(said: list[str]) -> None:
    """Compiling costs more than short queries take; those of a page that is open for hours are compiled."""
    assert said[1] == "0"
