"""The page of publicly named faults: it names kinds and tests that exist, and counts its rows."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from stepscope.diagnosis import registry
from tests.diagnosis import test_failure_classes
from tests.diagnosis.detectors import test_every_kind, test_logged_faults

PAGE = Path(__file__).parents[2] / "docs" / "diagnosis-coverage.md"
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| (\w+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$")
TEST = re.compile(r"`(\w+)(?:\[([\w-]+)\]|::(\w+))`")


def rows() -> list[tuple[str, ...]]:
    """The cells of every row."""
    return [found.groups() for line in PAGE.read_text().splitlines() if (found := ROW.match(line)) is not None]


def test_every_fault_has_a_row_with_a_kind_or_a_reason() -> None:
    """The rows are numbered without a gap; one that is covered names kinds of the engine, another says why not."""
    assert [int(each[0]) for each in rows()] == list(range(1, 154))
    for number, _, source, state, kinds, _, why in rows():
        named = re.findall(r"`(\w+)`", kinds)
        assert source.strip(), number
        assert set(named) <= set(registry.KINDS), number
        assert bool(named) == (state in ("covered", "partly")), number
        assert named or why.strip(), number


def test_every_kind_on_the_page_has_a_test() -> None:
    """Each kind that a row names is asserted by name in a test of the diagnosis."""
    tests = "".join(path.read_text() for path in Path(__file__).parent.rglob("*.py") if path != Path(__file__))
    named = {kind for each in rows() for kind in re.findall(r"`(\w+)`", each[4])}
    assert sorted(kind for kind in named if f'"{kind}"' not in tests) == []


def exists(what: str, case: str, function: str) -> bool:
    """Return whether a test of the page is there."""
    if function:
        here = Path(__file__).parent
        places = (here / f"test_{what}.py", here / "detectors" / f"test_{what}.py")
        return any(f"def {function}(" in place.read_text() for place in places if place.exists())
    cases: dict[str, Iterable[object]] = {
        "zoo": itertools.chain(*test_every_kind.RUNS.values()),
        "logged": [each.id for each in test_logged_faults.CASES],
        "message": [name for _, name in test_failure_classes.MESSAGES],
    }
    return case in cases[what]


def test_every_row_that_is_covered_names_tests_that_exist() -> None:
    """Rows that are covered, or partly, have one or more; the others have none."""
    for number, _, _, state, _, tests, _ in rows():
        named = TEST.findall(tests)
        assert len(named) == len(tests.split()), number
        assert bool(named) == (state in ("covered", "partly")), number
        assert [each for each in named if not exists(*each)] == [], number


def test_the_counts_are_those_of_the_rows() -> None:
    """The sentence at the top counts the rows by state."""
    counts = Counter(each[3] for each in rows())
    said = re.search(r"153 faults: (\d+) covered, (\d+) partly, (\d+) not\.", PAGE.read_text())
    assert said is not None
    assert tuple(map(int, said.groups())) == (counts["covered"], counts["partly"], counts["not"])


def test_kinds_about_values_stand_on_the_page() -> None:
    """Kinds of reinforcement learning, preferences and data that public sources name are on the page."""
    text = PAGE.read_text()
    kinds = (
        "zero_advantage",
        "truncation",
        "mismatch",
        "stale_rollouts",
        "reward_collapse",
        "margin_explosion",
        "too_good",
    )
    assert [kind for kind in kinds if f"`{kind}`" not in text] == []
