"""Which attributes stay when there are too many."""

from stepscope.model.attribute_limit import left_out


def test_numbered_families_go_first_and_the_newest_stay() -> None:
    """Names of their own are kept before numbered ones, later ones before earlier ones."""
    keys = ["epoch", *(f"loss_at_step_{step}" for step in range(10)), "train_loss", "val_loss"]
    assert left_out(keys, 13) == []
    assert left_out(keys, 10) == ["loss_at_step_0", "loss_at_step_1", "loss_at_step_2"]
    assert left_out(keys, 2) == [*(f"loss_at_step_{step}" for step in range(10)), "epoch"]


def test_a_number_may_stand_anywhere() -> None:
    """`layer.0.norm` and `0_loss` are numbered; `f1_score`, alone with its digit, is not."""
    numbered = [*(f"layer.{layer}.norm" for layer in range(20)), *(f"{step}_loss" for step in range(20))]
    keys = ["f1_score", "epoch", *numbered, "val_loss"]
    assert left_out(keys, 5) == numbered[:-2]
    assert left_out(keys, 2) == [*numbered, "f1_score"]
