"""Hubs forked from a process that has imported everything: a start costs half, and tests start hundreds of them."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MESSAGE_BYTES = 1 << 20


class ForkedHub:
    """A hub in a process of its own, with what the tests use of `subprocess.Popen`."""

    def __init__(self, server: "ForkServer", arguments: list[str], env: Mapping[str, str]) -> None:
        out, err = os.pipe(), os.pipe()
        self._server = server
        self.pid: int = server.ask({"argv": arguments, "env": dict(env), "cwd": os.getcwd()}, [out[1], err[1]])
        for each in (out[1], err[1]):
            os.close(each)
        self._handle = os.pidfd_open(self.pid)
        self.stdout, self.stderr = open(out[0]), open(err[0])  # noqa: SIM115 (closed by who reads them)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code once it has ended."""
        if self.returncode is None and select.select([self._handle], [], [], 0)[0]:
            self.returncode = self._server.ask({"ended": self.pid})
            os.close(self._handle)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; its exit code."""
        if self.returncode is None and not select.select([self._handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("stepscope hub", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; what it printed."""
        self.wait(timeout)
        return self.stdout.read(), self.stderr.read()

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        """Ask it to stop."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that hubs are forked from; it ends when the tests do."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            line = [sys.executable, "-m", "tests.hub.forked", str(number)]
            kept = {key: value for key, value in os.environ.items() if not key.startswith(("STEPSCOPE_", "OTEL_"))}
            subprocess.Popen(line, cwd=ROOT, env=kept, pass_fds=[number], stdin=subprocess.DEVNULL)

    def ask(self, question: dict[str, Any], files: list[int] | None = None) -> int:
        """Send a question, with open files; the answer is a number."""
        data = json.dumps(question).encode()
        assert len(data) < MESSAGE_BYTES
        socket.send_fds(self._socket, [len(data).to_bytes(4, "big") + data], files or [])
        return int.from_bytes(_receive(self._socket, 4), "big", signed=True)


_server: list[ForkServer] = []


def fork_hub(arguments: list[str], env: Mapping[str, str]) -> ForkedHub:
    """Start `stepscope hub` with its arguments and environment."""
    if not _server:
        _server.append(ForkServer())
    return ForkedHub(_server[0], arguments, env)


def _receive(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = channel.recv(size - len(data))
        assert more, "the process that hubs are forked from has ended"
        data += more
    return data


def _serve(channel: socket.socket) -> list[str] | None:
    """Fork a hub for each question; its arguments in the process that becomes one, None when the tests have ended."""
    while True:
        head, files, _, _ = socket.recv_fds(channel, 4, 2)
        if not head:
            return None
        asked = json.loads(_receive(channel, int.from_bytes(head + _receive(channel, 4 - len(head)), "big")))
        if "ended" in asked:
            _, status = os.waitpid(asked["ended"], 0)
            answer = os.waitstatus_to_exitcode(status)
        elif (answer := os.fork()) == 0:
            _become(asked, files)
            channel.close()
            return list(asked["argv"])
        for each in files:
            os.close(each)
        channel.sendall(answer.to_bytes(4, "big", signed=True))


def _become(asked: dict[str, Any], files: list[int]) -> None:
    """Take over the environment, folder and output of the process that is asked for."""
    for number, each in enumerate(files, start=1):
        os.dup2(each, number)
        os.close(each)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()


if __name__ == "__main__":
    import stepscope.hub.serve  # noqa: F401
    from stepscope.cli.main import main

    found = _serve(socket.socket(fileno=int(sys.argv[1])))
    if found is not None:
        sys.argv = ["stepscope", *found]
        sys.exit(main(found))
