"""Names, labels and numbers as Prometheus spells them."""

import math

import pytest

from stepscope.wire.openmetrics.spelling import (
    label_name,
    labels_of,
    metric_name,
    write_help,
    write_labels,
    write_number,
)


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
