"""What Stepscope costs: measured by itself, recorded, and limited by leaving out optional work."""

import contextlib
import io
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.cli.main import main
from stepscope.journal.run_summary import read_run
from stepscope.model.errors import ConfigError
from stepscope.sdk.overhead import GRACE_SECONDS, Overhead
from stepscope.sdk.probes.watch import Probes
from tests.waiting import wait_until


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def _quiet(home: Path, **settings: float) -> stepscope.Run:
    return stepscope.init(project="p", home=home, otel=False, probes=False, quiet=True, **settings)


def test_optional_work_is_sampled_down() -> None:
    """Work of 10 ms in steps of 100 ms is soon done so rarely that it takes the budget and no more."""
    clock = Clock()
    overhead = Overhead(0.005, clock)
    done = []
    for step in range(4000):
        clock.now += 0.1
        if overhead.affords():
            done.append(step)
            overhead.add("checks", 0.01)
    assert done[:20] == list(range(20))
    late = [step for step in done if step >= 1000]
    assert 0.8 * 0.005 < len(late) * 0.01 / (3000 * 0.1) < 1.05 * 0.005


def test_time_without_work_is_not_saved_up() -> None:
    """After an hour in which nothing was optional, no more than the first quarter of a second is done at once."""
    clock = Clock()
    overhead = Overhead(0.005, clock)
    clock.now += 3600
    spent = 0.0
    while overhead.affords():
        overhead.add("checks", 0.01)
        spent += 0.01
    assert spent == pytest.approx(GRACE_SECONDS, abs=0.011)


def test_no_budget_is_no_optional_work() -> None:
    """With a budget of 0 nothing optional is done, not even the first time."""
    assert not Overhead(0.0).affords()


def test_calls_and_flusher_leave_less_room() -> None:
    """What the program's own calls take is taken off the budget of optional work, except for a tenth of it."""
    clock = Clock()
    overhead = Overhead(0.01, clock)
    overhead.add("checks", GRACE_SECONDS)
    clock.now += 10
    shares = overhead.shares(calls=0.5, flusher=0.3)
    assert shares == pytest.approx({"checks": 0.025, "calls": 0.05, "flusher": 0.03, "total": 0.105})
    overhead.affords()
    overhead.add("checks", 1.0)
    clock.now += 990
    assert overhead.affords() is False  # 0.1 of 0.01 of 990 s is less than a second
    clock.now += 100
    assert overhead.affords() is True


def test_copies_of_arrays_are_measured(tmp_path: Path) -> None:
    """What copying an array or an image took is a part of its own; with `copy=False` there is none."""
    pillow = pytest.importorskip("PIL.Image")
    run = _quiet(tmp_path)
    array = np.zeros((400, 400, 3), np.uint8)
    drawn = pillow.fromarray(array)
    run.log({"kept": stepscope.Image(array, copy=False), "drawn": stepscope.Image(drawn, copy=False)})
    assert run.overhead.seconds("copies") == 0
    taken = []
    for given in (array, drawn):
        run.log({"image": stepscope.Image(given)})
        taken.append(run.overhead.seconds("copies"))
    assert 0 < taken[0] < taken[1]
    run.finish()
    summary = read_run(tmp_path, run.id)
    (writer,) = summary.writers.values()
    assert 0 < writer.counters["overhead/copies"] <= writer.counters["overhead/total"]
    assert summary.counters["written/event"] >= 4


@pytest.mark.parametrize(("seconds", "said"), [(1.0, 1), (GRACE_SECONDS / 2, 0)])
def test_copies_beyond_the_budget_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seconds: float, said: int
) -> None:
    """With the way to avoid them, and not for a moment's worth."""
    run = _quiet(tmp_path)
    for _ in range(3):
        run.overhead.add("copies", seconds / 3, optional=False)
        run.periodic.beat()
    run.finish()
    assert caplog.text.count("Image(array, copy=False) copies nothing") == said


def test_a_larger_budget_allows_more() -> None:
    """What is within the budget is not named."""
    overhead = Overhead(0.05)
    overhead.add("copies", 1.0, optional=False)
    assert not overhead.exceeds("copies", 0.04)
    assert overhead.exceeds("copies", 0.06)


