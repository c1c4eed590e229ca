"""Where records come in: trainers' journals, our native protocol, OpenTelemetry's over HTTP and gRPC."""
