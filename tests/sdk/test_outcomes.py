"""What `flush` and `finish` return says whether records are recorded, delivered or refused."""

from pathlib import Path

import pytest

import stepscope
from stepscope.sdk.outcomes import DeliveryStatus


@pytest.mark.parametrize(
    ("status", "delivered", "text"),
    [
        (DeliveryStatus(True), True, "recorded; nothing is undelivered"),
        (
            DeliveryStatus(True, 2736),
            False,
            "recorded; NOT DELIVERED: 2,736 bytes in the journal, waiting for a sink",
        ),
        (
            DeliveryStatus(False, 0, 1500, 1499),
            False,
            "recorded; REJECTED by a sink: 1,500 records, 1,499 in quarantine",
        ),
        (DeliveryStatus(True, None), None, "recorded; it is unknown whether it is delivered"),
        (DeliveryStatus(True, dropped=1), True, "recorded; DROPPED: 1 record"),
        (DeliveryStatus(False, recorded=False), False, "not everything is recorded yet"),
    ],
)
def test_a_status_says_what_is_missing(status: DeliveryStatus, delivered: bool | None, text: str) -> None:
    """The printed status does not suggest a delivery that did not happen."""
    assert (status.delivered, str(status)) == (delivered, text)
    assert f"delivered={delivered}, " in repr(status)


def test_a_dead_sink_is_in_every_status(tmp_path: Path) -> None:
    """`finish` without `wait` is done when all is recorded, and says that it is not delivered; a second one too."""
    sinks = [{"hub": {"url": "http://127.0.0.1:9"}}]
    run = stepscope.init(home=tmp_path, sinks=sinks, shipper="none", capture_logs=False, otel=False)
    run.log({"loss": 1.0}, step=0)
    first, second, waited = run.finish(), run.finish(), run.finish(wait=0.01)
    assert (bool(first), bool(second), bool(waited)) == (True, True, False)
    assert [(each.recorded, each.delivered) for each in (first, second, waited)] == [(True, False)] * 3
    assert first.undelivered == second.undelivered == waited.undelivered != 0


def test_dropped_records_are_in_the_status(tmp_path: Path) -> None:
    """Records lost before the journal are counted; dropped events of a span are not records."""
    run = stepscope.init(home=tmp_path, capture_logs=False, otel=False)
    assert run.finish().dropped == 0
    run.log({"loss": 1.0}, step=0)
    run.outcomes.add("dropped", "span event", "too many", 7)
    assert run.finish().dropped == 1
