"""The document of SDK events: its examples, events, decorator and rules, in the journal; the bus is next door."""

import asyncio
import logging
import time

import pytest

import stepscope
from stepscope.model.records import Event
from stepscope.training.events.exceptions import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    RequestErrorCategory,
    RequestFailedError,
    capture_exceptions,
    is_user_error,
)
from stepscope.training.events.telemetry import QueueState, Telemetry
from tests.training.conftest import Mute, Read

logger = logging.getLogger("tinkex")


@pytest.fixture
def telemetry(run: stepscope.Run) -> Telemetry:
    """That of a session, in a current run."""
    return Telemetry("session-1", holder=None)


def named(events: list[Event], name: str) -> Event:
    """The one event of a name."""
    (found,) = [each for each in events if each.name == name]
    return found


def test_request_lifecycle(telemetry: Telemetry, read: Read) -> None:
    """The three events of a request are recorded with their data, session and severity."""
    model_id, data, duration, error = "m1", [1, 2, 3], 12.5, APIStatusError("bad", 400)
    telemetry.log(
        "request.start",
        event_data={"request_type": "ForwardBackward", "model_id": model_id, "data_size": len(data)},
    )
    telemetry.log(
        "request.complete",
        event_data={"request_type": "ForwardBackward", "duration_ms": duration, "status": "success"},
    )
    telemetry.log(
        "request.error",
        event_data={
            "request_type": "ForwardBackward",
            "error": str(error),
            "is_user_error": is_user_error(error),
        },
        severity="ERROR",
    )
    events = read(Event)
    start, complete, failed = (named(events, f"request.{each}") for each in ("start", "complete", "error"))
    assert {"request_type": "ForwardBackward", "model_id": "m1", "data_size": 3}.items() <= start.attrs.items()
    assert {"duration_ms": 12.5, "status": "success"}.items() <= complete.attrs.items()
    assert {"error": "bad", "is_user_error": True}.items() <= failed.attrs.items()
    assert [each.severity for each in (start, complete, failed)] == [9, 9, 17]
    assert [each.attrs["tinker.event_session_index"] for each in (start, complete, failed)] == [0, 1, 2]
    assert {each.attrs["tinker.session_id"] for each in (start, complete, failed)} == {"session-1"}
    assert abs(start.time - time.time_ns()) < 60e9


def test_request_block(telemetry: Telemetry, read: Read) -> None:
    """A block around a request writes the same three events by itself, and lets the error go on."""
    with telemetry.request("Sample", model_id="m"):
        pass
    with pytest.raises(APIConnectionError), telemetry.request("Sample"):
        raise APIConnectionError("down")
    events = [each for each in read(Event) if each.name.startswith("request.")]
    assert [each.name for each in events] == ["request.start", "request.complete", "request.start", "request.error"]
    assert events[1].attrs["duration_ms"] >= 0
    assert events[3].attrs["is_user_error"] is False


@pytest.mark.parametrize("should_retry", [True, False])
def test_future_polling(telemetry: Telemetry, read: Read, should_retry: bool) -> None:
    """A poll that fails is an event with all its fields, a warning while it is tried again."""
    error = APIStatusError("slow down", 429)
    telemetry.log(
        "APIFuture.result_async.api_status_error",
        event_data={
            "request_id": "r1",
            "request_type": "Sample",
            "status_code": error.status_code,
            "should_retry": should_retry,
            "iteration": 3,
            "elapsed_time": 1.5,
        },
        severity="WARNING" if should_retry else "ERROR",
    )
    by_hand = named(read(Event), "APIFuture.result_async.api_status_error")
    polling = telemetry.polling("r1", "Sample", clock=iter([0.0, 1.5]).__next__)
    for _ in range(3):
        polling.poll()
    assert polling.failed(error, should_retry=should_retry)
    ours = [each for each in read(Event) if each.name == by_hand.name][1]
    fields = ("request_id", "request_type", "status_code", "should_retry", "iteration", "elapsed_time")
    assert {key: ours.attrs[key] for key in fields} == {key: by_hand.attrs[key] for key in fields}
    assert ours.severity == by_hand.severity == (13 if should_retry else 17)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (APIConnectionError("x"), "connection_error"),
        (APITimeoutError("x"), "timeout"),
        (RequestFailedError("x"), "application_error"),
        (ValueError("x"), "validation_error"),
    ],
)
def test_other_polls(telemetry: Telemetry, read: Read, error: Exception, name: str) -> None:
    """Each kind of failed poll has an event of its own."""
    telemetry.polling("r", "Sample").failed(error, should_retry=True)
    assert named(read(Event), f"APIFuture.result_async.{name}").attrs["exception_type"] == type(error).__name__


