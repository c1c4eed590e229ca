"""The document of SDK events on the wire: what a Tinker server reads, judged by the types of Tinker's own client."""

from collections.abc import Iterator
from typing import Any

import pytest

import stepscope
from stepscope.training.bus import execute
from stepscope.training.bus.reporters import event_reporter
from stepscope.training.events.exceptions import RequestErrorCategory, RequestFailedError, is_user_error
from stepscope.training.events.telemetry import Telemetry
from tests.conftest import Python
from tests.dialects.tinker.sink_peer import TinkerPeer
from tests.late import late
from tests.training.conftest import Until

tinker = late("tinker")
REQUEST = {"request_type": "ForwardBackward", "model_id": "m1", "data_size": 3}
POLL = {
    "request_id": "r1",
    "request_type": "ForwardBackward",
    "status_code": 503,
    "should_retry": True,
    "iteration": 2,
    "elapsed_time": 1.5,
}


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[TinkerPeer]:
    """A Tinker server that the client's own variable names."""
    server = TinkerPeer()
    monkeypatch.setenv("TINKER_BASE_URL", server.url)
    yield server
    stepscope.finish()
    server.stop()


def of_session(peer: TinkerPeer, session: str) -> list[Any]:
    """The events a server got for a session, in their order."""
    found = [each for request in peer.told if request.session_id == session for each in request.events]
    return sorted(found, key=lambda each: each.event_session_index)


def test_a_telemetry_alone_sends_what_was_logged(peer: TinkerPeer, until: Until) -> None:
    """It starts a run; the session is the one given, the data is the mapping logged, and nothing else is sent."""
    telemetry = Telemetry("2b4e1c62-92a4-4a5a-a9d4-6f0f6f3f8e11", holder=object())
    run = stepscope.current_run()
    assert run is not None
    telemetry.log("request.start", event_data=REQUEST)
    telemetry.log("APIFuture.result_async.api_status_error", event_data=POLL, severity="WARNING")
    telemetry.log("queue.paused", event_data={"model_id": "m1", "reason": "rate_limit"})
    telemetry.log("empty")
    until(lambda: len(peer.events()) >= 4)
    stepscope.finish(wait=20)
    assert {request.session_id for request in peer.told} == {telemetry.session_id}
    found = of_session(peer, str(telemetry.session_id))
    assert [(each.event_name, each.event_data, each.severity) for each in found] == [
        ("request.start", REQUEST, "INFO"),
        ("APIFuture.result_async.api_status_error", POLL, "WARNING"),
        ("queue.paused", {"model_id": "m1", "reason": "rate_limit"}, "INFO"),
        ("empty", {}, "INFO"),
    ]
    assert [each.event_session_index for each in found] == [0, 1, 2, 3]


def test_two_sessions_stay_two(peer: TinkerPeer, until: Until) -> None:
    """So do those of a reporter; each begins at 0, and one that is used twice is numbered through."""
    first, second, again = Telemetry("one"), Telemetry("two"), Telemetry("one")
    for each in (first, second, again, second):
        each.log("e")
    with event_reporter(["tinkex.retry"], "three"):
        execute("tinkex.retry", {"attempt": 1, "delay": 500}, {"error": "timeout"})
    until(lambda: len(peer.events()) >= 5)
    assert {request.session_id for request in peer.told} == {"one", "two", "three"}
    for session, count in (("one", 2), ("two", 2), ("three", 1)):
        assert [each.event_session_index for each in of_session(peer, session)] == list(range(count))
    (retry,) = of_session(peer, "three")
    assert retry.event_name == "tinkex.retry"
    assert retry.event_data == {"measurements": {"attempt": 1, "delay": 500}, "metadata": {"error": "timeout"}}


def test_a_block_is_a_session(peer: TinkerPeer, until: Until) -> None:
    """It starts and ends once, as the service's own types say it, whatever the run around it does."""
    with Telemetry("block") as telemetry, telemetry:
        telemetry.log("inside")
    telemetry.close()
    until(lambda: len(peer.events()) >= 3)
    stepscope.finish(wait=20)
    assert [each.event for each in peer.events()] == ["SESSION_START", "GENERIC_EVENT", "SESSION_END"]
    assert {request.session_id for request in peer.told} == {"block"}
    assert peer.events()[2].duration.startswith("0:00:0")


def test_an_exception_has_the_severity_that_was_given(peer: TinkerPeer, until: Until) -> None:
    """ERROR unless another is asked for, fatal or not."""
    telemetry = Telemetry("errors")
    telemetry.log_exception(RuntimeError("a"))
    telemetry.log_fatal_exception(RuntimeError("b"))
    telemetry.log_fatal_exception(RuntimeError("c"), "CRITICAL")
    until(lambda: len(peer.events()) >= 3)
    found = [(each.event, each.error_message, each.severity) for each in of_session(peer, "errors")]
    assert found == [("UNHANDLED_EXCEPTION", *each) for each in (("a", "ERROR"), ("b", "ERROR"), ("c", "CRITICAL"))]


def test_an_exception_that_ends_the_program_is_sent_once(peer: TinkerPeer, python: Python, until: Until) -> None:
    """By the session whose block it left, which then ends; the end of the process does not repeat it."""
    code = """
        from stepscope.training.events.telemetry import Telemetry
        with Telemetry("crash"):
            raise RuntimeError("boom")
    """
    env = {"TINKER_BASE_URL": peer.url, "STEPSCOPE_SHIPPER": "thread"}
    assert python(code, env=env).returncode == 1
    until(lambda: len(peer.events()) >= 3)
    assert [each.event for each in peer.events()] == ["SESSION_START", "UNHANDLED_EXCEPTION", "SESSION_END"]


def raised(error: Exception, cause: Exception | None) -> Exception:
    """An error that was raised because of another."""
    try:
        raise error from cause
    except type(error) as found:
        return found


def test_whose_fault_as_the_client_itself_says() -> None:
    """The dialect `python` agrees with the unmodified client for its own errors, alone and as causes."""
    import httpx

    theirs: Any = pytest.importorskip("tinker.lib.telemetry").is_user_error
    asked = httpx.Request("GET", "http://x")
    errors: list[Exception] = [
        tinker.APIStatusError("x", response=httpx.Response(status, request=asked), body=None)
        for status in (400, 401, 404, 408, 409, 422, 429, 500, 503)
    ]
    errors += [tinker.APIConnectionError(request=asked), tinker.APITimeoutError(request=asked), ValueError("x")]
    categories = tinker.types.RequestErrorCategory
    errors += [tinker.RequestFailedError("x", "r", each) for each in categories]
    errors += [raised(KeyError("outer"), each) for each in list(errors)]
    errors += [raised(RuntimeError("outer"), each) for each in list(errors)]
    for error in errors:
        assert is_user_error(error, "python") is theirs(error), repr(error)
    assert is_user_error(tinker.RequestFailedError("x", "r", categories.User))
    assert not is_user_error(tinker.RequestFailedError("x", "r", categories.Server))
    assert not is_user_error(RequestFailedError("x", RequestErrorCategory.UNKNOWN))


def test_telemetry_is_not_sent_where_it_is_turned_off(peer: TinkerPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own variable keeps events in the journal."""
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    assert Telemetry("quiet").log("e")
    run = stepscope.current_run()
    assert run is not None
    assert run.settings.sinks == ()
