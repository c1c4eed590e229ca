"""Errors: one tree, drawn in the docstring, and what each carries."""

import pytest

from stepscope.model import errors
from stepscope.model.errors import ConfigError, Reject, Retry, StepscopeError


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Every exception of the module is drawn, below the one they all are."""
    classes = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}
    lines = [line.lstrip("│ ") for line in (errors.__doc__ or "").splitlines()]
    drawn = {line.split()[1] for line in lines if line.startswith(("├", "└"))}
    assert classes == drawn | {"StepscopeError"}
    for error in (ConfigError("x"), Retry("x"), Reject("x", [])):
        assert isinstance(error, StepscopeError)


def test_a_wrong_setting_is_a_value_error_too() -> None:
    """Callers that know nothing of Stepscope catch it as what it is."""
    with pytest.raises(ValueError, match="unknown"):
        raise ConfigError("unknown setting")


def test_refusals_say_when_and_where() -> None:
    """Retry says after how long, if it knows; Reject which records, whatever sequence it was given."""
    assert (str(Retry("full")), Retry("full").after, Retry("full", 2.5).after) == ("full", None, 2.5)
    assert Reject("bad", [3, 1]).where == (3, 1)
