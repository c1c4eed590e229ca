"""How a batch is read: the short way for the usual form and the careful one for any other agree."""

import math
from typing import Any

import pytest

from stepscope.dialects.mlflow.receiver.names_and_limits import Point, read_batch
from stepscope.dialects.mlflow.receiver.request_fields import Fields
from stepscope.hub.refusals import Refused
from stepscope.model.records import FIRST_STEP, LAST_STEP

T = 1_700_000_000_000
USUAL = {"key": "loss", "value": 0.5, "timestamp": T, "step": 3}
FAR = 2**63


def read(*items: Any) -> tuple[list[Point], int]:
    """Read metrics; also how many of their values were read as NaN."""
    _, batch = read_batch(Fields({"run_id": "a" * 32, "metrics": list(items)}))
    return list(batch.points), batch.read_as_nan


@pytest.mark.parametrize(
    ("change", "wanted", "read_as_nan"),
    [
        ({}, Point("loss", 0.5, T, 3), 0),
        ({"value": 7}, Point("loss", 7.0, T, 3), 0),
        ({"value": 2**60 + 1}, Point("loss", float(2**60 + 1), T, 3), 0),
        ({"value": "1e3"}, Point("loss", 1000.0, T, 3), 0),
        ({"value": "Infinity"}, Point("loss", math.inf, T, 3), 0),
        ({"value": 10**400}, Point("loss", math.inf, T, 3), 0),
        ({"timestamp": str(T), "step": "4"}, Point("loss", 0.5, T, 4), 0),
        ({"step": None}, Point("loss", 0.5, T, 0), 0),
        ({"step": "1e2"}, Point("loss", 0.5, T, 100), 0),
        ({"step": False}, Point("loss", 0.5, T, 0), 0),
        ({"step": FIRST_STEP}, Point("loss", 0.5, T, FIRST_STEP), 0),
        ({"step": LAST_STEP}, Point("loss", 0.5, T, LAST_STEP), 0),
        ({"key": "Verlust é"}, Point("Verlust é", 0.5, T, 3), 0),
        ({"model_id": "m"}, Point("loss", 0.5, T, 3, "m"), 0),
    ],
)
def test_values_are_the_same_in_any_form(change: Any, wanted: Point, read_as_nan: int) -> None:
    """A value is read as it is meant, alone and beside values of the usual form."""
    assert read({**USUAL, **change}) == ([wanted], read_as_nan)
    assert read(USUAL, {**USUAL, **change}) == ([Point("loss", 0.5, T, 3), wanted], read_as_nan)


def test_nan_is_counted() -> None:
    """A bare NaN and a null are NaN and counted; NaN as a string is NaN."""
    for value, read_as_nan in ((math.nan, 1), (None, 1), ("NaN", 0)):
        (_, point), found = read(USUAL, {**USUAL, "value": value})
        assert math.isnan(point.value)
        assert found == read_as_nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": ["x"]}, "Hint: Value was of type 'list'"),
        ({"step": []}, "Hint: Value was of type 'list'"),
        ({"step": {}}, "Hint: Value was of type 'dict'"),
        ({"step": "1.5"}, "Hint: Value was of type"),
        ({"key": ""}, "Missing value for required parameter 'metrics[1].key'"),
        ({"key": "a//b"}, "This name would resolve to 'a/b'"),
        ({"key": "x" * 251}, "'Metric name' exceeds the maximum length of 250"),
        ({"value": True, "key": "a?"}, "Names may only contain"),
        ({"value": {}}, "Hint: Value was of type 'dict'"),
        ({"value": "\ud800"}, "for parameter 'metrics[1].value'"),
        ({"timestamp": "\ud800"}, "for parameter 'metrics[1].timestamp'"),
        ({"timestamp": -1}, "Timestamp must be a nonnegative long"),
        ({"timestamp": FAR}, "for parameter 'metrics[1].timestamp'"),
        ({"timestamp": None}, "Missing value for required parameter 'metrics[1].timestamp'"),
        ({"step": 0.5}, "Hint: Value was of type 'float'"),
        ({"step": FIRST_STEP - 1}, "for parameter 'metrics[1].step'"),
        ({"step": str(-FAR)}, "for parameter 'metrics[1].step'"),
        ({"step": FAR}, "for parameter 'metrics[1].step'"),
    ],
)
def test_one_wrong_value_refuses_the_batch(change: Any, message: str) -> None:
    """The message names the item, also beside values of the usual form."""
    with pytest.raises(Refused) as error:
        read(USUAL, {**USUAL, **change})
    assert message in error.value.refusal.message
