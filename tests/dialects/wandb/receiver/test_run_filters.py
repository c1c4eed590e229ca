"""Filters of runs in W&B's public API."""

import math
import time
from typing import Any

import pytest

from stepscope.dialects.wandb.receiver.graphql import GraphQLError
from stepscope.dialects.wandb.receiver.run_filters import matches


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


RUN = {"config": {"lr": 2, "none": None, "deep": {"x": [1]}}, "tags": ["a", "b"], "summary_metrics": {"loss": math.nan}}


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"config.lr": {"$not": {"$gt": 2}}}, True),
        ({"config.lr.value": {"$not": {"$gte": 2}}}, False),
        ({"config.lr": {"$gt": 1, "$lte": 2}}, True),
        ({"config.deep.x": [1]}, True),
        ({"config.none": None}, True),
        ({"config.other": None}, True),
        ({"config.none": {"$exists": True}}, True),
        ({"tags": {"$all": ["b", "a"]}}, True),
        ({"tags": {"$all": ["a", "c"]}}, False),
        ({"tags": {"$nin": ["c"]}}, True),
        ({"tags": "a"}, True),
        ({"summary_metrics.loss": {"$lt": 1}}, False),
        ({"summary_metrics.loss": {"$gte": 1}}, False),
        ({"$nor": [{"tags": "c"}, {"config.lr": 3}]}, True),
        ({"$not": {"$or": [{"tags": "c"}, {"config.lr": 2}]}}, False),
    ],
    ids=str,
)
def test_operators(filters: dict[str, Any], found: bool) -> None:
    """Filters mean what they mean in MongoDB, whose language W&B's API has."""
    assert matches(filters, RUN) is found


@pytest.mark.parametrize("filters", [{"config.lr": {"$size": 1}}, {"$or": "x"}, [], 5, "x"], ids=str)
def test_filters_that_are_not_known_are_refused(filters: Any) -> None:
    """Unknown filters are refused with an error, instead of matching nothing."""
    with pytest.raises(GraphQLError):
        matches(filters, RUN)
    deep: dict[str, Any] = {"$gt": 1}
    for _ in range(100):
        deep = {"$not": deep}
    with pytest.raises(GraphQLError, match="deep"):
        matches({"config.lr": deep}, RUN)


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
