"""Arguments that a call does not know are counted and reported once; no call raises for them, with a run or without."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope import Run
from stepscope.sdk.off import OffRun
from stepscope.testing import read_run

CALLS: dict[str, tuple[Any, ...]] = {
    "log": ({"loss": 1.0},),
    "step": (1,),
    "event": ("saved",),
    "note": ("better than before",),
    "rename": ("second",),
    "untag": ("old",),
    "flush": (),
    "finish": (),
}
"""Calls with what they need; `alert`, `tag`, `span` and `exception` take any keyword as an attribute."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of its own."""
    return stepscope.init(project="p", home=tmp_path, probes=False, otel=False, capture_logs=False)


def rejected(run: Run) -> int:
    """How many values were rejected."""
    counts = run.outcomes.snapshot()
    return sum(count for name, count in counts.items() if name.startswith("rejected/"))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("whole", [True, False], ids=["method", "function"])
def test_an_unknown_argument_is_counted(run: Run, call: str, whole: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Counted for each, reported once, and the rest of the call is done."""
    act = getattr(run if whole else stepscope, call)
    act(*CALLS[call], colour="red", mood="good")
    assert rejected(run) == 2
    run.finish()
    assert caplog.text.count(f"{call}(colour=...)") == 1


def test_the_rest_is_recorded(run: Run) -> None:
    """A misspelt step costs the step, not the values."""
    run.log({"loss": 0.5}, steps=7)
    run.finish()
    assert rejected(run) == 1
    assert [each.values for each in read_run(run.home, run.id) if getattr(each, "category", "") is None] == [
        {"loss": 0.5}
    ]


@pytest.mark.parametrize("whole", [True, False], ids=["method", "function"])
def test_an_alert_in_the_words_of_another_tracker(run: Run, whole: bool) -> None:
    """`title` and `text` are no name: counted, reported, not raised."""
    (run if whole else stepscope).alert(title="loss is NaN", text="look at it")
    assert rejected(run) == 1
    assert any("no name was given" in each for each in run.outcomes.take_notices())


NOTHING: list[Callable[[Any], Any]] = [
    lambda on: on.log(),
    lambda on: on.step(),
    lambda on: on.event(),
    lambda on: on.alert(),
    lambda on: on.span(),
    lambda on: on.span(name="forward"),
    lambda on: on.note(),
    lambda on: on.rename(),
]


@pytest.mark.parametrize("act", NOTHING)
def test_a_call_without_what_it_needs_is_counted(run: Run, act: Callable[[Any], Any]) -> None:
    """A call without required arguments is counted, also for the module's functions."""
    act(run)
    act(stepscope)
    assert rejected(run) == 2
    run.exception()
    assert rejected(run) == 3


def test_a_span_named_by_keyword_keeps_its_name(run: Run) -> None:
    """A span name passed as a keyword is accepted."""
    assert run.span(name="forward").name == "forward"


@pytest.mark.parametrize("act", NOTHING)
def test_nothing_raises_without_a_run(tmp_path: Path, act: Callable[[Any], Any]) -> None:
    """Neither the module's functions nor a disabled run raise."""
    stepscope.finish()
    off = stepscope.init(home=tmp_path, disabled=True)
    for on in (stepscope, off):
        act(on)
        for call, given in CALLS.items():
            getattr(on, call)(*given, colour="red")


def test_every_call_takes_any_keyword() -> None:
    """No recording call of the public surface can raise for a keyword."""
    calls = [*CALLS, "alert", "tag", "span", "exception"]
    surfaces = [stepscope, Run, OffRun]
    found = [getattr(on, call) for on in surfaces for call in calls if hasattr(on, call)]
    kinds = {act.__qualname__: {each.kind for each in inspect.signature(act).parameters.values()} for act in found}
    assert [name for name, each in kinds.items() if inspect.Parameter.VAR_KEYWORD not in each] == []
