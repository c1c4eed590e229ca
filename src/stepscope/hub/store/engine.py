"""The port to a database: run a statement, ask a question, insert columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stepscope.hub.store.columns import Block
from stepscope.hub.store.native import Answer
from stepscope.model.errors import StepscopeError

_PASSING = frozenset((159, 202, 209, 210, 241, 242, 243, 252, 341, 394, 439))
"""ClickHouse's codes for: too slow, too busy, no memory, read-only, no space, too many parts, unfinished."""


class EngineError(StepscopeError):
    """The database refused a statement; `code` is ClickHouse's, 0 when it gave none."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code

    @property
    def passing(self) -> bool:
        """Tell whether the same statement may work later."""
        return self.code in _PASSING or "No space left" in str(self) or "errno: 28" in str(self)


@dataclass(frozen=True, slots=True)
class Table:
    """An answer of any type, for people: names, ClickHouse types, rows; `more` when rows were left off."""

    names: list[str]
    types: list[str]
    rows: list[list[Any]]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a stranger's question may go."""

    rows: int = 10_000
    seconds: float = 10.0
    memory: int = 512 * 1024 * 1024


class Engine(Protocol):
    """A database that speaks ClickHouse's dialect. Safe to use from several threads at once."""

    version: str
    modern: bool
    """Whether codecs, skip indexes and table settings newer than ClickHouse 18.16 can be used."""

    def execute(self, sql: str) -> None:
        """Run a statement and wait until its effect is complete, mutations included."""

    def query(self, sql: str) -> Answer:
        """Return the columns of a SELECT."""

    def query_many(self, questions: Sequence[str]) -> list[Answer]:
        """Return the columns of several SELECTs, asked at once where the engine can."""

    def insert(self, table: str, block: Block) -> None:
        """Add rows. They are safe from the death of this process on return; on an error some may be in."""

    def ask(self, sql: str, limits: Limits) -> Table:
        """Run a stranger's SELECT in a session that can not write."""

    def tree(self, sql: str) -> str | None:
        """Show how this engine parses a statement, without running it; None when it can not."""

    def check(self, table: str) -> list[str]:
        """Describe what is damaged in a table."""

    def close(self) -> None:
        """Let go of everything."""
