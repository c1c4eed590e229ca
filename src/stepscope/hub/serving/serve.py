"""The hub as a process: take the ports, open the store, serve until a signal, drain, exit."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import uvicorn
from starlette.routing import BaseRoute

from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.limits import Limits
from stepscope.hub.receivers.listener import Listener, ListenerOptions, make_listeners
from stepscope.hub.security.guard import is_loopback
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.serving.addresses import bracketed, listen
from stepscope.hub.serving.app import build_app
from stepscope.hub.serving.connections import Connections, HttpListener, LimitedProtocol, most_connections
from stepscope.hub.serving.memory import EVERY_SECONDS, give_back, share_heaps
from stepscope.hub.serving.priority import lower_priority
from stepscope.hub.threads import Periodic
from stepscope.model.errors import ConfigError

DRAIN_SECONDS = 5.0
STOP_SECONDS = 30.0
"""Time limit for the exit of a hub after a signal."""
SWITCH_SECONDS = 0.0005
"""The interpreter's switch interval, in seconds; with Python's 5 ms, a request of 1 MiB that comes while
the store is busy waits for many turns."""
YOUNG_OBJECTS = 20_000
"""New objects after which the interpreter looks for cycles; Python's 700 are less than one request makes."""
Routes = Callable[[Hub], Sequence[BaseRoute]]


def serve(options: HubOptions, report: Callable[[str], None], routes: Routes = lambda hub: ()) -> int:
    """Run a hub until SIGTERM or SIGINT; `report` gets the address once. ConfigError when it cannot start."""
    share_heaps()
    tokens = Tokens(options.home / "hub" / "tokens.json")
    if not options.store:
        check_access(options, tokens)
    _check_tls(options)
    listener = listen(options.host, options.port, "--port")
    listeners = make_listeners(ListenerOptions(options.host, options.tls, options.dialects))
    with contextlib.ExitStack() as undo:
        undo.callback(listener.close)
        for each in listeners:
            undo.callback(each.close)
            each.bind()
        home = HubHome(options.home)
        undo.callback(home.close)
        store = open_home_store(home, options.store, advertised(options, listener.getsockname()[1]))
        undo.callback(store.close)
        hub = Hub(options, home, store, tokens)
        undo.pop_all()
        undo.callback(hub.close, 0.1)
        check_access(options, tokens)  # those of other hubs on the same store are known now
        undo.pop_all()
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.freeze()  # modules and what a hub keeps for good are not searched for cycles again
        gc.set_threshold(YOUNG_OBJECTS)
        return asyncio.run(_Process(hub, listener, listeners, routes(hub)).run(report))


def advertised(options: HubOptions, port: int) -> str:
    """The URL at which other hubs on the same store reach this one."""
    host = socket.gethostname() if options.host.strip("[]") in ("0.0.0.0", "::") else options.host
    return options.advertise.rstrip("/") or f"{options.scheme}://{bracketed(host)}:{port}"


def check_access(options: HubOptions, tokens: Tokens) -> None:
    """ConfigError for a hub that other machines can reach without a token."""
    if not tokens and not is_loopback(options.host):
        raise ConfigError(
            f"binding {options.host} opens the hub to other machines, so it needs a token: make one with "
            f"`stepscope hub token create --home {options.home} --scope admin`, or bind 127.0.0.1"
        )


class _Process:
    """The servers of a hub on one event loop."""

    def __init__(
        self, hub: Hub, listener: socket.socket, listeners: Sequence[Listener], routes: Sequence[BaseRoute]
    ) -> None:
        self._hub = hub
        self._listener = listener
        self._listeners = listeners
        self._routes = routes
        self._stop = asyncio.Event()

    async def run(self, report: Callable[[str], None]) -> int:
        """Serve until a signal."""
        hub, options = self._hub, self._hub.options
        try:
            http_most, grpc_most = most_connections(options.limits)
            limits = replace(options.limits, connections=http_most, grpc_connections=grpc_most)
            for each in self._listeners:
                each.open(hub, limits)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop.set)
            await self._serve(limits, report)
        finally:
            await asyncio.to_thread(hub.close)
            for each in self._listeners:
                each.close()
        return 0

    async def _serve(self, limits: Limits, report: Callable[[str], None]) -> None:
        """Start all servers, and stop them in any case."""
        hub, options = self._hub, self._hub.options
        server = _Server(_config(build_app(hub, self._routes), options), limits)
        serving = asyncio.create_task(server.serve([self._listener]))
        giving_back = Periodic(give_back, first=EVERY_SECONDS, every=EVERY_SECONDS, what="giving memory back")
        try:
            hub.start()
            giving_back.start()
            for each in self._listeners:
                await each.start()
            address = f"{options.scheme}://{bracketed(options.host)}:{self._listener.getsockname()[1]}"
            hub.home.announce(address)
            hub.alerting.deliver(address)
            shown = "".join(f" ({each.shown})" for each in self._listeners if each.shown)
            if options.yields:
                lower_priority()  # not before: a start takes seconds of processor time, and someone waits for it
            report(f"stepscope hub: {address}{shown}, home {options.home}")
            stopping = asyncio.create_task(self._stop.wait())
            await asyncio.wait((stopping, serving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            _end_within(STOP_SECONDS)
            giving_back.stop()
            await asyncio.to_thread(hub.end_subscriptions)
            server.stop()
            await asyncio.gather(*(each.stop(DRAIN_SECONDS) for each in self._listeners), serving)


def _end_within(seconds: float) -> None:
    """End the process if it hangs: what was acknowledged is in the journal, synced."""

    def end() -> None:
        os.write(2, b"stepscope hub: ended before all work was done; what was acknowledged is in the journal\n")
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


class _Server(uvicorn.Server):
    """Uvicorn with our connections and without its signal handlers: ours exit with 0."""

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self._limits = limits
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Stop serving."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Renew the date in answers once a second until `stop`; uvicorn wakes up ten times a second."""
        stopping = asyncio.create_task(self._stopping.wait())
        while not await self.on_tick(0):
            await asyncio.wait((stopping,), timeout=1.0)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening."""
        connections = Connections(self._limits.connections, self._limits.connections // 2)
        make = partial(
            LimitedProtocol, self.config, self.server_state, {}, limits=self._limits, connections=connections
        )
        self.servers = [
            HttpListener(each, make, self.config.ssl, connections, self._limits)  # type: ignore[misc]
            for each in sockets or ()
        ]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield


def _config(app: object, options: HubOptions) -> uvicorn.Config:
    certificate, key = options.tls or (None, None)
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=int(DRAIN_SECONDS),
        timeout_keep_alive=int(options.limits.idle_seconds),
        http="h11",
        ssl_certfile=certificate,
        ssl_keyfile=str(key) if key is not None else None,
    )


def _check_tls(options: HubOptions) -> None:
    if options.tls is None:
        return
    for path in options.tls:
        if not path.is_file():
            raise ConfigError(f"there is no file {path}: --tls-cert and --tls-key name PEM files")
    certificate, key = options.tls
    try:
        # No password: there is no one to type it.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except OSError as error:
        why = str(error.strerror or error).partition(" (_ssl")[0]
        raise ConfigError(
            f"{certificate} and {key} are not a certificate and its key ({why}): "
            "--tls-cert and --tls-key name PEM files, the key without a password"
        ) from error