def test_queue_state_changes(telemetry: Telemetry, read: Read) -> None:
    """A paused queue is an event with the model and the reason."""

    class Client:
        model_id = "m1"

        def on_queue_state_change(self, queue_state: QueueState) -> None:
            if queue_state == QueueState.PAUSED_RATE_LIMIT:
                logger.warning(f"Training paused: rate limit hit for {self.model_id}")
                telemetry.log("queue.paused", event_data={"model_id": self.model_id, "reason": "rate_limit"})

    Client().on_queue_state_change(QueueState.PAUSED_RATE_LIMIT)
    telemetry.queue_state(QueueState.PAUSED_CAPACITY, model_id="m1")
    telemetry.queue_state(QueueState.ACTIVE, model_id="m1")
    events = [each for each in read(Event) if each.name.startswith("queue.")]
    assert [each.name for each in events] == ["queue.paused", "queue.paused", "queue.active"]
    assert [each.attrs.get("reason") for each in events] == ["rate_limit", "capacity", None]


class TrainingClient:
    """Uses the decorator as the document does, and in its other forms."""

    def __init__(self, telemetry: Telemetry | None) -> None:
        self._telemetry = telemetry

    def get_telemetry(self) -> Telemetry | None:
        """The telemetry of the session."""
        return self._telemetry

    @capture_exceptions(fatal=True)
    def forward_backward(self, error: Exception) -> None:
        """Fail for good."""
        raise error

    @capture_exceptions
    def sample(self, error: Exception | None = None) -> str:
        """Fail, or not."""
        if error is not None:
            raise error
        return "done"

    @capture_exceptions()
    async def sample_async(self, error: Exception | None = None) -> str:
        """The same, later."""
        await asyncio.sleep(0)
        return self.sample.__wrapped__(self, error)


def test_capture_exceptions(telemetry: Telemetry, read: Read) -> None:
    """Fatal ones go on; others go on unless they are the user's; each is the documented event."""
    client = TrainingClient(telemetry)
    with pytest.raises(ValueError, match="wrong"):
        client.forward_backward(ValueError("wrong"))
    with pytest.raises(APIConnectionError):
        client.sample(APIConnectionError("down"))
    assert client.sample(APIStatusError("bad", 400)) is None
    assert client.sample() == "done"
    assert asyncio.run(client.sample_async()) == "done"
    assert asyncio.run(client.sample_async(APIStatusError("bad", 422))) is None
    with pytest.raises(APITimeoutError):
        asyncio.run(client.sample_async(APITimeoutError()))
    events = [each for each in read(Event) if each.name.startswith("exception.")]
    assert [each.name.removeprefix("exception.") for each in events] == [
        "forward_backward", "sample", "sample", "sample_async", "sample_async",
    ]  # fmt: skip
    assert {"exception_type": "ValueError", "exception_message": "wrong"}.items() <= events[0].attrs.items()
    assert "raise error" in events[0].attrs["traceback"]
    assert [each.severity for each in events] == [17, 17, 17, 17, 17]
    assert client.forward_backward.__name__ == "forward_backward"


def test_capture_exceptions_reraises_when_asked(telemetry: Telemetry, read: Read) -> None:
    """`reraise` hides nothing, a client without telemetry still raises, and a function needs no client."""

    @capture_exceptions(reraise=True)
    def work() -> None:
        raise APIStatusError("bad", 400)

    with pytest.raises(APIStatusError):
        work()
    assert named(read(Event), "exception.work")
    with pytest.raises(ValueError, match="x"):
        TrainingClient(None).forward_backward(ValueError("x"))


def caused(error: Exception) -> Exception:
    """An error around another."""
    try:
        try:
            raise error
        except Exception as inner:
            raise KeyError("outer") from inner
    except KeyError as outer:
        return outer


