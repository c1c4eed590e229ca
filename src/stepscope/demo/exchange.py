"""Averages of gradients between processes: each sends its own to rank 0, which sends back the mean."""

import socket
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any
PATIENCE_SECONDS = 30.0


class PeerLost(ConnectionError):
    """Another rank is gone."""


class Exchange:
    """One rank's end. `peers` are the sockets to the others for rank 0, and the one to rank 0 for any other."""

    def __init__(self, rank: int, peers: Sequence[socket.socket]) -> None:
        self._rank = rank
        self._peers = peers
        for peer in peers:
            peer.settimeout(PATIENCE_SECONDS)

    def average(self, gradient: Array) -> Array:
        """Exchange gradients and return their mean over all ranks; PeerLost when one is gone."""
        if self._rank:
            _send(self._peers[0], 0, gradient)
            return _receive(self._peers[0], 0, gradient)
        others = [_receive(peer, rank, gradient) for rank, peer in enumerate(self._peers, start=1)]
        mean = np.mean([gradient, *others], 0)
        for rank, peer in enumerate(self._peers, start=1):
            _send(peer, rank, mean)
        return mean


def _receive(peer: socket.socket, rank: int, like: Array) -> Array:
    """Receive an array of the shape of another one."""
    found = np.empty_like(like)
    rest = memoryview(found).cast("B")
    while rest:
        try:
            size = peer.recv_into(rest)
        except OSError as error:
            raise PeerLost(f"rank {rank} does not answer: {error}") from None
        if not size:
            raise PeerLost(f"rank {rank} has exited")
        rest = rest[size:]
    return found


def _send(peer: socket.socket, rank: int, array: Array) -> None:
    try:
        peer.sendall(array.tobytes())
    except OSError as error:
        raise PeerLost(f"rank {rank} has exited: {error}") from None
