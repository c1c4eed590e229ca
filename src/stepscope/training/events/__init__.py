"""Client errors, their kinds, and the rules of three dialects for telling user errors from server errors."""

from collections.abc import Iterator
from enum import Enum
from typing import Any

from stepscope.extend import text_of
from stepscope.model.errors import ConfigError

MAX_CAUSES = 32


class RequestErrorCategory(Enum):
    """Who caused a failed request."""

    UNKNOWN = "unknown"
    USER_ERROR = "user"
    SERVER_ERROR = "server"


class RequestFailedError(Exception):
    """A request that was accepted and then failed."""

    def __init__(
        self,
        message: str = "",
        error_category: RequestErrorCategory = RequestErrorCategory.UNKNOWN,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.error_category = error_category
        self.request_id = request_id


class APIStatusError(Exception):
    """A server answered with an error status."""

    def __init__(self, message: str = "", status_code: int = 500, body: Any = None) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.body = body


class APIConnectionError(Exception):
    """A server could not be reached."""


class APITimeoutError(APIConnectionError):
    """A server did not answer in time."""


STATUS, TIMEOUT, CONNECTION = "api_status_error", "timeout", "connection_error"
APPLICATION, OTHER = "application_error", "validation_error"
"""The kinds of failure, as used in event names."""

_TIMEOUTS = frozenset(("APITimeoutError", "TimeoutError", "TimeoutException", "Timeout"))
_CONNECTIONS = frozenset(
    ("APIConnectionError", "ConnectionError", "ClientConnectionError", "NetworkError", "RemoteProtocolError",
     "ProxyError", "NewConnectionError", "gaierror")
)  # fmt: skip
"""Class names of errors in common clients, so that none of them has to be imported."""

_RETRYABLE = {"document": (408, 429), "python": (408,), "elixir": (408, 429)}
"""Statuses from 400 to 499 that are not the user's fault, in each dialect."""
_DEFAULT = {"document": True, "python": False, "elixir": False}
"""Whether an error of unknown kind counts as a user error."""
_USER_CATEGORIES = ("user", "user_error")
DIALECTS = tuple(_RETRYABLE)


def is_user_error(error: BaseException, dialect: str = "document") -> bool:
    """Return whether an error is the user's fault.

    A failed request is classified by its category, an error with a `status_code` by its status: 4xx is a user error
    except 408, and except 429 unless the dialect is `python`. Failed connections and timeouts are never user errors.
    The dialect `document` considers the error alone and treats other errors as the user's; `python` and `elixir`
    search the whole chain of causes for a user error and treat other errors as the server's. ConfigError for an
    unknown dialect.
    """
    verdict = classify(error, dialect)
    return _DEFAULT[dialect] if verdict is None else verdict


def classify(error: BaseException, dialect: str = "document") -> bool | None:
    """The same as `is_user_error`, but None for an error of unknown kind."""
    check_dialect(dialect)
    if dialect == "document":
        return _verdict(error, dialect)
    verdicts = [_verdict(each, dialect) for each in chain(error)]
    if any(verdicts):
        return True
    return False if False in verdicts else None


def _verdict(error: BaseException, dialect: str) -> bool | None:
    """Classify one error without its causes."""
    category = part(error, "error_category")
    if category is None and failure(error) == APPLICATION:
        category = part(error, "category")  # the name in tinker's own class
    if category is not None:
        return text_of(getattr(category, "value", category)).lower() in _USER_CATEGORIES
    kind = failure(error)
    if kind == STATUS:
        status = status_of(error) or 0
        return 400 <= status < 500 and status not in _RETRYABLE[dialect]
    return False if kind in (TIMEOUT, CONNECTION) else None


def failure(error: BaseException) -> str:
    """The kind of a failure: status, timeout, connection, the request's work, or other."""
    if status_of(error) is not None:
        return STATUS
    names = {each.__name__ for each in type(error).__mro__}
    if names & _TIMEOUTS:
        return TIMEOUT
    if names & _CONNECTIONS:
        return CONNECTION
    return APPLICATION if "RequestFailedError" in names else OTHER


def status_of(error: BaseException) -> int | None:
    """The HTTP status of an error; None when it has none."""
    found = part(error, "status_code")
    return found if isinstance(found, int) else None


def part(error: BaseException, name: str) -> Any:
    """An attribute of an error; None when it is missing or raises."""
    try:
        return getattr(error, name, None)
    except Exception:  # a property raised, which must not replace the error
        return None


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its chain of causes and contexts, each error once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting and len(seen) < MAX_CAUSES:
        here = waiting.pop()
        if isinstance(here, BaseException) and id(here) not in seen:
            seen.add(id(here))
            yield here
            waiting += [here.__context__, here.__cause__]


def check_dialect(dialect: str) -> None:
    """ConfigError for an unknown dialect."""
    if dialect not in DIALECTS:
        raise ConfigError(f"is_user_error: unknown dialect {dialect!r}; known are {', '.join(DIALECTS)}")
