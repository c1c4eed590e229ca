"""What the name of a span says of it."""

import pytest

from stepscope.diagnosis.span_names import traits


@pytest.mark.parametrize(
    ("name", "rare"),
    [
        *(("evaluate", True), ("train.val/eval_loop", True), ("save_checkpoint", True), ("torch.compile", True)),
        *(("train.retrieval", False), ("latest_batch", False), ("test_epoch", True), ("train.forward", False)),
    ],
)
def test_spans_that_come_seldom(name: str, rare: bool) -> None:
    """Evaluations, checkpoints and tests may take long; retrieval is part of each step."""
    assert traits(name).rare is rare


def test_waiting_and_loading() -> None:
    """A rank that waits is not the late one; loading explains a stall."""
    assert traits("train.collective.all_reduce").waiting
    assert traits("train.data_load").loading
    assert not traits("train.forward").waiting
