"""What integrations use of a run."""

import pytest

from stepscope.model.records import Histogram, Instrument, Metric
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
