"""Searches as SQL: comparisons of clauses, orders, and pages of rows with their tokens."""

import base64
import binascii
import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from stepscope.dialects.mlflow.receiver.errors import BAD_REQUEST, refused
from stepscope.dialects.mlflow.receiver.filter_grammar import Clause
from stepscope.dialects.mlflow.receiver.request_fields import Fields

MAX_RESULTS = 50_000
MAX_CLAUSES, MAX_ORDERS = 400, 60
"""Comparisons of one filter, and fields of one order; MLflow's server takes 63, and of attributes about 900."""
Part = tuple[str, list[Any]]
"""A part of a query, and its values."""
Key = TypeVar("Key")
Term = TypeVar("Term")


def compare(column: str, clause: Clause) -> Part:
    """Return SQL that compares a column with the value of a clause."""
    value: Any = clause.value
    if clause.comparator in ("IN", "NOT IN"):
        values = list(value) if isinstance(value, tuple) else [value]
        return f"{column} {clause.comparator} ({', '.join('?' for _ in values)})", values
    if clause.comparator == "ILIKE":
        return f"lower({column}) LIKE lower(?)", [value]
    return f"{column} {clause.comparator} ?", [value]


def pair_condition(pairs: str, key: str, clause: Clause, matches_nan: bool = False) -> Part:
    """Return SQL that tests the value of a key among the tags, params or metrics `t` of one entity."""
    exists = f"EXISTS (SELECT 1 FROM {pairs} AND t.key = ?"
    if clause.comparator in ("IS NULL", "IS NOT NULL"):
        return f"{'NOT ' if clause.comparator == 'IS NULL' else ''}{exists})", [key]
    test, values = compare("t.value", clause)
    return f"{exists} AND ({test}{' OR t.value IS NULL' * matches_nan}))", [key, *values]


def of_project(column: str, project: str | None) -> list[Part]:
    """Return the test that a row is of the token's project; none for a token of all projects."""
    return [] if project is None else [(f"{column} = ?", [project])]


def add_order(orders: dict[Key, Term], key: Key, term: Term, order_by: Sequence[str]) -> None:
    """Add a term to an order; Refused for a second one of a field."""
    if key in orders:
        raise refused(f"`order_by` contains duplicate fields: {list(order_by)}", BAD_REQUEST)
    orders[key] = term


def check_count(most: int) -> None:
    """Refuse a page size outside the limits."""
    if most < 1:
        raise refused(f"Invalid value {most} for parameter 'max_results' supplied. It must be a positive integer")
    if most > MAX_RESULTS:
        raise refused(f"Invalid value {most} for parameter 'max_results' supplied. It must be at most {MAX_RESULTS}")


def check_clauses(filters: Sequence[object], orders: Sequence[object]) -> None:
    """Refuse more comparisons or orders than one statement of SQLite can have."""
    for name, found, most in (("filter", filters, MAX_CLAUSES), ("order_by", orders, MAX_ORDERS)):
        if len(found) > most:
            raise refused(f"{name} must have at most {most} clauses, got {len(found)}", BAD_REQUEST)


class Asked(NamedTuple):
    """The fields that all searches have: a filter, an order, and the token of a page."""

    filter: str
    order_by: list[str]
    token: str


def read_search(fields: Fields) -> Asked:
    """Return the fields of a search."""
    return Asked(fields.text("filter"), fields.texts("order_by"), fields.text("page_token"))


class Page(NamedTuple):
    """A page of the rows of a search: how many, and after which."""

    most: int
    offset: int

    def select(self, db: sqlite3.Connection, source: Part, tests: Sequence[Part], order: Part) -> list[tuple[Any, ...]]:
        """Return its rows, and one more where there is one."""
        conditions = " AND ".join(test for test, _ in tests)
        values = [value for _, given in (source, *tests, order) for value in given]
        query = f"SELECT {source[0]} WHERE {conditions} ORDER BY {order[0]} LIMIT ? OFFSET ?"
        return db.execute(query, [*values, self.most + 1, self.offset]).fetchall()

    def body(self, name: str, found: Sequence[Any], *, is_last: bool) -> dict[str, Any]:
        """Return what was found as the body of a response, with the token of the next page."""
        body: dict[str, Any] = {name: found} if found else {}
        return body if is_last else {**body, "next_page_token": page_token(self.offset + self.most)}


def read_offset(token: str) -> int:
    """Return the offset in a page token; 0 without a token."""
    if not token:
        return 0
    try:
        decoded = base64.b64decode(token)
    except (binascii.Error, ValueError):
        raise refused("Invalid page token, could not base64-decode") from None
    try:
        parsed = json.loads(decoded)
    except (ValueError, RecursionError):
        raise refused(f"Invalid page token, decoded value={decoded!r}") from None
    offset = parsed.get("offset") if isinstance(parsed, dict) else None
    if not offset:
        raise refused(f"Invalid page token, parsed value={parsed}")
    try:
        found = int(offset)
    except (ValueError, TypeError, OverflowError):
        raise refused(f"Invalid page token, not stringable {offset}") from None
    if not -(2**63) <= found < 2**63:
        raise refused(f"Invalid page token, parsed value={parsed}")
    return max(found, 0)


def page_token(offset: int) -> str:
    """Return the page token of an offset."""
    return base64.b64encode(json.dumps({"offset": offset}).encode()).decode()
