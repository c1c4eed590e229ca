"""Every test has a lane, and CI runs all of them."""

import re
from pathlib import Path

from tests.lanes import CHAOS, CORE_ANYWAY, DIVIDED, LANES, PAGE, WORLDS, group_of, lane_of, place_of, world_of

ROOT = Path(__file__).resolve().parents[1]


def test_every_path_of_a_lane_exists() -> None:
    """A file that was moved or renamed does not fall back into `make test` unnoticed."""
    shared = [path for world in WORLDS for path in world]
    assert [path for path in (*PAGE, *CHAOS, *CORE_ANYWAY, *DIVIDED, *shared) if not (ROOT / path).exists()] == []


def test_every_file_with_a_browser_is_in_a_world() -> None:
    """A browser is closed with its world, so none keeps its event loop open for the files that follow."""
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "web").rglob("test_*.py")]
    without = {"tests/web/test_node.py", "tests/web/test_texts.py"}
    assert {path for path in files if world_of(path) is None} == without


def test_worlds_begin_first_and_in_their_order() -> None:
    """Each world is begun before those listed after it, and all before other files, so none is left at the end."""
    paths = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    groups = list(dict.fromkeys(group_of(f"{path}::test") for path in sorted(paths, key=place_of)))
    assert groups[: len(WORLDS)] == [each[0] for each in WORLDS]
    lanes = [lane_of(path) for path in groups[len(WORLDS) :]]
    assert lanes == sorted(lanes, key=LANES.index)
    assert set(lanes) == {"chaos", "core"}


def test_tests_of_a_divided_file_are_run_by_any_worker() -> None:
    """Each is a group of its own; those of other files stay together."""
    assert DIVIDED
    for path in DIVIDED:
        assert world_of(path) is None
        assert group_of(f"{path}::test[a]") != group_of(f"{path}::test[b]")
    assert group_of("tests/model/test_records.py::one") == group_of("tests/model/test_records.py::other")


def test_one_pass_over_the_page_is_in_the_quick_lane() -> None:
    """`make test` opens every view in a browser; the rest of the browser's tests have a lane of their own."""
    assert lane_of("tests/web/test_every_view.py") == "core"
    assert lane_of("tests/web/test_step.py") == "page"
    assert lane_of("tests/e2e/test_sigkill.py") == "chaos"
    assert lane_of("tests/model/test_records.py") == "core"


def test_ci_runs_every_lane() -> None:
    """What `.ci/run` makes runs the tests of all lanes at once, and each lane has a target of its own."""
    assert re.search(r"make\b.*\stest-all(\s|$)", (ROOT / ".ci" / "run").read_text())
    targets = {"core": "test", "page": "test-page", "chaos": "test-chaos"}
    assert set(targets) == set(LANES)
    makefile = (ROOT / "Makefile").read_text()
    for lane, target in targets.items():
        assert re.search(rf"^{target}: .*\n\t@\$\(pytest\) -m {lane} ", makefile, re.MULTILINE)
    assert re.search(r"^test-all: .*\n\t@\$\(pytest\) \$\(ARGS\)", makefile, re.MULTILINE)