@pytest.mark.parametrize(
    ("error", "document", "python", "elixir"),
    [
        (RequestFailedError("x", RequestErrorCategory.USER_ERROR), True, True, True),
        (RequestFailedError("x", RequestErrorCategory.SERVER_ERROR), False, False, False),
        (APIStatusError("x", 400), True, True, True),
        (APIStatusError("x", 408), False, False, False),
        (APIStatusError("x", 429), False, True, False),
        (APIStatusError("x", 500), False, False, False),
        (APIConnectionError("x"), False, False, False),
        (APITimeoutError("x"), False, False, False),
        (ValueError("x"), True, False, False),
        (caused(APIStatusError("x", 404)), True, True, True),
        (caused(APIStatusError("x", 503)), True, False, False),
        (caused(RequestFailedError("x", RequestErrorCategory.USER_ERROR)), True, True, True),
    ],
)
def test_is_user_error(error: Exception, document: bool, python: bool, elixir: bool) -> None:
    """The document's rules, and both dialects' for 429, which look along the chain of causes."""
    assert is_user_error(error) is document
    assert is_user_error(error, "python") is python
    assert is_user_error(error, "elixir") is elixir


def test_log_exceptions(telemetry: Telemetry, read: Read) -> None:
    """A user's error is a warning with its status; any other has type, message, stack; a fatal one is written."""
    assert telemetry.log_exception(APIStatusError("bad", 400, {"detail": "no"}))
    assert telemetry.log_exception(RuntimeError("broken"))
    assert telemetry.log_fatal_exception(MemoryError("full"))
    events = read(Event)
    user = named(events, "user_error")
    assert {"error_type": "APIStatusError", "message": "bad", "status_code": 400}.items() <= user.attrs.items()
    assert user.severity == 13
    broken, fatal = [each for each in events if each.name == "exception"]
    assert (broken.attrs["exception.type"], broken.severity) == ("RuntimeError", 17)
    assert (fatal.attrs["exception.message"], fatal.severity) == ("full", 17)
    assert telemetry.log_fatal_exception(APIStatusError("bad", 422))
    assert [each.severity for each in read(Event) if each.name == "user_error"] == [13, 13]


def test_a_session_starts_and_ends_once(telemetry: Telemetry, read: Read) -> None:
    """Start and end are recorded once, for any number of calls and after errors."""

    def fail() -> None:
        with telemetry:
            telemetry.log_fatal_exception(RuntimeError("first"))
            raise RuntimeError("second")

    with pytest.raises(RuntimeError):
        fail()
    telemetry.close()
    names = [each.name for each in read(Event) if "tinker.session_id" in each.attrs]
    assert names == ["SESSION_START", "exception", "exception", "SESSION_END"]


def test_bad_input_is_counted(telemetry: Telemetry, run: stepscope.Run, read: Read) -> None:
    """Wrong types cost themselves only, and calls without a run say so."""
    assert telemetry.log("odd", event_data=[1], severity="LOUD")
    assert telemetry.log("odd", event_data={1: object(), "nan": float("nan")})
    assert not telemetry.log_exception("no exception")
    assert len([each for each in read(Event) if each.name == "odd"]) == 2
    counts = run.outcomes.snapshot()
    for name in ("event_data/list", "severity/str", "exception/str"):
        assert counts[f"rejected/{name}"] == 1
    stepscope.finish()
    assert telemetry.log("after") is False
    assert telemetry.close() is True


class MuteUserError(Mute):
    """One that is the user's fault."""

    error_category = RequestErrorCategory.USER_ERROR


def test_errors_that_say_nothing(telemetry: Telemetry, read: Read) -> None:
    """The user's own exception goes on, whatever it raises when it is asked for its text or status."""
    with pytest.raises(Mute), telemetry.request("Sample"):
        raise Mute
    assert telemetry.log_exception(Mute())
    assert telemetry.log_exception(MuteUserError())
    assert telemetry.polling("r", "Sample").failed(Mute(), should_retry=True)
    assert telemetry.log(Mute(), event_data={Mute(): 1}, severity=Mute())  # type: ignore[arg-type]

    @capture_exceptions(reraise=True)
    def work() -> None:
        raise Mute

    with pytest.raises(Mute):
        work()
    events = read(Event)
    silence = "(no message)"
    assert named(events, "request.error").attrs["error"] == silence
    assert named(events, "exception").attrs["exception.message"] == silence
    assert named(events, "user_error").attrs["message"] == silence
    assert named(events, "APIFuture.result_async.validation_error").attrs["exception"] == silence
    assert named(events, "exception.work").attrs["exception_message"] == silence
    assert named(events, "<Mute>").attrs["<Mute>"] == 1
