"""Requests to programs: the last one counts, in whatever order they arrive, and values keep their types."""

import math
from itertools import permutations
from typing import Any

import pytest

from stepscope.model.run_requests import Asked, Request, Requests, asked_of, fitting, kind_of, merged_all


def test_the_last_request_counts_in_any_order() -> None:
    """Of two requests to stop, and of two for one setting, the later one counts; merging again changes nothing."""
    several = [
        asked_of("a", 1, "ada", Request(attempt=1, stop=True, settings={"lr": 1.0, "k": 2})),
        asked_of("b", 2, "bob", Request(attempt=1, settings={"lr": 0.5})),
        asked_of("c", 3, "eve", Request(attempt=2, stop=True)),
    ]
    (found,) = {merged_all([*order, *order]).settings["lr"].id for order in permutations(several)}
    assert found == "b"
    now = merged_all(several)
    assert (now.stop and now.stop.who, now.settings["k"].value, bool(now), bool(Requests())) == ("eve", 2, True, False)


def test_a_user_name_is_shortened() -> None:
    """A program gets no more of a name than it keeps."""
    found = asked_of("a", 1, "x" * 1000, Request(attempt=1, stop=True)).stop
    assert isinstance(found, Asked)
    assert len(found.who) == 256


@pytest.mark.parametrize(
    ("declared", "value", "wanted"),
    [(1.0, 2, 2.0), (1.0, 0.5, 0.5), (1, 3, 3), (True, False, False), ("a", "b", "b")],
)
def test_values_that_fit(declared: Any, value: Any, wanted: Any) -> None:
    """A value of the declared type is taken; an integer where a number was declared becomes one."""
    assert (fitting(declared, value), type(fitting(declared, value))) == (wanted, type(wanted))


@pytest.mark.parametrize(
    ("declared", "value"),
    [(1, 1.5), (1, True), (True, 1), (1.0, "1"), ("a", 1), (1.0, math.nan), (1.0, math.inf), (1.0, 2**60),
     (1.0, None), (1.0, [1.0]), ("a", "x" * 2000), (None, 1)],
)  # fmt: skip
def test_values_that_do_not_fit(declared: Any, value: Any) -> None:
    """Another type, a number without a size, and a long text are refused in words."""
    with pytest.raises(ValueError, match="must be"):
        fitting(declared, value)


def test_what_can_be_a_live_setting() -> None:
    """Finite numbers, short texts, True and False, and nothing else."""
    assert [kind_of(each) is not None for each in (True, 1, 0.5, "a")] == [True] * 4
    assert [kind_of(each) for each in (None, math.nan, b"a", [1], {}, "x" * 2000, 2**60)] == [None] * 7
