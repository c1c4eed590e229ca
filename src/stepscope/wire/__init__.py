"""Bytes to records and back, pure: no files, no sockets."""
