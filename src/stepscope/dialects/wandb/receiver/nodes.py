"""Nodes of GraphQL responses: opaque ids, and pages of nodes with edges and cursors."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepscope.dialects.wandb.receiver.graphql import GraphQLError, Node

MOST = 1000
"""The limit of nodes per page."""


def items(given: Mapping[str, Any], name: str) -> list[Any]:
    """Return the items of a list argument; as in GraphQL, a single value is a list of one, and null an empty list."""
    found = given.get(name)
    return [] if found is None else found if isinstance(found, list) else [found]


def write_id(kind: str, *names: str) -> str:
    """Return the id of an object."""
    return base64.urlsafe_b64encode(json.dumps([kind, *names]).encode()).decode()


def read_id(kind: str, id: str) -> list[str]:
    """Return the two names in an id of a kind; GraphQLError for any other id."""
    try:
        found = json.loads(base64.urlsafe_b64decode(id.encode()))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    listed = found if isinstance(found, list) and all(isinstance(each, str) for each in found) else []
    if len(listed) != 3 or listed[0] != kind:
        raise GraphQLError(f"{id[:80]!r} is not the id of a {kind}")
    return listed[1:]


def connection(
    found: Sequence[Any], given: Mapping[str, Any], *also: str, node: Callable[[Any], Node] = lambda each: each
) -> Node:
    """Return one page of a list, given `first` and `after`; `also` are node fields repeated on the edges.

    `node` converts what was found, that of the page only.
    """
    first, after = given.get("first"), given.get("after")
    size = min(max(first, 0), MOST) if isinstance(first, int) else MOST
    start = _position(after)
    page = [node(each) for each in found[start : start + size]]
    edges = [
        {"node": each, "cursor": str(start + at), **{name: each.get(name) for name in also}}
        for at, each in enumerate(page, 1)
    ]
    end = str(start + len(page)) if page else None
    return {
        "totalCount": len(found),
        "edges": edges,
        "pageInfo": {"__typename": "PageInfo", "endCursor": end, "hasNextPage": start + len(page) < len(found)},
    }


def _position(after: Any) -> int:
    if after in (None, ""):
        return 0
    if not isinstance(after, str) or not after.isdecimal() or len(after) > 12:
        raise GraphQLError(f"{str(after)[:40]!r} is not a cursor")
    return int(after)
