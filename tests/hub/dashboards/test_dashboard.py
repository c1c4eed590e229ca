"""The YAML of dashboards: what is right is read, mistakes are reported with their line."""

import contextlib
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.hub.dashboards.dashboard import BUILTIN, LONGEST, Mistake, builtin, parse


@pytest.mark.parametrize("name", BUILTIN)
def test_built_in(name: str) -> None:
    """The built-in dashboards are right."""
    assert parse(builtin(name)).charts


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("", 1, "the document is empty"),
        ("- a\n- b\n", 1, "names with values"),
        ("title: A\n", 1, "charts"),
        ("charts: []\n", 1, "title"),
        ("title: A\ncharts: []\n", 2, "needs charts or a text"),
        ("title: A\ncharts:\n  - title: B\n", 3, "needs keys, spans or expressions"),
        ('title: A\ncharts:\n  - expressions: ["{a} -"]\n', 3, "expected a metric or a number at the end"),
        ("title: A\ncharts:\n  - keys: [a]\n  - keys: 3\n", 4, "a list"),
        ("title: A\ncharts:\n  - keys: [a]\n    colour: red\n", 4, "colour"),
        ("title: A\ncharts:\n  - keys: [a]\n    bands:\n      - {from: low}\n", 5, "a number"),
        ("title: A\ncharts:\n  - keys: [a]\n    bands:\n      - {from: .nan}\n", 3, "finite"),
        ("title: A\ncharts:\n  - keys: [a]\n    quantiles: [50]\n", 3, "from 0 to 1"),
        ("title: A\ntitle: B\ncharts: []\n", 2, "twice"),
        ("title: A\ncharts: &c\n  - keys: [a]\nmore: *c\n", 4, "anchors and aliases"),
        ("title: A\ncharts:\n  - keys: [a\n  - keys: [b]\n", 4, "expected"),
        ("title: A\n\tcharts: []\n", 2, "'\\t'"),
        ("title: A\nx: sideways\ncharts: []\n", 2, "sideways"),
        ("title: 2026-01-01\ncharts: []\n", 1, "a text"),
        ("title: !!python/object:os.system A\ncharts: []\n", 1, "cannot be read"),
        ("a: " + "[" * 5000, 1, ""),
        ("title: " + "A" * LONGEST, 1, "characters"),
    ],
)
def test_mistakes(text: str, line: int, word: str) -> None:
    """Each is described in plain words, at its line."""
    with pytest.raises(Mistake) as told:
        parse(text)
    assert (told.value.line, word in str(told.value)) == (line, True), str(told.value)


@given(st.text(max_size=60) | st.text(alphabet="title: charts-[]{}&*!|>\n'\"#,ab1.", max_size=80))
def test_nothing_but_mistakes_is_raised(text: str) -> None:
    """Any text is parsed as a dashboard or reported as an error."""
    with contextlib.suppress(Mistake):
        parse(text)


def test_many_threads_may_read_at_once() -> None:
    """The first readings may come from several threads together."""
    texts = [builtin(name) for name in BUILTIN] * 4
    threads = [threading.Thread(target=parse, args=(text,), daemon=True) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not any(thread.is_alive() for thread in threads)
