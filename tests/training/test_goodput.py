"""Goodput: the share of a run's time for each bucket, out of its journal while it runs."""

from collections.abc import Sequence

import pytest

import stepscope
from stepscope.journal.run_goodput import Folding
from stepscope.model import names
from stepscope.model.goodput_sums import Sums, bucket_of, conclude
from stepscope.model.records import Metric, Record, Span
from stepscope.sdk.off import OffRun

S = 10**9


def span(name: str, start: float, lasts: float, id: int, parent: int | None = None, bucket: str | None = None) -> Span:
    """A span of so many seconds."""
    above = None if parent is None else parent.to_bytes(8, "big")
    attrs = {} if bucket is None else {names.ATTR_BUCKET: bucket}
    return Span(
        int(start * S), int(lasts * S), 1, None, b"t" * 16, id.to_bytes(8, "big"), above, name, attrs=attrs
    )  # fmt: skip


def fold(records: Sequence[Record]) -> Folding:
    """The sums of one writer's records."""
    folding = Folding(None, "x")  # type: ignore[arg-type]
    folding.take((0, 1), records)
    return folding


def test_self_time_is_attributed() -> None:
    """A bucketed span counts less what the bucketed ones right below it took; others leave it as it is."""
    records: list[Record] = [
        span("data_loading", 0, 2, 1, parent=10),
        span("train.forward", 2, 3, 2, parent=11),
        span("mine", 5, 1, 3, parent=11),
        span("batch_processing", 2, 5, 11, parent=10),
        span("retry", 7, 1, 4, parent=10, bucket="wasted"),
        span("train.step", 0, 10, 10),
    ]
    found = conclude(fold(records).sums)
    assert found.buckets == {"productive": 5.0, "overhead": 0.0, "idle": 2.0, "wasted": 1.0, "unaccounted": 2.0}
    assert found.shares == {"productive": 0.5, "overhead": 0.0, "idle": 0.2, "wasted": 0.1, "unaccounted": 0.2}
    assert (found.goodput, found.seconds) == (0.5, 10.0)
    assert found.phases == {"data_loading": 2.0, "train.forward": 3.0, "batch_processing": 2.0, "retry": 1.0}
    assert (found.steps, found.steps_per_second) == (1, 0.1)


def test_rates() -> None:
    """Tokens of all ranks by the longest rank; steps of metrics where no step has a span."""
    folding = fold([Metric(n * S, n, None, "trainer", {"tokens": 100, "loss": 1.0}) for n in range(11)])
    folding.take((1, 1), [Metric(n * S, n, None, None, {"batch_tokens": 50}) for n in range(5)])
    folding.take((0, 1), [Metric(0, 99, None, "system", {"tokens": 1e9})])
    found = conclude(folding.sums)
    assert (found.seconds, found.steps, found.tokens) == (14.0, 11, 1350.0)
    assert (found.steps_per_second, found.tokens_per_second) == (1.1, 135.0)


def test_overlapping_spans_never_exceed_the_whole() -> None:
    """Two threads may be productive at once: shares are of what they add up to."""
    found = conclude(fold([span("rl.sample", 0, 4, 1), span("rl.train", 0, 4, 2), span("rl.sync", 0, 2, 3)]).sums)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert found.goodput == 0.8


@pytest.mark.parametrize(
    ("name", "said", "bucket"),
    [
        ("train.forward", None, "productive"),
        ("train.forward", "wasted", "wasted"),
        ("train.forward", "nonsense", "productive"),
        ("train.data_load", None, "idle"),
        ("train.step", None, None),
        ("mine", ["productive"], None),
    ],
)
def test_buckets(name: str, said: object, bucket: str | None) -> None:
    """What a span says goes before what its name means."""
    assert bucket_of(name, said) == bucket


def test_nothing_yet() -> None:
    """A run without a span has no goodput, and no division by zero."""
    found = conclude(Sums())
    assert (found.goodput, found.steps_per_second, found.tokens_per_second) == (0.0, None, None)
    assert OffRun().goodput() == found


def test_of_a_run(run: stepscope.Run) -> None:
    """The run itself tells, again and again, each record once; open spans count when they end."""
    for number in range(3):
        with run.step(number), run.span("train.forward"):
            run.log({"tokens": 10})
    first = run.goodput()
    assert (first.steps, first.tokens) == (3, 30.0)
    assert first.phases["train.forward"] > 0
    assert run.goodput().tokens == 30.0
    with run.step(3), run.span("train.checkpoint.save"):
        run.log({"tokens": 10})
        assert run.goodput().steps == 3
    second = run.goodput()
    assert (second.steps, second.tokens, set(second.phases)) == (4, 40.0, {"train.forward", "train.checkpoint.save"})
    assert sum(second.shares.values()) == pytest.approx(1.0)
    assert second.seconds >= first.seconds
    run.finish()
    assert run.goodput().steps == 4


def test_a_counter_of_tokens_is_counted_by_its_increase() -> None:
    """All tokens so far, logged at each step, give the same as the tokens of each step; the answer says so."""
    steps = range(200)
    each = fold([Metric(n * S, n, None, "trainer", {"tokens": 4096}) for n in steps])
    so_far = fold([Metric(n * S, n, None, "trainer", {"tokens": 4096 * (n + 1)}) for n in steps])
    resumed = fold([Metric(n * S, n, None, "trainer", {"tokens": 10**9 + 4096 * n}) for n in steps])
    noisy = fold([Metric(n * S, n, None, "trainer", {"tokens": 4096 + n % 3}) for n in steps])
    found = [conclude(folding.sums) for folding in (each, so_far, resumed, noisy)]
    assert [one.tokens for one in found[:3]] == pytest.approx([200 * 4096.0] * 3)
    assert [one.tokens_counted for one in found] == [False, True, True, False]
