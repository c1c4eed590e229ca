"""Families as text, in both formats, and which of them a scraper gets."""

import pytest

from stepscope.model.records import ExponentialHistogram, Histogram, Summary
from stepscope.wire.openmetrics.exposition import Family, choose, expose

HISTOGRAM = Histogram(3, 6.5, 1.0, 4.0, (1.0, 2.5), (1, 1, 1))
FAMILIES = [
    Family("loss", "gauge", 'the "loss"', [({"run": "a"}, 0.5), ({"run": "b"}, float("nan"))]),
    Family("tokens_total", "counter", "", [({}, 7)]),
    Family("wait", "histogram", "", [({"run": "a"}, HISTOGRAM)]),
    Family("size", "summary", "", [({}, Summary(2, 3.0, ((0.5, 1.5),)))]),
    Family("time", "summary", "", [({}, Histogram(4, None, None, None, (), (4,)))]),
    Family("odd", "summary", "", [({}, ExponentialHistogram(5, 2.0, None, None, 0, 5, 0.0, 0, ()))]),
]
SAMPLES = """loss{run="a"} 0.5
loss{run="b"} NaN
tokens_total 7
wait_bucket{run="a",le="1.0"} 1
wait_bucket{run="a",le="2.5"} 2
wait_bucket{run="a",le="+Inf"} 3
wait_count{run="a"} 3
wait_sum{run="a"} 6.5
size{quantile="0.5"} 1.5
size_count 2
size_sum 3.0
time_count 4
odd_count 5
odd_sum 2.0"""


def test_samples_are_the_same_in_both() -> None:
    """Only what is said about them differs."""
    for form in ("openmetrics", "text"):
        text = expose(FAMILIES, form).decode()
        assert "\n".join(line for line in text.splitlines() if not line.startswith("#")) == SAMPLES
        assert text.endswith("\n")


def test_openmetrics() -> None:
    """A counter is described without its suffix, and the end is marked."""
    text = expose(FAMILIES, "openmetrics").decode()
    assert '# HELP loss the \\"loss\\"\n# TYPE loss gauge\n' in text
    assert "# TYPE tokens counter\n" in text
    assert text.endswith("\n# EOF\n")
    assert expose([], "openmetrics") == b"# EOF\n"


def test_the_older_text() -> None:
    """A counter is described with its suffix; nothing is nothing."""
    text = expose(FAMILIES, "text").decode()
    assert '# HELP loss the "loss"\n' in text
    assert "# TYPE tokens_total counter\n" in text
    assert "EOF" not in text
    assert expose([], "text") == b""


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "text"),
        ("*/*", "text"),
        ("application/openmetrics-text", "openmetrics"),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", "openmetrics"),
        ("text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.2", "text"),
        ("application/openmetrics-text;version=9.0.0,text/plain;q=0.1", "text"),
        ("application/openmetrics-text;q=0", "text"),
        ("application/json;q=1;;=,,;", "text"),
        ("application/openmetrics-text;q=x", "text"),
    ],
)
def test_accept(accept: str, form: str) -> None:
    """What the scraper likes best of what we have."""
    assert choose(accept) == form
