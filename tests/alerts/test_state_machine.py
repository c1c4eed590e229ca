"""The state machine of an alert."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.alerts.rule import Rule, compile_rule
from stepscope.alerts.state_machine import NS, STATES, Machine

NAN = math.nan


def states_of(rule: Rule, values: Sequence[float], *, steps: bool = True, every: int = NS) -> list[str]:
    """Feed one value each second, and tell the state after each."""
    machine = Machine(compile_rule(rule))
    found = []
    for index, value in enumerate(values):
        machine.take(index * every, index if steps else None, value)
        found.append(machine.state)
    return found


@pytest.mark.parametrize(
    ("rule", "values", "states"),
    [
        (Rule(name="a", when="> 5"), [1, 6, 1, 6], "inactive firing resolved firing"),
        (Rule(name="a", when="> 5", hold="3 steps"), [6, 6, 6, 1], "pending pending firing resolved"),
        (Rule(name="a", when="> 5", hold="3 steps"), [6, 6, 1, 6], "pending pending inactive pending"),
        (Rule(name="a", when="> 5", hold="2s"), [6, 6, 6, 1], "pending pending firing resolved"),
        (Rule(name="a", when="> 5", recovery=3), [6, 4, 3, 4], "firing firing resolved resolved"),
        (Rule(name="a", when="< 5", recovery=7), [4, 6, 8], "firing firing resolved"),
        (
            Rule(name="a", when="> 5", keep_firing="2 steps"),
            [6, 1, 6, 1, 1],
            "firing recovering firing recovering resolved",
        ),
        (Rule(name="a", when="> 5", keep_firing="2s"), [6, 1, 1, 1], "firing recovering recovering resolved"),
        (Rule(name="a", when="> 5", warm_up="3 steps"), [6, 6, 6, 6], "inactive inactive inactive firing"),
        (Rule(name="a", when="> 5"), [1, NAN, 1], "inactive firing resolved"),
        (Rule(name="a", when="< 5"), [9, NAN, 9], "inactive firing resolved"),
        (Rule(name="a", when="> 5", nan="ignore"), [1, NAN, 6], "inactive inactive firing"),
        (Rule(name="a", when="outside 1 3"), [2, 4, 0, 1], "inactive firing firing resolved"),
        (Rule(name="a", when="changes"), [1, 1, 2, 2], "inactive inactive firing resolved"),
        (Rule(name="a", when="not finite"), [1, math.inf, 1, NAN], "inactive firing resolved firing"),
        (Rule(name="a", when=">= 5"), [5, 4], "firing resolved"),
    ],
)
def test_a_course(rule: Rule, values: list[float], states: str) -> None:
    """Each course of values has one course of states."""
    assert states_of(rule, values) == states.split()


def test_steps_are_counted_as_points_where_there_are_none() -> None:
    """`for 3 steps` on a series without steps means three values in a row."""
    rule = Rule(name="a", when="> 5", hold="3 steps")
    assert states_of(rule, [6, 6, 6], steps=False) == ["pending", "pending", "firing"]


def test_a_step_that_goes_back_begins_the_wait_anew() -> None:
    """After a restart from a checkpoint the condition must hold again for as long."""
    machine = Machine(compile_rule(Rule(name="a", when="> 5", hold="10 steps")))
    for time, step, state in ((0, 100, "pending"), (1, 105, "pending"), (2, 50, "pending"), (3, 59, "firing")):
        machine.take(time, step, 6.0)
        assert machine.state == state


def test_no_data_and_back() -> None:
    """An open alert without values is in no-data, and is judged again by the next value."""
    rule = Rule(name="a", when="> 5", no_data="10s")
    for value, state in ((6.0, "firing"), (1.0, "resolved")):
        machine = Machine(compile_rule(rule))
        machine.take(0, 0, 6.0)
        assert machine.tick(5 * NS) is None
        assert machine.tick(11 * NS) == "no-data"
        machine.take(12 * NS, 1, value)
        assert machine.state == state


def test_a_function_that_raises_is_an_error_and_recovers() -> None:
    """A condition in Python that raises puts the alert in error, with what it said; the next value may be judged."""

    def strange(value: float) -> bool:
        return 1 / value > 5

    machine = Machine(compile_rule(Rule(name="a", test=strange)))
    machine.take(0, 0, 0.0)
    assert (machine.state, machine.error) == ("error", "ZeroDivisionError: float division by zero")
    machine.take(1, 1, 1.0)
    assert machine.state == "inactive"


def test_recovering_ends_with_time_alone() -> None:
    """Keep-firing in seconds ends even if no more values come."""
    machine = Machine(compile_rule(Rule(name="a", when="> 5", keep_firing="5s")))
    machine.take(0, 0, 6.0)
    machine.take(NS, 1, 1.0)
    assert machine.tick(3 * NS) is None
    assert machine.tick(6 * NS) == "resolved"


def test_the_end_of_a_run_resolves() -> None:
    """What is open when a run ends is resolved; what was only pending never fired."""
    machine = Machine(compile_rule(Rule(name="a", when="> 5")))
    machine.take(0, 0, 6.0)
    assert machine.end() == "resolved"
    machine = Machine(compile_rule(Rule(name="a", when="> 5", hold="9s")))
    machine.take(0, 0, 6.0)
    assert machine.end() == "inactive"


RULES = st.builds(
    Rule,
    name=st.just("a"),
    when=st.sampled_from(["> 5", "< 5", ">= 0", "outside 1 3", "changes", "not finite"]),
    hold=st.sampled_from([0, "2 steps", "3s", "1d"]),
    keep_firing=st.sampled_from([0, "2 steps", "3s"]),
    warm_up=st.sampled_from([0, "2 steps", "3s"]),
    nan=st.sampled_from(["breach", "ignore"]),
)
POINTS = st.lists(
    st.tuples(st.integers(-(2**62), 2**62), st.none() | st.integers(-(2**62), 2**62), st.floats(), st.booleans()),
    max_size=30,
)


@given(RULES, POINTS)
def test_any_values_any_order(rule: Rule, points: list[tuple[int, int | None, float, bool]]) -> None:
    """Whatever comes in whatever order, there is a state, no exception, and firing only after a breach."""
    machine = Machine(compile_rule(rule))
    breached = False
    for time, step, value, tick in points:
        new = machine.tick(time) if tick else machine.take(time, step, value)
        breached = breached or machine.breached is not None
        assert new is None or new == machine.state
        assert machine.state in STATES
        assert breached or machine.state == "inactive"
