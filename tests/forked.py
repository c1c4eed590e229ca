"""Commands and programs forked from a process that has imported `stepscope`: tests start hundreds of them."""

import contextlib
import ctypes
import gc
import importlib.machinery
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOREIGN = ("STEPSCOPE_", "OTEL_")
"""What variables of the developer's own begin with; tests do without them."""
NORMAL = {"STEPSCOPE_HUB_PRIORITY": "normal"}
"""Hubs of the tests do not give way to the other tests, unless a test is about that."""
_COMMAND = "command"
"""What a process has imported that commands and hubs are forked from; else modules are named, with commas."""
_QUIET = "ignore:This process:DeprecationWarning"
"""Of Python 3.12, at each fork beside a thread."""


class Forked:
    """A process that was started so, with what the tests use of `subprocess.Popen`."""

    def __init__(
        self,
        arguments: list[str],
        env: Mapping[str, str],
        files: list[int],
        script: Path | None = None,
        imported: str = _COMMAND,
        cwd: Path | None = None,
    ) -> None:
        folder = cwd or (script.parent if script else Path.cwd())
        asked = {"argv": arguments, "env": dict(env), "cwd": str(folder), "script": script and str(script)}
        self._server = _server(imported)
        self.pid = self._server.ask(asked, files)
        self._handle = os.pidfd_open(self.pid)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code once it has ended."""
        if self.returncode is None and self._has_ended(0):
            self.returncode = self._server.ask({"ended": self.pid})
            os.close(self._handle)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; its exit code."""
        if self.returncode is None and not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("stepscope", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def _has_ended(self, timeout: float | None) -> bool:
        asked = select.poll()  # `select` takes no more than 1,024 files
        asked.register(self._handle, select.POLLIN)
        return bool(asked.poll(None if timeout is None else timeout * 1000))

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


class ForkedHub(Forked):
    """A hub, or a script that is one; what it prints can be read while it runs."""

    def __init__(
        self, arguments: list[str], env: Mapping[str, str], script: Path | None = None, cwd: Path | None = None
    ) -> None:
        out, err = os.pipe(), os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            super().__init__(["hub", *arguments], env, [nothing, out[1], err[1]], script, cwd=cwd)
        finally:
            for each in (nothing, out[1], err[1]):
                os.close(each)
        self.stdout, self.stderr = open(out[0]), open(err[0])  # noqa: SIM115 (closed by who reads them)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end; what it printed since."""
        self.wait(timeout)
        return self.stdout.read(), self.stderr.read()


class ForkedProgram(Forked):
    """A program of a user in a session of its own and in the folder of its script, which is all it reads and writes."""

    def __init__(
        self, script: Path, arguments: list[str], env: Mapping[str, str], imported: str = "stepscope.sdk.otel"
    ) -> None:
        with (
            open(os.devnull) as nothing,
            open(script.parent / "out", "w") as out,
            open(script.parent / "err", "w") as err,
        ):
            super().__init__(arguments, env, [each.fileno() for each in (nothing, out, err)], script, imported)


def stepscope(*arguments: object, stdin: int | None = None, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of `stepscope` to its end, with variables of its own and an open file to read from."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    return run([str(each) for each in arguments], {**kept, **NORMAL, **env}, stdin=stdin)


def run(
    arguments: list[str],
    env: Mapping[str, str],
    *,
    stdin: int | None = None,
    script: Path | None = None,
    cwd: Path | None = None,
    imported: str = _COMMAND,
) -> "subprocess.CompletedProcess[str]":
    """Run a command of `stepscope`, or a script, to its end, with all its variables."""
    with open(os.devnull) as nothing, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        files = [nothing.fileno() if stdin is None else stdin, out.fileno(), err.fileno()]
        code = Forked(arguments, env, files, script, imported, cwd).wait(300)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


class _ForkServer:
    """The process to fork from; it ends when the tests do."""

    def __init__(self, imported: str) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            line = [sys.executable, "-W", _QUIET, "-m", "tests.forked", imported, str(number)]
            kept = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
            subprocess.Popen(line, cwd=ROOT, env=kept, pass_fds=[number], stdin=subprocess.DEVNULL)

    def ask(self, question: dict[str, Any], files: list[int] | None = None) -> int:
        """Send a question, with open files; the answer is a number."""
        data = json.dumps(question).encode()
        with self._lock:  # tests start hubs from several threads
            socket.send_fds(self._socket, [len(data).to_bytes(4, "big")], files or [])
            self._socket.sendall(data)
            return int.from_bytes(receive(self._socket, 4), "big", signed=True)

    def close(self) -> None:
        """Let it end."""
        self._socket.close()


_servers: dict[str, _ForkServer] = {}
_starting = threading.Lock()


def _server(imported: str) -> _ForkServer:
    with _starting:
        if imported not in _servers:
            _servers[imported] = _ForkServer(imported)
        return _servers[imported]


def close() -> None:
    """End the template processes; forked processes continue."""
    with _starting:
        while _servers:
            _servers.popitem()[1].close()


def receive(channel: socket.socket, size: int) -> bytes:
    """Receive so many bytes."""
    data = b""
    while len(data) < size:
        more = channel.recv(size - len(data))
        assert more, "the process to fork from has ended"
        data += more
    return data


def _serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork for each question; what is asked for in the new process, None in this one when the tests have ended."""
    while True:
        head, files, _, _ = socket.recv_fds(channel, 4, 3)
        if not head:
            return None
        asked = json.loads(receive(channel, int.from_bytes(head + receive(channel, 4 - len(head)), "big")))
        if "ended" in asked:
            _, status = os.waitpid(asked["ended"], 0)
            answer = os.waitstatus_to_exitcode(status)
        elif (answer := os.fork()) == 0:
            channel.close()
            become(asked, files)
            return dict(asked)
        for each in files:
            os.close(each)
        channel.sendall(answer.to_bytes(4, "big", signed=True))


def become(asked: dict[str, Any], files: list[int]) -> None:
    """Take over the environment, folder and files of the process that is asked for."""
    for number, each in enumerate(files):
        os.dup2(each, number)
        os.close(each)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()


def _import_what_commands_need() -> None:
    from stepscope.cli.main import parser

    parser()
    with contextlib.suppress(ImportError):  # not all tests need a hub
        import pyarrow  # noqa: F401

        import stepscope.hub.questions.routes
        import stepscope.hub.serving.serve  # noqa: F401
        from stepscope.hub.receivers.receiver import RECEIVERS

        for name in RECEIVERS.names():
            RECEIVERS.find(name)
        _load_engine()


def _load_engine() -> None:
    """Import chDB, but for the engine that the package starts to ask for its version: no fork has its threads."""
    found = importlib.util.find_spec("chdb")
    for folder in (found and found.submodule_search_locations) or ():
        for library in Path(folder).glob("_chdb*.so"):
            ctypes.CDLL(str(library), mode=sys.getdlopenflags() | os.RTLD_DEEPBIND)
            _import_without_engine(str(library))


def _import_without_engine(library: str) -> None:
    loader = importlib.machinery.ExtensionFileLoader("chdb._chdb", library)
    found = importlib.util.spec_from_file_location(loader.name, library, loader=loader)
    assert found is not None
    engine: Any = importlib.util.module_from_spec(found)
    loader.exec_module(engine)
    connect, engine.connect = engine.connect, lambda: _NoEngine()
    sys.modules[loader.name] = engine
    try:
        import chdb  # noqa: F401
    finally:
        engine.connect = connect


class _NoEngine:
    """What the package asks while it is imported; nothing of ours reads the answer."""

    def query(self, statement: str, format: str) -> "_NoEngine":
        """Take a question."""
        return self

    def bytes(self) -> bytes:
        """The answer."""
        return b""

    def close(self) -> None:
        """End it."""


def run_program(script: str, arguments: list[str]) -> None:
    """Run a script as `python script` does: as the module `__main__`, with its folder first in the path."""
    os.setsid()
    main = types.ModuleType("__main__")
    main.__file__ = script
    sys.modules["__main__"] = main
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(script)
    exec(compile(Path(script).read_text(), script, "exec"), main.__dict__)


def _run_command(arguments: list[str]) -> None:
    from stepscope.cli.main import main

    sys.argv = ["stepscope", *arguments]
    sys.exit(main(arguments))


if __name__ == "__main__":
    gc.disable()
    if sys.argv[1] == _COMMAND:
        _import_what_commands_need()
    else:
        for wanted in sys.argv[1].split(","):
            with contextlib.suppress(ImportError):
                importlib.import_module(wanted)
    gc.enable()
    gc.collect()
    gc.freeze()  # else each process that is forked copies most of these objects, at the latest when it ends
    found = _serve(socket.socket(fileno=int(sys.argv[2])))
    if found is not None and found["script"]:
        run_program(found["script"], found["argv"])
    elif found is not None:
        _run_command(found["argv"])
