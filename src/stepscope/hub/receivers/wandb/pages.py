"""Pagination of GraphQL connections: edges, cursors, hasNextPage."""

from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.hub.receivers.wandb.graphql import GraphQLError, Node

MOST = 1000
"""Nodes of one page."""


def connection(nodes: Sequence[Node], given: Mapping[str, Any], *also: str) -> Node:
    """Return one page of a list, given `first` and `after`; `also` are node fields repeated on the edges."""
    first, after = given.get("first"), given.get("after")
    size = min(max(first, 0), MOST) if isinstance(first, int) else MOST
    start = _position(after)
    page = nodes[start : start + size]
    edges = [
        {"node": node, "cursor": str(start + at), **{name: node.get(name) for name in also}}
        for at, node in enumerate(page, 1)
    ]
    end = str(start + len(page)) if page else None
    return {
        "totalCount": len(nodes),
        "edges": edges,
        "pageInfo": {"__typename": "PageInfo", "endCursor": end, "hasNextPage": start + len(page) < len(nodes)},
    }


def _position(after: Any) -> int:
    if after in (None, ""):
        return 0
    if not isinstance(after, str) or not after.isdecimal() or len(after) > 12:
        raise GraphQLError(f"{str(after)[:40]!r} is not a cursor")
    return int(after)
