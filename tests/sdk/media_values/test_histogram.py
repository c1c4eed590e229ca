"""What a device counts is what numpy counts on the host; the same code runs on tensors of the CPU."""

from typing import Any

import numpy as np
import pytest

from stepscope.sdk.media_values import histogram
from tests.late import late

torch = late("torch")
MANY = 1000


def _values(kind: str) -> Any:
    chance = np.random.default_rng(5)
    return {
        "normal": chance.normal(size=MANY),
        "positive": chance.exponential(size=MANY),
        "whole": chance.integers(-5, 6, MANY),
        "equal": np.full(MANY, 3.0),
        "holes": np.where(chance.random(MANY) < 0.3, [np.nan, np.inf, -np.inf, 0.5] * (MANY // 4), 2.0),
        "none": np.full(MANY, np.nan),
        "one": np.array([7.0]),
        "wide": chance.normal(size=MANY) * 1e30,
    }[kind]


@pytest.mark.parametrize("chunk", [histogram.CHUNK, 64])
@pytest.mark.parametrize("kind", ["normal", "positive", "whole", "equal", "holes", "none", "one", "wide"])
def test_a_tensor_is_counted_as_an_array(kind: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole or in parts: equal counts, bounds, ends and sums, and no distribution of no number."""
    monkeypatch.setattr(histogram, "CHUNK", chunk)
    values = _values(kind)
    found = histogram.from_tensor(histogram.count_tensor(torch.tensor(values), 16).numpy())
    wanted = histogram.from_values(values, 16)
    if wanted is None:
        assert found is None
        return
    assert found is not None
    assert (found.count, found.low, found.high) == (wanted.count, wanted.low, wanted.high)
    assert found.total == (None if wanted.total is None else pytest.approx(wanted.total, rel=1e-12))
    assert found.bounds == pytest.approx(wanted.bounds, rel=1e-12)
    assert sum(abs(a - b) for a, b in zip(found.counts, wanted.counts, strict=True)) <= (2 if kind == "whole" else 0)


def test_short_floats_and_layouts() -> None:
    """Numbers of 16 bits are counted as what they are, and a view that is not in one piece as its numbers."""
    half = torch.arange(100, dtype=torch.bfloat16).reshape(10, 10)
    for tensor in (half, half.t(), half[:, ::2]):
        found = histogram.from_tensor(histogram.count_tensor(tensor, 10).numpy())
        assert found is not None
        wanted = histogram.from_values(tensor.float().numpy(), 10)
        assert wanted is not None
        assert (found.count, found.counts) == (wanted.count, wanted.counts)