def test_a_slow_check_is_left_out_and_records_are_not(tmp_path: Path) -> None:
    """A check of 20 ms beside each `log` is soon left out, and every record of the program is in the journal."""
    run = _quiet(tmp_path)
    checked = 0
    for step in range(200):
        if run.affords():
            checked += 1
            began = time.perf_counter()
            threading.Event().wait(0.02)
            run.add_overhead("checks", time.perf_counter() - began)
        run.log({"loss": 1.0}, step)
    run.finish()
    assert 1 <= checked <= 20
    summary = read_run(tmp_path, run.id)
    assert summary.keys["loss"].count == 200
    (writer,) = summary.writers.values()
    assert writer.counters["overhead/checks"] > 0.1
    assert writer.counters["overhead/total"] >= writer.counters["overhead/checks"]
    assert not any(key.startswith("overhead/") for key in summary.counters)


def test_some_calls_are_timed_and_all_are_recorded(tmp_path: Path) -> None:
    """A call is timed now and then, the method is the plain one again after it, and no record is missing."""
    run = _quiet(tmp_path)
    for step in range(50):
        if step % 10 == 9:
            run.call_times.arm()
        with run.step(step), run.span("forward"):
            run.log({"loss": 1.0})
    assert not {"log", "step", "span"} & vars(run).keys()
    run.call_times.arm()
    run.finish()
    assert not {"log", "step", "span"} & vars(run).keys()
    summary = read_run(tmp_path, run.id)
    assert summary.keys["loss"].count == 50
    assert summary.spans["forward"].count == summary.spans["train.step"].count == 50
    (writer,) = summary.writers.values()
    assert 0 < writer.counters["overhead/calls"] < 1
    assert 0 < writer.counters["overhead/flusher"] < 1


def test_calls_are_timed_without_asking(tmp_path: Path) -> None:
    """After its first second a run times the next call of each method."""
    run = _quiet(tmp_path)
    run.log({"loss": 1.0})
    wait_until(lambda: {"log", "step", "span"} <= vars(run).keys())
    run.log({"loss": 1.0})
    assert "log" not in vars(run)
    run.finish()


def test_a_replaced_method_stays(tmp_path: Path) -> None:
    """A program that puts a function in the place of `run.log` keeps it, also when it wraps the one that is timed."""
    run = _quiet(tmp_path)
    run.call_times.arm()
    calls = []
    timed = run.log

    def own(*args: object) -> None:
        calls.append(args)
        timed(*args)  # type: ignore[arg-type]

    run.log = own  # type: ignore[method-assign]
    for step in range(3):
        run.log({"loss": 1.0}, step)
    run.call_times.arm()
    assert run.log is own
    run.finish()
    assert run.log is own
    assert len(calls) == 3
    assert read_run(tmp_path, run.id).keys["loss"].count == 3


def test_probes_are_read_less_often() -> None:
    """A probe that takes more than the budget is not read every time."""

    class Slow:
        name = detail = "slow"
        reads = 0

        def read(self) -> dict[str, int | float]:
            self.reads += 1
            until = time.thread_time() + 0.03
            while time.thread_time() < until:
                pass
            return {"value": 1}

        def close(self) -> None:
            return None

    probe, turns = Slow(), 0

    def wait(seconds: float) -> bool:
        nonlocal turns
        turns += 1
        return turns >= 40

    written: list[dict[str, int | float]] = []
    probes = Probes(written.append, 0.001, [probe], wait=wait, overhead=Overhead(0.005))
    probes.start()
    wait_until(lambda: turns >= 40)
    probes.stop()
    assert GRACE_SECONDS / 0.03 - 2 < probe.reads == len(written) < 15


def test_show_says_what_it_took(tmp_path: Path) -> None:
    """`stepscope show` has the share of the time that Stepscope took, and of which parts."""
    run = _quiet(tmp_path)
    run.log({"loss": 1.0})
    run.finish()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(["show", "--home", str(tmp_path), run.id])
    line = printed.getvalue().split("OVERHEAD\n")[1].split("\n")[0]
    assert re.fullmatch(r"  [0-9.]+ % of the time: calls [0-9.]+ %, flusher [0-9.]+ %", line), line


@pytest.mark.parametrize("wrong", [-0.1, 1.5, "half"])
def test_wrong_budget(tmp_path: Path, wrong: float) -> None:
    """A budget is a share between 0 and 1."""
    with pytest.raises(ConfigError, match="overhead_budget"):
        _quiet(tmp_path, overhead_budget=wrong)
