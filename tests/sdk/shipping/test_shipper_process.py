"""The shipper process: which requests it removes when everything is delivered."""

from pathlib import Path

import stepscope
from stepscope.journal.layout import host_name
from stepscope.sdk.shipping.shipper_process import Shipping, ship
from stepscope.sdk.shipping.sink_requests import list_requests, register
from stepscope.sinks.registry import parse


def test_a_request_of_a_process_that_starts_meanwhile_stays(tmp_path: Path) -> None:
    """A journal that grew after the last check is not delivered: its request is kept, and removed after the next."""
    register(tmp_path, "late", host_name(), parse([{"hub": {"url": "http://127.0.0.1:9"}}], {}))
    shipping = Shipping(tmp_path, host_name())
    shipping.refresh()
    try:
        shipping.check_all()
        with stepscope.init(run_id="late", home=tmp_path, probes=False, otel=False) as run:
            assert run.flush(300)
            assert not shipping.forget_delivered()
            assert [request.run for request in list_requests(tmp_path)] == ["late"]
        shipping.check_all()
        assert shipping.forget_delivered()
        assert list_requests(tmp_path) == []
    finally:
        shipping.stop(300)


def test_a_destination_that_does_not_answer_is_looked_at_less_and_less_often(tmp_path: Path) -> None:
    """A shipper whose trainer is gone looks at its journals some hundred times in five minutes, at first at once."""
    with stepscope.init(run_id="left", home=tmp_path, probes=False, otel=False) as run:
        run.log({"loss": 1.0}, step=0)
    register(tmp_path, "left", host_name(), parse([{"hub": {"url": "http://127.0.0.1:9"}}], {}))
    slept: list[float] = []
    shipping = Shipping(tmp_path, host_name())
    try:
        assert not ship(shipping, wait=False, seconds=300, clock=lambda: sum(slept), sleep=slept.append)
    finally:
        shipping.stop(300)
    assert slept[0] <= 0.05
    assert len(slept) < 700
    assert max(slept) <= 0.5
