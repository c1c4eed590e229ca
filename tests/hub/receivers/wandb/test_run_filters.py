"""Filters of runs in W&B's public API."""

import time

import pytest

from stepscope.hub.receivers.wandb.graphql import GraphQLError
from stepscope.hub.receivers.wandb.run_filters import matches


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^name[12]$", "name2", True),
        ("^name[12]$", "name3", False),
        (".*seed.*", "a seed 1", True),
        (r"lr=\d+\.\d+", "lr=0.1", True),
        ("(foo|bar)-[0-9]{2}", "bar-12", True),
        ("2026-01-02", "on 2026-01-02", True),
        ("[]a*]*b", "]]b", True),
    ],
)
def test_regular_expressions(pattern: str, text: str, found: bool) -> None:
    """`$regex` finds what a regular expression finds."""
    assert matches({"display_name": {"$regex": pattern}}, {"display_name": text}) is found


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+b", "a" * 60),
        ("x*x*x*y", "x" * 4000),
        ("a?" * 60 + "a" * 60, "a" * 60),
        ("(a|a)" * 60 + "b", "a" * 60),
        ("x{0,99}" * 5 + "y", "x" * 500),
        (r"(a*)\1b", "a" * 60),
        ("[", "a"),
    ],
)
def test_no_pattern_takes_long(pattern: str, text: str) -> None:
    """A pattern that could take exponential time, or is not valid, is refused with an error that names it."""
    began = time.process_time()
    with pytest.raises(GraphQLError, match=r"pattern|regular expression"):
        matches({"display_name": {"$regex": pattern}}, {"display_name": text})
    assert time.process_time() - began < 1
