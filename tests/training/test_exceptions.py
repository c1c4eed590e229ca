"""Whose fault an error is, whichever client's; one rule per Telemetry; the decorator on functions of every sort."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Event
from stepscope.training.events import failure
from stepscope.training.events.exceptions import APIStatusError, capture_exceptions, is_user_error
from stepscope.training.events.telemetry import Telemetry
from tests.training.conftest import Read


def foreign(name: str) -> list[tuple[Exception, str]]:
    """Errors of a client that people use, and their kinds; skips where it is not installed."""
    module: Any = pytest.importorskip(name, reason=f"{name} is not installed")
    if name == "tinker":
        httpx: Any = pytest.importorskip("httpx")
        asked = httpx.Request("GET", "http://x")
        return [
            (module.APIConnectionError(request=asked), "connection_error"),
            (module.APITimeoutError(request=asked), "timeout"),
        ]
    if name == "httpx":
        found = {"ConnectTimeout": "timeout", "ReadTimeout": "timeout", "PoolTimeout": "timeout"}
        found |= dict.fromkeys(("ConnectError", "ReadError", "RemoteProtocolError", "ProxyError"), "connection_error")
    elif name == "requests.exceptions":
        found = dict.fromkeys(("ConnectTimeout", "ReadTimeout"), "timeout")
        found |= dict.fromkeys(("ConnectionError", "ProxyError", "SSLError"), "connection_error")
    elif name == "aiohttp":
        found = {"ServerTimeoutError": "timeout", "ServerDisconnectedError": "connection_error"}
    else:
        found = {"TimeoutError": "timeout", "ConnectionRefusedError": "connection_error"}
    return [(getattr(module, each)("x"), kind) for each, kind in found.items()]


@pytest.mark.parametrize("name", ["tinker", "httpx", "requests.exceptions", "aiohttp", "builtins"])
def test_connection_errors_and_timeouts_are_not_user_errors(run: stepscope.Run, read: Read, name: str) -> None:
    """By every rule; a poll records the same as the rule says, and the decorator lets them go on."""

    @capture_exceptions
    def work(error: Exception) -> None:
        raise error

    for error, kind in foreign(name):
        assert failure(error) == kind
        assert [is_user_error(error, each) for each in ("document", "python", "elixir")] == [False] * 3
        with pytest.raises(type(error)):
            work(error)
        Telemetry().polling("r", "Sample").failed(error, should_retry=True)
        last = read(Event)[-1]
        assert (last.name.rpartition(".")[2], last.attrs["is_user_error"]) == (kind, False)


@pytest.mark.parametrize(("dialect", "users"), [("document", False), ("python", True), ("elixir", False)])
def test_one_rule_for_each_telemetry(run: stepscope.Run, read: Read, dialect: str, users: bool) -> None:
    """A request, a poll, an exception and the decorator say the same of 429."""
    telemetry, error = Telemetry("s", dialect=dialect), APIStatusError("slow down", 429)

    class Client:
        def get_telemetry(self) -> Telemetry:
            return telemetry

        @capture_exceptions
        def sample(self) -> None:
            raise error

    with pytest.raises(APIStatusError), telemetry.request("Sample"):
        raise error
    telemetry.polling("r", "Sample").failed(error, should_retry=True)
    telemetry.log_exception(error)
    if users:
        assert Client().sample() is None  # type: ignore[func-returns-value]
    else:
        with pytest.raises(APIStatusError):
            Client().sample()
    found = [each for each in read(Event) if each.attrs.get("tinker.session_id") == "s"]
    assert [each.attrs["is_user_error"] for each in found if "is_user_error" in each.attrs] == [users, users]
    assert ("user_error" in {each.name for each in found}) is users
    with pytest.raises(stepscope.ConfigError, match="dialect"):
        Telemetry(dialect="nope")


class Client:
    """The decorator on methods of every sort."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def get_telemetry(self) -> Telemetry:
        """That of the session."""
        return self._telemetry

    @capture_exceptions(fatal=True)
    def items(self) -> Iterator[int]:
        """Give one and fail."""
        yield 1
        raise ValueError("in items")

    @capture_exceptions
    async def stream(self) -> AsyncIterator[int]:
        """The same, later."""
        yield 1
        raise ValueError("in stream")

    @capture_exceptions()
    @classmethod
    def of_class(cls, fails: bool) -> Any:
        """Give the class, or fail."""
        return 1 / 0 if fails else cls

    @capture_exceptions
    @staticmethod
    def of_none(fails: bool) -> Any:
        """Give five, or fail."""
        return 1 / 0 if fails else 5


def test_functions_of_every_sort(run: stepscope.Run, read: Read) -> None:
    """Exceptions of a generator are recorded and propagate; exceptions of methods are recorded."""
    client = Client(Telemetry("s"))

    async def gather() -> None:
        async for _ in client.stream():
            pass

    with pytest.raises(ValueError, match="in items"):
        list(client.items())
    with pytest.raises(ValueError, match="in stream"):
        asyncio.run(gather())
    assert (Client.of_class(False), client.of_class(False)) == (Client, Client)
    assert (Client.of_none(False), client.of_none(False)) == (5, 5)
    assert Client.of_class(True) is None
    assert client.of_none(True) is None
    found = [each for each in read(Event) if each.name.startswith("exception.")]
    assert [(each.name.removeprefix("exception."), each.severity) for each in found] == [
        ("items", 17), ("stream", 17), ("of_class", 17), ("of_none", 17),
    ]  # fmt: skip
    assert [each.attrs.get("tinker.session_id") for each in found] == ["s", "s", None, None]
    assert not [name for name in run.outcomes.snapshot() if name.startswith("failed")]
