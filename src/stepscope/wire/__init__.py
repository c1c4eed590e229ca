"""Bytes to records and back, as pure functions: no files, no sockets."""
