"""The farm of real trainings: a seed draws the same one, and what does not learn is thrown away."""

from benchmarks.zoo.real.tape import Tape
from tests.late import late

farm = late("benchmarks.zoo.real.farm", "torch")

AUTOENCODER = 20
"""A seed that draws a small one."""


def metrics(tape: Tape) -> list[tuple[int, dict[str, float]]]:
    """What was logged, but for times."""
    known = {"loss", "val_loss", "lr"}
    rows = [row for row in tape.rows if row[0] == "m"]
    return [(row[2], {key: value for key, value in row[3].items() if key.split("/")[-1] in known}) for row in rows]


def test_a_seed_trains_the_same_again_and_is_healthy_by_its_own_measure() -> None:
    """Plan, names and values are those of the first time."""
    (first, training, why), (again, other, _) = farm.trained(AUTOENCODER), farm.trained(AUTOENCODER)
    assert why == ""
    assert training.plan == other.plan
    assert metrics(first) == metrics(again)


def test_a_training_that_does_not_learn_is_not_kept() -> None:
    """Its weights are never updated, so that its own measure stays."""
    plan, learner = farm.draw(AUTOENCODER)
    training = farm.Training(plan, learner)
    training.knobs.updates = False
    training.run(Tape())
    assert farm.is_healthy(training) == "did not learn"
