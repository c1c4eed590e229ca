"""OpenTelemetry's protocol: received over HTTP and gRPC, sent to collectors, and a format of trace files."""

from stepscope.model.dialects import Dialect, HubOption

DIALECT = Dialect(
    name="otlp",
    sink="stepscope.dialects.otlp.sink:Otlp",
    receiver="stepscope.dialects.otlp.receiver:OtlpHttp",
    listener="stepscope.dialects.otlp.listener:GrpcListener",
    trace_format="stepscope.dialects.otlp.trace_format:OtlpFormat",
    options=(HubOption(flag="--grpc-port", metavar="PORT", help="OTLP/gRPC (4317)", default=4317, port=True),),
)
