"""Which run a request belongs to that names it in another dialect's words, such as a trace for an MLflow experiment."""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class RunLink(NamedTuple):
    """A run and its project; the run is empty where only the project is known."""

    run: str
    project: str


FindLink = Callable[[Mapping[str, str]], RunLink | None]


class RunLinks:
    """Receivers that know runs by the headers of a request add what finds them; others ask."""

    def __init__(self) -> None:
        self.finders: list[FindLink] = []

    def find(self, headers: Mapping[str, str]) -> RunLink | None:
        """Return the run that a request's headers mean; None when no receiver knows one."""
        for finder in self.finders:
            if (link := finder(headers)) is not None:
                return link
        return None
