"""Attributes come back from their three columns as they were."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.hub.store import attrs
from stepscope.hub.store.write.catalog import label

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.binary()
NESTED = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))


@given(st.dictionaries(TEXT, NESTED))
def test_any_attributes_come_back(values: dict[str, Any]) -> None:
    """Attributes keep their types at any nesting; where none has any, there are no columns."""
    block = attrs.block([{}, values])
    encoded = [attrs.encode_value(value) for value in values.values()]
    assert [len(column) for column in block.values()] == ([2, 2, 2] if values else [])
    restored = attrs.restore(values, [text for _, text in encoded], "".join(letter for letter, _ in encoded))
    assert restored == values
    assert [type(value) for value in restored.values()] == [type(value) for value in values.values()]


def test_what_is_not_finite_comes_back() -> None:
    """Alone and in lists."""
    assert math.isnan(attrs.decode_value(*attrs.encode_value(math.nan)))
    assert attrs.decode_value(*attrs.encode_value([math.inf, -math.inf])) == [math.inf, -math.inf]


def test_other_objects_are_refused() -> None:
    """Nothing is stored as its repr."""
    with pytest.raises(TypeError, match="object"):
        attrs.encode_value([object()])


def test_exemplars_make_no_new_series() -> None:
    """Two points that differ only in their exemplars belong to one series."""
    assert label({"gpu": 1, "otel.exemplars": [{"value": 2.0}]}) == label({"gpu": 1})
    assert label({"otel.exemplars": []}) == label({})
