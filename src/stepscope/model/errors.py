"""The exceptions of Stepscope.

StepscopeError
├── ConfigError   a wrong setting; only `init` and commands raise it
├── Retry         not now: the same batch may be offered again after `after` seconds
│   └── ServerError   the destination failed on the records at `where`; one of them may be the cause
└── Reject        never: the records at `where` are bad, the others were taken
"""

from collections.abc import Mapping, Sequence


class StepscopeError(Exception):
    """Anything Stepscope raises."""


class ConfigError(StepscopeError, ValueError):
    """A wrong configuration; the message names the fix."""


class Retry(StepscopeError):
    """The batch was not accepted; send it again after `after` seconds (None: the pump decides)."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class ServerError(Retry):
    """The destination failed on the records at `where`, as with HTTP 500; the rest of the batch was accepted.

    It may be down, or one record may be the cause: the pump retries, and if that keeps failing it bisects to find that
    record. `counted` is how many of the rest were rejected, by reason, without saying which.
    """

    def __init__(
        self,
        reason: str,
        where: Sequence[int],
        after: float | None = None,
        *,
        counted: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(reason, after)
        self.counted = dict(counted or {})
        self.where = tuple(where)


class Reject(StepscopeError):
    """The records at the indices `where` can never be accepted; the rest of the batch was.

    `together` means that they were rejected as a whole and a single one may be the cause. `counted` is how many of the
    rest were rejected too, by reason, without saying which.
    """

    def __init__(
        self, reason: str, where: Sequence[int], *, together: bool = False, counted: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(reason)
        self.counted = dict(counted or {})
        self.where = tuple(where)
        self.together = together
