"""Parts of a table that one replica holds and ZooKeeper does not know of: what a broken connection leaves of an insert.

A server that loses ZooKeeper while it registers a part does not know whether it is registered, and keeps it. If it is
not, no other replica gets the rows and no mutation deletes them. A new server drops the part after five minutes, 18.16
when the table is loaded again.
"""

import time
from collections.abc import Callable, Mapping

from stepscope.hub.store import literal
from stepscope.hub.store.cluster.session import Session
from stepscope.hub.store.cluster.waiting import UNFINISHED, catch_up
from stepscope.hub.store.engine import EngineError

_PATHS = "SELECT table, replica_path FROM system.replicas WHERE database = currentDatabase()"


def drop_unregistered(session: Session, sleep: Callable[[float], None] = time.sleep) -> None:
    """Load the tables of a replica again that hold such parts; their rows are gone then. Others are left alone."""
    paths: dict[str, str] = dict(session.query(_PATHS).rows("table", "replica_path"))
    if not paths:
        return
    found = _unregistered(session, paths)
    # A part that was added while they were compared is registered by now.
    tables = sorted({table for table, _ in found & _unregistered(session, paths)} if found else ())
    for table in tables:
        try:
            session.execute(f"SYSTEM RESTART REPLICA {table}", brief=True)
        except EngineError as error:
            raise EngineError(f"rows of {table} that no other replica knows of stay: {error}", UNFINISHED) from error
    if tables:
        catch_up(session.query, tables, sleep)


def _unregistered(session: Session, paths: Mapping[str, str]) -> set[tuple[str, str]]:
    """The tables and the names of such parts."""
    found = session.query(" UNION ALL ".join(_QUESTION.format(*_names(each)) for each in paths.items()))
    return set(found.rows("table", "name"))


_QUESTION = """SELECT table, name FROM system.parts WHERE database = currentDatabase() AND table = {0} AND active
    AND name NOT IN (SELECT name FROM system.zookeeper WHERE path = {1})"""


def _names(path: tuple[str, str]) -> tuple[str, str]:
    table, replica = path
    return literal.text(table), literal.text(f"{replica}/parts")
