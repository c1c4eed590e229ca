"""A resumed run continues after its last step."""

from collections.abc import Callable
from pathlib import Path

import pytest

import stepscope
import stepscope.compat.wandb as wandb
from stepscope.journal import last_step, layout
from stepscope.testing import read_run, series

Ignored = Callable[[], set[str]]


@pytest.mark.parametrize("resume", ["allow", "must", True])
def test_steps_go_on(place: Path, resume: str | bool, ignored: Ignored) -> None:
    """A resumed run continues after its last step, even if an attempt in between logged nothing."""
    wandb.init(id="fixed")
    for value in range(3):
        wandb.log({"loss": value})
    wandb.log({"loss": 9, "epoch": 100}, step=1000)
    wandb.finish()
    wandb.init(id="fixed", resume=resume)
    wandb.finish()
    run = wandb.init(id="fixed", resume=resume)
    assert (run.step, run.resumed) == (1001, True)
    assert ignored() == set()
    wandb.log({"loss": 10})
    wandb.finish()
    assert series(read_run(place, "fixed"), "loss")[-1] == (1001, 10)
    assert wandb.init(id="fixed").step == 0


def test_there_is_nothing_to_go_on_with(ignored: Ignored) -> None:
    """Where wandb would fail the run begins at 0, and that it must resume is counted."""
    assert wandb.init(id="fresh", resume="allow").step == 0
    assert ignored() == set()
    wandb.finish()
    assert wandb.init(id="other", resume="must").step == 0
    assert ignored() == {"init.resume"}


def test_only_the_end_is_read_and_not_for_long(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long journal is read from near its end, a damaged one as far as it goes, and none when the time is over."""
    run = stepscope.init(run_id="long")
    for step in range(3000):
        run.log({"loss": step}, step)
        if step % 500 == 0:
            run.flush()
    run.finish()
    monkeypatch.setattr(last_step, "END_BYTES", 50_000)  # so that a journal need not have megabytes to be cut
    assert last_step.last_step(place, "long", 0) == 2999
    assert last_step.last_step(place, "long", 1) is None
    times = iter((0.0, 2.0))
    assert last_step.last_step(place, "long", 0, clock=lambda: next(times)) is None
    (writer,) = layout.list_writers(place, "long")
    (segment,) = layout.list_segments(layout.writer_folder(place, "long", writer))
    segment.write_bytes(segment.read_bytes()[:-2000])
    assert last_step.last_step(place, "long", 0) is not None
