"""Records to OTLP requests, written by hand so that a sender needs no protobuf library."""
