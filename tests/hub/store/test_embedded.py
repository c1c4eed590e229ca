"""The embedded engine: queries, inserts, limits, closing."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("chdb")

PROGRAM = """
import sys
from pathlib import Path
from stepscope.hub.store import embedded

engine = embedded.Chdb(Path(sys.argv[1]) / "store")
known = engine.query("SELECT name FROM system.server_settings")["name"]
print(sorted(set(embedded._SERVER) - set(known)))
engine.close()
"""


def test_every_limit_of_the_engine_is_known_to_it(tmp_path: Path) -> None:
    """It passes over names it does not know, and would then take a thousand threads and gigabytes of caches."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
