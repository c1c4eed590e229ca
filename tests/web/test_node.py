"""Functions of the page that need no browser, tested in Node: formatting, scales, marks, reading, following, search."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from stepscope.hub.serving.page import WEB

NODE = shutil.which("node")
TESTS = sorted((Path(__file__).parent / "node").glob("*.test.js"))
CASES = [Path(__file__).parents[1] / "model" / name for name in ("last_value.json", "invisible.json")]
"""What Python and the page are both tested with."""
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed (apt-get install nodejs)")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the page's modules that Node takes for modules, with the tests beside them."""
    folder = tmp_path_factory.mktemp("node") / "web"
    shutil.copytree(WEB, folder, ignore=shutil.ignore_patterns("*.woff2"))
    shutil.copytree(TESTS[0].parent, folder / "node")
    for each in CASES:
        shutil.copy(each, folder / "node")
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


@pytest.mark.parametrize("name", [path.name for path in TESTS])
def test_functions_without_a_browser(place: Path, name: str) -> None:
    """Each test file passes in Node."""
    line = [str(NODE), "--import", "./node/globals.js", "--test-reporter=tap", f"node/{name}"]
    done = subprocess.run(line, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^# pass [1-9]", done.stdout, re.MULTILINE)
