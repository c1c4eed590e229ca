"""What integrations use of a run."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import stepscope
from stepscope.journal.run_summary import read_run
from stepscope.model.records import Histogram, Instrument, Metric
from stepscope.sdk import settings
from stepscope.sdk.run import Run
from tests.sdk.conftest import Records


def test_a_typed_point_has_attributes_and_an_instrument(run: Run, records: Records) -> None:
    """`measure` records what `log` has no room for, at the given or the current step."""
    count = Instrument("sum", cumulative=False, monotonic=True)
    run.measure({"tokens": 5}, {"model": "a"}, count, step=3, axis="epoch")
    with run.step(7):
        run.measure({"size": Histogram(1, 2.0, 2.0, 2.0, (1.0,), (0, 1))})
    first, second = (each for each in records(Metric) if each.category is None)
    assert (first.step, first.axis, first.values, first.attrs) == (3, "epoch", {"tokens": 5}, {"model": "a"})
    assert first.instrument == count
    assert (second.step, second.values["size"]) == (7, Histogram(1, 2.0, 2.0, 2.0, (1.0,), (0, 1)))


@pytest.mark.parametrize("given", [{"numbers": None}, {"numbers": {"a": "text"}}, {"numbers": {"a": 1}, "step": "x"}])
def test_a_wrong_point_is_rejected_and_counted(run: Run, given: dict[str, object]) -> None:
    """`measure` never raises."""
    run.measure(given["numbers"], step=given.get("step"))  # type: ignore[arg-type]
    assert sum(count for name, count in run.outcomes.snapshot().items() if name.startswith("rejected")) == 1


def test_calls_at_the_end_come_once_newest_first(run: Run, records: Records) -> None:
    """A call registered with `on_finish` may still record; one that was cancelled, or raises, changes nothing."""
    heard: list[str] = []
    run.on_finish(lambda: heard.append("first"))
    run.on_finish(lambda: 1 / 0)
    cancel = run.on_finish(lambda: heard.append("cancelled"))
    run.on_finish(lambda: run.log({"last": 1.0}))
    run.on_finish(lambda: heard.append("second"))
    assert (cancel(), cancel()) == (True, False)
    run.finish()
    run.finish()
    assert heard == ["second", "first"]
    assert [each.values for each in records(Metric) if "last" in each.values] == [{"last": 1.0}]


def test_outcomes_are_counted_and_warned_of(run: Run) -> None:
    """`count` and `reject` add to the run's counters; a warning comes once for its subject."""
    run.count("failed", "callback", "ValueError", 2)
    run.reject("loss", "no number", 3)
    for text in ("a", "b"):
        run.warn(text, about="topic")
    run.warn("a")
    counts = run.outcomes.snapshot()
    assert (counts["failed/callback/ValueError"], counts["rejected/value/no number"]) == (2, 3)
    assert [each for each in run.outcomes.take_notices() if len(each) == 1] == ["a", "a"]


_INIT = "import stepscope, sys; stepscope.init('p', 'n', run_id='one', home=sys.argv[1], probes=False).finish()"


def test_what_init_is_told_is_recorded(tmp_path: Path) -> None:
    """Tags, notes, group and job type of `init` are in the journal."""
    with stepscope.init(home=tmp_path, probes=False, tags=["a", "k=v"], notes="n", group="g", job_type="eval") as run:
        pass
    found = read_run(tmp_path, run.id)
    assert found.described.tags == {"a": True, "k": "v"}
    assert (found.described.notes, found.group, found.job_type) == ("n", "g", "eval")
    assert not {"tags", "notes", "group", "job_type"} & found.environment.keys()


@pytest.mark.parametrize(
    ("given", "tags"),
    [
        ("a, b,k=v", {"a": True, "b": True, "k": "v"}),
        (("a", "a=1"), {"a": "1"}),
        ({"seed": 3, "on": True, "none": None}, {"seed": 3, "on": True}),
        ([{"seed": 3}, ["a", "k=v"], "b"], {"seed": 3, "a": True, "k": "v", "b": True}),
        ([], {}),
    ],
)
def test_tags_are_read_in_every_form(given: object, tags: dict[str, object]) -> None:
    """A list, a text with commas, and a mapping mean the same everywhere."""
    assert settings.load({"tags": given}, {}, Path("/nowhere")).tags == tags
    if isinstance(given, str):
        assert settings.load({}, {"STEPSCOPE_TAGS": given}, Path("/nowhere")).tags == tags


