"""Opaque ids of GraphQL objects, made of a kind and names."""

import base64
import binascii
import json

from stepscope.hub.receivers.wandb.graphql import GraphQLError


def write_id(kind: str, *names: str) -> str:
    """Return the id of an object."""
    return base64.urlsafe_b64encode(json.dumps([kind, *names]).encode()).decode()


def read_id(kind: str, id: str, count: int = 2) -> list[str]:
    """Return the names in an id of a kind; GraphQLError when it is not one."""
    try:
        found = json.loads(base64.urlsafe_b64decode(id.encode()))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) != count + 1 or found[0] != kind:
        raise GraphQLError(f"{id[:80]!r} is not the id of a {kind}")
    if not all(isinstance(each, str) for each in found):
        raise GraphQLError(f"{id[:80]!r} is not the id of a {kind}")
    return found[1:]
