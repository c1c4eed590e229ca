"""OTLP requests, protobuf or JSON, to records grouped by where they come from."""
