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
    """The batch was not taken; offer it again after `after` seconds (None: the pump decides)."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class ServerError(Retry):
    """The destination failed on the records at `where`, as with HTTP 500; the rest of the batch is safe.

    It may be down, or one record may be the cause: the pump offers them again, and if that keeps failing it looks for
    that record. `counted` is how many of the rest were refused, by reason, without saying which.
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
    """The records at the indices `where` can never be taken; the rest of the batch is safe.

    `together` says that they were refused as a lot: one of them may be to blame for all. `counted` is how many of the
    rest were refused too, by reason, without saying which.
    """

    def __init__(
        self, reason: str, where: Sequence[int], *, together: bool = False, counted: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(reason)
        self.counted = dict(counted or {})
        self.where = tuple(where)
        self.together = together
