"""Network failures with real sockets: no listener, lost packets, no answer, slow answers, cut connections."""

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def refused() -> Iterator[int]:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    yield port


@contextlib.contextmanager
def blackhole() -> Iterator[int]:
    """A port that swallows packets: its queue is full, so that no connection is ever answered."""
    with contextlib.ExitStack() as undo:
        server = undo.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = int(server.getsockname()[1])
        for _ in range(4):
            client = undo.enter_context(socket.socket())
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(("127.0.0.1", port))
        yield port


@contextlib.contextmanager
def silent() -> Iterator[int]:
    """A port that accepts and never says a word, nor speaks TLS."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield int(server.getsockname()[1])


class Relay:
    """Passes bytes to a server and back; `delay` seconds later, or cut after `cut` bytes of answer."""

    def __init__(self, port: int, *, delay: float = 0.0, cut: int | None = None) -> None:
        self.target, self.delay, self.cut = port, delay, cut
        self._ended = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._open: list[socket.socket] = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        """End it and all it holds open."""
        self._ended.set()
        for each in self._open:
            _close(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.target))
                except ConnectionRefusedError:
                    _close(client)
                    continue
                self._open += [client, server]
                threading.Thread(target=self._forth, args=(client, server), daemon=True).start()
                threading.Thread(target=self._back, args=(server, client), daemon=True).start()

    def _forth(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
        _close(server)

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        left = self.cut
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                self._ended.wait(self.delay)
                client.sendall(data if left is None else data[:left])
                if left is not None and (left := left - len(data)) <= 0:
                    break
        _close(client)


def _close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
