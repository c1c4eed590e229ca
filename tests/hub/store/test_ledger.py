"""The ledger's ranges are the set they stand for."""

from hypothesis import given
from hypothesis import strategies as st

from stepscope.hub.store.write.ledger import Ranges


@given(st.lists(st.integers(0, 60), unique=True), st.lists(st.integers(0, 60), unique=True))
def test_ranges_hold_what_was_added(first: list[int], later: list[int]) -> None:
    """Ranges added in any order, copied or loaded, are merged into as few as possible."""
    ranges = Ranges((number, number) for number in first)
    copy = ranges.copy()
    for number in later:
        if number not in copy:
            copy.add(number)
    held = set(first) | set(later)
    assert {number for number in range(61) if number in copy} == held
    assert {number for number in range(61) if number in ranges} == set(first)
    assert sum(1 for number in held if number - 1 not in held) == len(list(copy))
    assert all(low <= number <= high for number in held for low, high in [copy.around(number)])
