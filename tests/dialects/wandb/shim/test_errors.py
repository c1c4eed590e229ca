"""wandb's exceptions can be caught, whatever passes."""

import pytest

import stepscope.compat.wandb as wandb


def test_another_exception_passes() -> None:
    """A clause for wandb's error is one Python can judge, and lets a foreign one by."""

    def fail() -> None:
        try:
            raise KeyError("original")
        except (wandb.errors.CommError, wandb.Error):
            pass

    with pytest.raises(KeyError):
        fail()


def test_their_tree() -> None:
    """The exceptions have wandb's class hierarchy."""
    assert issubclass(wandb.errors.AuthenticationError, wandb.CommError)
    assert issubclass(wandb.errors.UnsupportedError, wandb.UsageError)
    assert issubclass(wandb.UsageError, wandb.Error)
    assert not issubclass(wandb.UsageError, wandb.CommError)
