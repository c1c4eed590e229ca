"""Disabled: no thread, no file, no hook, and every call still works."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EVERYTHING = """
    import asyncio, atexit, logging, os, signal, sys, threading
    import stepscope

    hooks = lambda: (
        sys.excepthook, sys.exit, threading.excepthook, signal.getsignal(signal.SIGTERM),
        logging.Logger.callHandlers, list(logging.getLogger().handlers),
    )
    before = hooks()
    run = stepscope.init(project="p", name="n", config={"lr": 1}, sigterm=True)

    @stepscope.traced
    def function():
        return 1

    @stepscope.capture_exceptions
    def wrong():
        raise ValueError

    async def main():
        async with run.step(1), stepscope.span("a"):
            pass

    for thing in (run, stepscope):
        with thing.step(1) as step, thing.span("a", b=1) as span:
            thing.log({"a": 1.0, "b": "text"}, step=2, category="trainer")
            thing.event("e", {"a": 1}, "WARN")
            thing.alert("a", "ERROR", "m", b=2)
            span.set_attribute("a", 1)
            span.add_event("e")
            span.record_exception(ValueError())
            assert not span.is_recording() and not span.get_span_context().is_valid
    asyncio.run(main())
    assert function() == 1
    try:
        wrong()
    except ValueError:
        pass
    run.exception(ValueError())
    assert run.flush() and stepscope.flush() and stepscope.current_run() is None
    print(run, run.id, run.mark, run.status, run.home)
    assert threading.active_count() == 1, threading.enumerate()
    assert hooks() == before
    if os.fork() == 0:
        run.log({"a": 1.0})
        sys.exit(0)
    os.wait()
    with run:
        pass
    assert run.finish() and stepscope.finish()
"""


@pytest.mark.parametrize(
    "variables",
    [{"STEPSCOPE_DISABLED": "1"}, {"STEPSCOPE_DISABLED": "true"}, {"OTEL_SDK_DISABLED": "true"}],
    ids=["1", "true", "OTel's"],
)
def test_nothing_happens(python: Callable[..., Any], home: Path, tmp_path: Path, variables: dict[str, str]) -> None:
    """With the switch off every call of the API is a no-op: nothing starts, nothing is written or hooked."""
    done = python(EVERYTHING, env={**variables, "HOME": str(tmp_path / "user")})
    assert (done.returncode, done.stderr) == (0, "")
    assert not home.exists()
    assert not (tmp_path / "user").exists()
    assert sorted(path.name for path in (tmp_path / "program0").iterdir()) == ["err", "out", "program.py"]


def test_without_a_run(python: Callable[..., Any], home: Path) -> None:
    """Before init, and after finish, the module's functions do nothing."""
    done = python(
        """
    import threading
    import stepscope

    def everything():
        with stepscope.step(1), stepscope.span("a", b=1) as span:
            stepscope.log({"a": 1.0})
            stepscope.event("e")
            stepscope.alert("a")
            span.set_attribute("a", 1)
        assert stepscope.flush() and stepscope.finish() and stepscope.current_run() is None
        assert threading.active_count() == 1

    everything()
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not home.exists()
