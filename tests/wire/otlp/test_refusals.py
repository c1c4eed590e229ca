"""Refusals: counted by reason, told in one line."""

from stepscope.model.errors import StepscopeError
from stepscope.wire.otlp.refusals import BadRequest, Rejections


def test_nothing_refused_says_nothing() -> None:
    """No count, no message."""
    assert (Rejections("logs").count, Rejections("logs").message) == (0, "")


def test_reasons_are_counted_and_the_first_names_kept() -> None:
    """A thousand bad spans make a short message."""
    refused = Rejections("traces")
    for n in range(1000):
        refused.add("bad id", f"span {n}")
    assert refused.reasons == {"bad id": 1000}
    assert refused.message == "1000 spans rejected: bad id (1000: span 0, span 1, span 2)"


def test_names_are_cut() -> None:
    """A name of a megabyte does not come back."""
    refused = Rejections("metrics")
    refused.add("no value", "x" * 1_000_000)
    assert len(refused.message) < 200


def test_bad_request_is_ours_and_a_value_error() -> None:
    """One class for every body that cannot be read."""
    assert issubclass(BadRequest, StepscopeError)
    assert issubclass(BadRequest, ValueError)
