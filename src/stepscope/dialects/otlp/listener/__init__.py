"""The listener of OTLP/gRPC."""

from stepscope.dialects.otlp.listener.grpc_server import OtlpGrpc
from stepscope.dialects.otlp.receiver import OtlpReceiver
from stepscope.extend.receiver import Limits, ListenerOptions, ListenerPorts, bracketed, listen


class GrpcListener:
    """The port of OTLP/gRPC."""

    def __init__(self, options: ListenerOptions) -> None:
        self._options = options
        self._asked = int(options.values.get("grpc-port", 0))
        self._port = 0
        self._server: OtlpGrpc | None = None

    def bind(self) -> None:
        """Check that the port is free; gRPC takes it when the server is made."""
        listen(self._options.host, self._asked, "--grpc-port").close()

    def open(self, ports: ListenerPorts, limits: Limits) -> None:
        """Make the server on its port."""
        receiver = OtlpReceiver(ports.ingest("otlp_grpc"))
        self._server = OtlpGrpc(receiver, ports.guard, limits, ports.workers)
        self._port = self._server.bind(f"{bracketed(self._options.host)}:{self._asked}", self._options.tls)

    async def start(self) -> None:
        """Start serving."""
        if self._server is not None:
            await self._server.start()

    @property
    def shown(self) -> str:
        """The port."""
        return f"OTLP/gRPC on port {self._port}"

    async def stop(self, seconds: float) -> None:
        """Finish running calls and stop."""
        if self._server is not None:
            await self._server.stop(seconds)

    def close(self) -> None:
        """Nothing is left to close: the server ends with `stop`."""
