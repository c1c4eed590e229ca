"""The doubles users test their own training code with."""

from pathlib import Path

import pytest

import stepscope
from stepscope.model import names
from stepscope.model.records import Event, Metric, Span
from stepscope.testing import read_batches, read_run, recorded, series


def train(steps: int) -> None:
    """A user's training loop."""
    for index in range(steps):
        with stepscope.step(index), stepscope.span("forward"):
            stepscope.log({"loss": 1 / (index + 1)}, category="trainer")


def test_a_loop_under_test() -> None:
    """The records of a loop can be looked at after the block; the home is gone and no run is current."""
    with recorded(config={"lr": 0.1}) as recording:
        train(3)
        home = recording.run.home
        assert recording.records == []
    assert recording.series("trainer/loss") == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    assert recording.series("train/loss") == recording.series("trainer/loss")
    assert [span.name for span in recording.of(Span)] == ["forward", names.SPAN_STEP] * 3 + [names.SPAN_RUN]
    assert all(metric.category == "trainer" for metric in recording.of(Metric))
    assert recording.of(Event)[0].attrs["config"] == {"lr": 0.1}
    assert stepscope.current_run() is None
    assert not home.exists()


def test_a_loop_that_fails() -> None:
    """An exception goes through, and what was recorded before it is there, with how the run ended."""

    def fail() -> float:
        train(2)
        return 1 / 0

    with pytest.raises(ZeroDivisionError), recorded() as recording:
        fail()
    assert len(recording.series("trainer/loss")) == 2
    assert recording.of(Event)[-1].attrs == {"status": "failed"}


def test_disabled_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that looks at records gets them also where Stepscope is switched off."""
    monkeypatch.setenv("STEPSCOPE_DISABLED", "1")
    with recorded() as recording:
        train(1)
    assert len(recording.series("trainer/loss")) == 1


def test_reading_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in any home can be read: record by record, batch by batch with its writer, or one series."""
    with stepscope.init(run_id="mine", home=tmp_path, probes=False, otel=False):
        train(5)
    found = read_run(tmp_path, "mine")
    assert series(found, "trainer/loss")[4] == (4, 0.2)
    assert [record for batch in read_batches(tmp_path, "mine") for record in batch.records] == found
    assert {batch.writer.run for batch in read_batches(str(tmp_path), "mine")} == {"mine"}
    assert read_run(tmp_path, "other") == []
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert read_run(f"~/{tmp_path.name}", "mine") == found
