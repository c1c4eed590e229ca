"""Values keep apart when only the prefix of their keys does, in whatever order they come."""

from itertools import permutations

from stepscope.integrations.callback_run import Categories

PREFIXES = {"train_": "trainer", "eval_": "evaluator", "val_": "evaluator", "test_": "evaluator"}


def test_a_prefix_tells_the_category() -> None:
    """A prefix is removed, unless it is the whole key or in `kept`."""
    found = Categories(PREFIXES, kept=("test_",)).sort({"train_loss": 1, "eval_acc": 2, "test_acc": 3, "eval_": 4})
    assert found == {"trainer": {"loss": 1, "eval_": 4}, "evaluator": {"acc": 2, "test_acc": 3}}


def test_a_name_that_is_taken() -> None:
    """The key without a prefix has it, then that of the first prefix; the order of a call does not count."""
    values = {"train_loss": 1, "loss": 2, "eval_loss": 3, "val_loss": 4}
    for order in permutations(values.items()):
        assert Categories(PREFIXES).sort(dict(order)) == {
            "trainer": {"loss": 2, "train_loss": 1},
            "evaluator": {"loss": 3, "val_loss": 4},
        }


def test_calls_one_after_the_other() -> None:
    """A name stays with its key from call to call, but a key without a prefix can have no other."""
    categories = Categories(PREFIXES)
    assert categories.sort({"val_loss": 1, "train_loss": 1}) == {"evaluator": {"loss": 1}, "trainer": {"loss": 1}}
    assert categories.sort({"eval_loss": 2, "loss": 2}) == {"evaluator": {"eval_loss": 2}, "trainer": {"loss": 2}}
    assert categories.sort({"val_loss": 3, "train_loss": 3}) == {
        "evaluator": {"loss": 3},
        "trainer": {"train_loss": 3},
    }


def test_a_long_name_that_is_taken() -> None:
    """A key that kept its prefix has that name too."""
    found = Categories(PREFIXES).sort({"train_train_loss": 1, "train_loss": 2, "loss": 3})
    assert found == {"trainer": {"loss": 3, "train_loss": 2, "train_train_loss": 1}}
