"""Disabled, or without a run, nothing happens."""

import inspect
from pathlib import Path

import pytest

import stepscope
from stepscope.sdk.off import OFF_SPAN, OffRun
from stepscope.sdk.outcomes import NOTHING_LEFT
from stepscope.sdk.run import Run
from tests.sdk.conftest import python_core


def test_disabled_records_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """STEPSCOPE_DISABLED=1 gives a run whose calls all work and write nothing."""
    monkeypatch.setenv("STEPSCOPE_DISABLED", "1")
    run = stepscope.init(home=tmp_path, config={"a": 1})
    with run, run.step(1), run.span("a", b=1) as span:
        span.set_attribute("a", 1)
        span.add_event("x")
        run.log({"a": 1.0})
        run.event("a")
        run.alert("a")
    assert run.flush()
    assert run.finish()
    assert stepscope.current_run() is None
    assert list(tmp_path.iterdir()) == []
    assert repr(run) == "<Run disabled>"
    assert run.url is None
    assert not span.get_span_context().is_valid


def test_disabled_minds_no_other_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is switched off cannot be set wrongly."""
    (tmp_path / "stepscope.yaml").write_text("nonsense: 1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPSCOPE_FLUSH_INTERVAL", "abc")
    monkeypatch.setenv("STEPSCOPE_DISABLED", "1")
    assert repr(stepscope.init()) == "<Run disabled>"


def test_a_disabled_run_ends_the_one_before(run: stepscope.Run) -> None:
    """Nothing is recorded into an earlier run by mistake."""
    stepscope.init(disabled=True)
    assert (run.status, stepscope.current_run()) == ("finished", None)


def test_without_a_run_every_function_is_harmless() -> None:
    """Module-level calls before init do nothing."""
    assert stepscope.current_run() is None
    stepscope.log({"a": 1.0}, step=1)
    stepscope.event("a")
    stepscope.alert("a")
    with stepscope.step(1), stepscope.span("a") as span:
        span.set_attribute("a", 1)
    assert stepscope.flush()
    assert stepscope.finish()


async def _use() -> None:
    async with stepscope.step(1), stepscope.span("a"):
        pass


def test_without_a_run_async_spans_are_harmless() -> None:
    """`async with` works without a run."""
    import asyncio

    asyncio.run(_use())


_CALLS = {name: python_core(call) for name, call in vars(Run).items() if not name.startswith("_")}
PUBLIC = sorted(name for name, call in _CALLS.items() if inspect.isfunction(call))


@pytest.mark.parametrize("name", PUBLIC)
def test_a_disabled_run_has_every_call_of_a_run(name: str) -> None:
    """Each public method of Run is a no-op with the same signature; a new one cannot be forgotten."""
    assert name in vars(OffRun)
    assert inspect.signature(getattr(OffRun, name)) == inspect.signature(getattr(Run, name))
    assert getattr(OffRun(), name)("any", "arguments", colour="red") in (None, OFF_SPAN, NOTHING_LEFT) or name in (
        *("affords", "goodput", "on_finish", "undelivered"),
        *("checkpoint", "live", "on_stop"),
    )
