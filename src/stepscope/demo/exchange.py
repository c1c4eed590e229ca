"""Averages of gradients between processes: shared memory for the numbers, sockets for meeting."""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = Any
PATIENCE_SECONDS = 30.0


class PeerLost(ConnectionError):
    """Another rank is gone."""


class Exchange:
    """One rank's end. `peers` are the sockets to the others for rank 0, and the one to rank 0 for any other."""

    def __init__(self, memory: Path, size: int, rank: int, world: int, peers: Sequence[socket.socket]) -> None:
        self._slots: Array = np.memmap(memory, np.float64, "r+", shape=(2, world, size))
        self._rank = rank
        self._peers = peers
        self._turn = 0
        for peer in peers:
            peer.settimeout(PATIENCE_SECONDS)

    def average(self, gradient: Array) -> Array:
        """Exchange gradients and return their mean over all ranks; PeerLost when one is gone.

        Two slots take turns: when all have met for one, all have read the one before.
        """
        slot = self._slots[self._turn % 2]
        self._turn += 1
        slot[self._rank] = gradient
        self._barrier()
        return np.asarray(slot).mean(0)

    def _barrier(self) -> None:
        """Wait until all ranks are here."""
        if self._rank == 0:
            for rank, peer in enumerate(self._peers, start=1):
                _receive_signal(peer, rank)
            for rank, peer in enumerate(self._peers, start=1):
                _send_signal(peer, rank)
        else:
            _send_signal(self._peers[0], 0)
            _receive_signal(self._peers[0], 0)


def _receive_signal(peer: socket.socket, rank: int) -> None:
    try:
        received = peer.recv(1)
    except OSError as error:
        raise PeerLost(f"rank {rank} does not answer: {error}") from None
    if not received:
        raise PeerLost(f"rank {rank} has exited")


def _send_signal(peer: socket.socket, rank: int) -> None:
    try:
        peer.sendall(b"!")
    except OSError as error:
        raise PeerLost(f"rank {rank} has exited: {error}") from None


def memory_bytes(size: int, world: int) -> int:
    """How large the shared memory is."""
    return 2 * world * size * 8
