"""Why the hub does not take or answer a request."""

from dataclasses import dataclass
from http import HTTPStatus

from stepscope.model.errors import StepscopeError


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status, a sentence, and when to come again, in seconds."""

    status: HTTPStatus
    message: str
    retry_after: float | None = None

    @property
    def code(self) -> str:
        """The status in words, for programs."""
        return self.status.phrase.lower().replace(" ", "_")


class Refused(StepscopeError):
    """The request must be refused."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
