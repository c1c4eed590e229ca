"""How unusual a value or a span is, and what is said of a step."""

import math

import pytest

from stepscope.hub.questions.judging import findings, slow_level, value_level


@pytest.mark.parametrize(
    ("value", "mean", "z", "level"),
    [
        (1.0, 1.0, 0.0, 0), (1.5, 1.0, 2.9, 0), (1.5, 1.0, 3.0, 1), (1.5, 1.0, -6.0, 2), (1.5, 1.0, 10.0, 3),
        (1001.0, 1000.0, 40.0, 1), (math.nan, 1.0, None, 3), (-math.inf, 1.0, None, 3), (5.0, 1.0, None, 0),
    ],
)  # fmt: skip
def test_values_have_a_level(value: float, mean: float, z: float | None, level: int) -> None:
    """By deviations from the mean; a schedule that moves a little, however evenly, is at most notable."""
    assert value_level(value, mean, value - mean, z) == level


@pytest.mark.parametrize(
    ("milliseconds", "usual", "level"),
    [(10, 10, 0), (14.9, 10, 0), (15, 10, 1), (29, 10, 1), (30, 10, 2), (0.9, 0.1, 0), (None, 10, 0), (50, None, 0)],
)
def test_spans_have_a_level(milliseconds: float | None, usual: float | None, level: int) -> None:
    """By how many times the usual they took, when that is a millisecond more at least."""
    took, ordinary = (None if each is None else each * 1e6 for each in (milliseconds, usual))
    assert slow_level(took, ordinary) == level


def test_a_step_is_told_in_sentences() -> None:
    """Alerts, then values that are not finite, values far away, failed spans and the time that was lost."""

    def value(rank: int, level: int, value: float | str, z: float | None) -> dict[str, object]:
        return {"rank": rank, "level": level, "value": value, "z": z, "mean": 1.0, "std": 0.1}

    step = {
        "alerts": [
            {"severity_number": 13, "name": "spike", "rank": 3, "body": "loss 5"},
            {"severity_number": 17, "name": "spike", "rank": 2, "body": "loss 41"},
        ],
        "metrics": [
            {"key": "loss", "values": [value(0, 1, 1.3, 3.0), value(1, 3, 41.5, 405.0)]},
            {"key": "kl", "values": [value(0, 3, "NaN", None), value(1, 3, "NaN", None)]},
        ],
        "ranks": [{"rank": 3, "spans": [{"status": "error", "name": "save", "message": "disk full"}]}],
        "slow": {"text": "step 7 took 2 s", "rank": 1},
    }
    assert [(each["kind"], each["text"]) for each in findings(step)] == [
        ("alert", "spike on ranks 2, 3: loss 41"),
        ("value", "kl is NaN on all ranks"),
        ("value", "loss is 41.5 on rank 1, usually 1 ± 0.1 (+405 σ)"),
        ("error", "save failed on rank 3: disk full"),
        ("slow_step", "step 7 took 2 s"),
    ]
