"""Families as text, in both formats, and which of them a scraper gets."""

import math

import pytest

from stepscope.model.records import ExponentialHistogram, Histogram, Summary
from stepscope.wire.openmetrics import (
    Family,
    choose,
    expose,
    label_name,
    labels_of,
    metric_name,
    write_help,
    write_labels,
    write_number,
)

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
    """Both formats have the same samples and differ only in metadata."""
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


@pytest.mark.parametrize(
    ("key", "namespace", "name"),
    [
        ("trainer/loss", "", "trainer_loss"),
        ("trainer/loss", "ns", "ns_trainer_loss"),
        ("ns_trainer_loss", "ns", "ns_trainer_loss"),
        ("lr (group 0)", "", "lr__group_0_"),
        ("1st", "", "_1st"),
        ("1st", "ns", "ns_1st"),
        ("損失", "", "u640du5931"),
    ],
)
def test_names(key: str, namespace: str, name: str) -> None:
    """What Prometheus does not know is an underscore, letters of other scripts stay apart."""
    assert metric_name(key, namespace) == name


def test_label_names() -> None:
    """Two underscores in front are Prometheus's own."""
    assert [label_name(key) for key in ("a.b", "__name__", "9", "größe")] == ["a_b", "name__", "_9", "gru00f6u00dfe"]


def test_labels() -> None:
    """Values are text; a step is none; long ones are cut visibly."""
    found, clashes = labels_of({"ok": True, "n": 3, "l": ["a"], "step": 7, "statsd.rate": 0.5, "long": "x" * 9999})
    assert (found["ok"], found["n"], found["l"]) == ("true", "3", '["a"]')
    assert ("step" in found, clashes) == (False, 0)
    assert (len(found["long"]), found["long"][-1]) == (1024, "…")


def test_escapes() -> None:
    """Quotes, backslashes and line ends in labels; quotes in a description for OpenMetrics alone."""
    assert write_labels({"a": 'x"y\\z\nw', "b": "ü"}) == '{a="x\\"y\\\\z\\nw",b="ü"}'
    assert write_labels({}) == ""
    assert write_help('a "b"\n', quotes=True) == 'a \\"b\\"\\n'
    assert write_help('a "b"\n', quotes=False) == 'a "b"\\n'


def test_numbers() -> None:
    """NaN and infinities have words, integers no point."""
    shown = [write_number(value) for value in (math.nan, math.inf, -math.inf, 0.5, 3, True, 1e-9)]
    assert shown == ["NaN", "+Inf", "-Inf", "0.5", "3", "1", "1e-09"]
