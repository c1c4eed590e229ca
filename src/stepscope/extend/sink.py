"""What sinks of dialects use."""

from stepscope.journal.layout import is_alive, slug
from stepscope.pump import Delivery
from stepscope.sinks.http import (
    BLAMES_A_RECORD,
    DENIED,
    RETRYABLE,
    SERVER_ERROR,
    Answer,
    Connection,
    Tls,
    check_address,
    compress,
    explain,
    is_address,
    is_here,
    not_from,
    retry_after,
    sendable,
    without_secrets,
)
from stepscope.sinks.registry import OWN_RECORDS, SELF_TELEMETRY, convert

__all__ = [
    "BLAMES_A_RECORD",
    "DENIED",
    "OWN_RECORDS",
    "RETRYABLE",
    "SELF_TELEMETRY",
    "SERVER_ERROR",
    "Answer",
    "Connection",
    "Delivery",
    "Tls",
    "check_address",
    "compress",
    "convert",
    "explain",
    "is_address",
    "is_alive",
    "is_here",
    "not_from",
    "retry_after",
    "sendable",
    "slug",
    "without_secrets",
]
