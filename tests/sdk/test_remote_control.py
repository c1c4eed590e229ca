"""A run that is asked to stop, and settings that are changed while it runs."""

import math
import os
import threading
from pathlib import Path
from typing import Any

import stepscope
from stepscope.journal import layout, request_files
from stepscope.journal.run_edits import Edits
from stepscope.model.records import Event
from stepscope.model.run_requests import Request
from stepscope.sdk.off import OffRun
from stepscope.sdk.run import Run
from tests.sdk.conftest import Records
from tests.waiting import wait_until


def ask(run: Run, attempt: int = 1, who: str = "ada", **request: Any) -> None:
    """Ask something of a run, as the hub does."""
    assert run.flush(300)  # it has a journal
    Edits(run.home).append(run.id, who, request=Request(attempt=attempt, **request))


def events(records: Records, name: str) -> list[dict[str, Any]]:
    """The attributes of the events of a name."""
    return [each.attrs for each in records(Event) if isinstance(each, Event) and each.name == name]


def test_a_request_to_stop_is_heard_once_and_recorded(run: Run, records: Records) -> None:
    """The flag becomes true and stays; the request and the orderly end are events with its user."""
    assert not run.stop_requested
    with run.step(7):
        ask(run, stop=True)
        wait_until(lambda: run.stop_requested)
        ask(run, stop=True, who="bob")
    (heard,) = events(records, "train.stop.requested")
    assert (heard["who"], heard["asks"], heard["step"]) == ("ada", True, 7)
    run.finish()
    (done,) = events(records, "train.stop.done")
    assert (done["who"], done["request"]) == ("ada", heard["request"])


def test_a_failed_run_did_not_stop_in_order(run: Run, records: Records) -> None:
    """A run that was asked to stop and fails records no orderly end; one that nobody asked neither."""
    ask(run, stop=True)
    wait_until(lambda: run.stop_requested)
    run.finish("failed")
    assert events(records, "train.stop.done") == []


def test_a_request_to_an_earlier_attempt_is_not_followed(tmp_path: Path) -> None:
    """A restart is not stopped by the request to the attempt before it."""
    for attempt in (1, 2):
        run = stepscope.init(home=tmp_path, run_id="one", probes=False, otel=False)
        if attempt == 1:
            ask(run, stop=True, settings={"a": 2})
            wait_until(lambda run=run: run.stop_requested)
        live = run.live(a=1)
        if attempt == 2:
            ask(run, attempt=2, settings={"b": 1})
            live = run.live(b=0)
            wait_until(lambda live=live: live.b == 1)  # the requests were read
            assert (run.stop_requested, live.a) == (False, 1)
        run.finish()


def test_calls_at_a_stop(run: Run) -> None:
    """Each call comes once, on another thread, also when it is registered late; a failure is counted."""
    heard: list[str] = []
    done = threading.Event()
    cancel = run.on_stop(lambda: heard.append("cancelled"))
    assert (cancel(), cancel()) == (True, False)
    run.on_stop(lambda: heard.append(threading.current_thread().name))
    run.on_stop(lambda: 1 / 0)
    run.on_stop("no function")  # type: ignore[arg-type]
    ask(run, stop=True)
    wait_until(lambda: run.stop_requested)
    late = run.on_stop(done.set)
    assert done.wait(300)
    wait_until(lambda: heard and run.outcomes.snapshot().get("failed/on_stop/ZeroDivisionError"))
    assert (heard, late()) == (["stepscope-on-stop"], False)
    assert run.outcomes.rejected_keys() == {"on_stop": "needs a function, got str"}


def test_the_program_may_not_look(run: Run, records: Records) -> None:
    """The record of the request says whether the program has looked for one."""
    ask(run, stop=True)
    wait_until(lambda: run.stop_asked)
    (heard,) = events(records, "train.stop.requested")
    assert heard["asks"] is False


def test_live_settings_change_while_the_program_runs(run: Run, records: Records) -> None:
    """Declared settings take values of their type; each change, and each refusal, is an event."""
    live = run.live(lr_scale=1.0, steps=10, name="a", on=True)
    assert (live.lr_scale, live["steps"], live.name, live.on) == (1.0, 10, "a", True)
    assert run.live(lr_scale=7.0) is live
    ask(run, settings={"lr_scale": 2, "steps": 1.5, "undeclared": 3, "name": "b"})
    wait_until(lambda: live.name == "b" and run.flush(300) and len(events(records, "train.live.changed")) == 3)
    assert (live.lr_scale, type(live.lr_scale), live.steps) == (2.0, float, 10)
    found = {each["name"]: each for each in events(records, "train.live.changed")}
    assert (found["lr_scale"]["before"], found["lr_scale"]["value"], found["lr_scale"]["who"]) == (1.0, 2.0, "ada")
    assert "an integer" in found["steps"]["refused"]
    (declared,) = events(records, "train.live")
    assert declared["settings"] == {"lr_scale": 1.0, "steps": 10, "name": "a", "on": True}
    run.live(undeclared=0)
    wait_until(lambda: live.undeclared == 3)
    assert repr(live).startswith("LiveSettings(lr_scale=2.0")


def test_wrong_declarations_are_counted_and_can_be_read(run: Run) -> None:
    """Nothing raises in the loop: what cannot be changed is there as it was given; the program assigns nothing."""
    live = run.live(a=[1], b=math.nan, c=1)
    live.c = 5
    assert (live.a, live.c) == ([1], 1)
    assert set(run.outcomes.rejected_keys()) == {"live(a=...)", "live(b=...)", "live.c"}
    many = run.live(**{f"s{number}": number for number in range(200)})
    assert many.s199 == 199
    assert "live(s99=...)" in run.outcomes.rejected_keys()


def test_a_damaged_or_foreign_file_changes_nothing(run: Run) -> None:
    """A file that cannot be read is ignored, and the next request is heard."""
    assert run.flush(300)
    path = layout.requests_path(run.home, run.id)
    path.parent.mkdir()
    path.write_bytes(b"{" * 10_000)
    ask(run, stop=True)
    wait_until(lambda: run.stop_requested)
    assert "cycle" not in str(run.outcomes.snapshot())


def test_a_forked_child_has_its_own_look(run: Run) -> None:
    """A child knows what its parent was asked, and does not call what its parent registered."""
    calls: list[int] = []
    run.on_stop(lambda: calls.append(os.getpid()))
    ask(run, stop=True)
    wait_until(lambda: calls)
    child = os.fork()
    if child == 0:
        os._exit(0 if run.stop_requested and run.remote_control._on_stop == [] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert calls == [os.getpid()]


def test_a_disabled_run_has_the_same_methods() -> None:
    """Nobody asks a disabled run; its settings are as declared."""
    run = OffRun()
    assert (run.stop_requested, run.on_stop(print)()) == (False, False)
    live = run.live(lr_scale=0.5)
    live.lr_scale = 1.0
    assert live.lr_scale == 0.5


def test_looking_is_cheap(run: Run) -> None:
    """Whether to stop is read from memory: no file is opened or looked at by the program."""
    seen: list[str] = []
    before = os.stat
    try:
        os.stat = lambda *given, **more: (seen.append(threading.current_thread().name), before(*given, **more))[1]  # type: ignore[assignment,func-returns-value]
        assert not any(run.stop_requested for _ in range(1000))
    finally:
        os.stat = before  # type: ignore[assignment]
    assert threading.current_thread().name not in seen
    assert request_files.read(run.home, run.id).stop is None
