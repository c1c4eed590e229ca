"""Where records come in: the native protocol, OTLP over HTTP and gRPC, MLflow, W&B, Datadog and Tinker."""
