"""Pooled connections to one of several hosts: the first that answers, the next one when it fails."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from stepscope.hub.store.cluster import dialect
from stepscope.hub.store.cluster.address import Address
from stepscope.hub.store.cluster.session import NETWORK_ERROR, Session
from stepscope.hub.store.engine import EngineError


class Pool:
    """Connections to the first host that answers. It is kept until it fails, so that what was written is read."""

    def __init__(self, address: Address, settings: dialect.Settings | None = None) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._idle: list[Session] = []
        self._hosts = list(address.hosts)
        self._closed = False
        self.settings = settings or {}
        """The settings of every session."""

    def use(self, settings: dialect.Settings) -> None:
        """Open sessions with other settings from now on: they are chosen by what the first one says of the server."""
        self.settings = settings

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        """The hosts, in the order in which they are tried."""
        return tuple(self._hosts)

    @property
    def first(self) -> tuple[str, int]:
        """The host that is tried first."""
        return self._hosts[0]

    @contextmanager
    def lend(self) -> Iterator[Session]:
        """Lend a connection: one that is idle, or a new one. After an error it is closed."""
        session = self._take() or self.connect()
        try:
            yield session
        except BaseException as error:
            session.close()
            if isinstance(error, EngineError) and error.code == NETWORK_ERROR:
                self.avoid(session.host)
            raise
        self._give(session)

    def connect(self, *, database: str | None = None, only: tuple[str, int] | None = None) -> Session:
        """Connect to the first host that answers, or to one; EngineError, which passes, when none does."""
        reasons = []
        for host in tuple(self._hosts) if only is None else (only,):
            try:
                wanted = self._address.database if database is None else database
                return Session(self._address, host, self.settings, database=wanted)
            except EngineError as error:
                if error.code != NETWORK_ERROR:
                    raise
                reasons.append(str(error))
                self.avoid(host)
        raise EngineError(f"no server of the store answers: {'; '.join(reasons)}", NETWORK_ERROR)

    def _take(self) -> Session | None:
        while True:
            with self._lock:
                if self._closed:
                    raise EngineError("the store is closed")
                if not self._idle:
                    return None
                session = self._idle.pop()
            if session.is_idle():
                return session
            session.close()

    def _give(self, session: Session) -> None:
        with self._lock:
            if not self._closed and session.host == self._hosts[0]:
                self._idle.append(session)
                return
        session.close()

    def avoid(self, host: tuple[str, int]) -> None:
        """Try a host last from now on, and drop the connections to it."""
        with self._lock:
            self._hosts.sort(key=lambda each: each == host)
            dropped = [each for each in self._idle if each.host == host]
            self._idle = [each for each in self._idle if each.host != host]
        for session in dropped:
            session.close()

    def close(self) -> None:
        """Close the idle connections now, and the others when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()