def test_a_run_can_be_described_while_it_runs(tmp_path: Path) -> None:
    """The last change of the name, the notes and each tag wins; invalid input does not raise."""
    run = stepscope.init(home=tmp_path, probes=False, name="first", tags=["old", "stays"])
    run.tag("new", seed=3)
    stepscope.untag("old")
    stepscope.note("one")
    stepscope.note("two")
    stepscope.rename("second")
    run.rename("   ")
    run.rename(None)
    run.tag({"lr": 0.1}, ["listed", "team=red", "gone", "gone too"])
    run.untag(["gone", "gone too"], None)
    run.tag()
    run.tag(*map(str, range(101)))
    run.note(object())  # type: ignore[arg-type]
    stepscope.note("three")
    run.finish()
    found = read_run(tmp_path, run.id).described
    assert (run.name, found.name, found.notes) == ("second", "second", "three")
    assert found.tags == {"stays": True, "new": True, "seed": 3, "lr": 0.1, "listed": True, "team": "red"}
    assert run.outcomes.snapshot()["rejected/value/a name must not be empty"] == 2


def test_an_empty_description_is_none(tmp_path: Path) -> None:
    """What a script passes on empty (name, notes, group, job type) is left to the next source."""
    empty = dict.fromkeys(("name", "notes", "group", "job_type"), "")
    loaded = settings.load(empty, {"STEPSCOPE_GROUP": "sweep"}, tmp_path)
    assert (loaded.name, loaded.notes, loaded.group, loaded.job_type) == (None, None, "sweep", None)


def test_without_a_run_nothing_is_described(tmp_path: Path) -> None:
    """With no run, or a disabled one, every call does nothing."""
    stepscope.tag("a"), stepscope.untag("a"), stepscope.note("b"), stepscope.rename("c")
    run = stepscope.init(home=tmp_path, disabled=True)
    run.tag("a", k=1), run.untag("a"), run.note("b"), run.rename("c")
    assert not list(tmp_path.iterdir())


def said(home: Path, *, terminal: bool = False, **env: str) -> str:
    """What `init` prints on standard error, at a terminal or into a pipe."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("STEPSCOPE_", "OTEL_", "RANK"))}
    line = [sys.executable, "-c", _INIT, str(home)]
    if not terminal:
        return subprocess.run(line, env={**kept, **env}, capture_output=True, text=True, check=True, timeout=300).stderr
    ours, theirs = pty.openpty()
    try:
        subprocess.run(line, env={**kept, **env}, stderr=theirs, check=True, timeout=300)
        os.set_blocking(ours, False)
        try:
            return os.read(ours, 10_000).decode()
        except BlockingIOError:
            return ""
    finally:
        os.close(ours)
        os.close(theirs)


def test_init_prints_one_line_at_a_terminal(tmp_path: Path) -> None:
    """At a terminal rank 0 prints the run's id and how to look at it; elsewhere, or quiet, nothing is printed."""
    line = f"stepscope: recording p/n, run one: stepscope show --home {tmp_path} one"
    assert said(tmp_path, terminal=True).splitlines() == [line]
    assert said(tmp_path, terminal=True, STEPSCOPE_QUIET="1") == ""
    assert said(tmp_path, terminal=True, RANK="1", WORLD_SIZE="2") == ""
    assert said(tmp_path) == ""
    assert said(tmp_path, STEPSCOPE_QUIET="0").splitlines() == [line]


def test_a_standard_error_that_is_closed_hurts_nobody(tmp_path: Path) -> None:
    """The line is lost, and the run is recorded."""
    script = f"import os; os.close(2); {_INIT}"
    env = {**os.environ, "STEPSCOPE_QUIET": "0"}
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=env, check=True, timeout=300)
    assert read_run(tmp_path, "one").writers
