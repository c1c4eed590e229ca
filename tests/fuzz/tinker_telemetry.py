"""Bodies of Tinker's telemetry, to the rows of the store."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from stepscope.dialects.tinker.receiver.client_telemetry import TelemetryReceiver
from stepscope.dialects.tinker.receiver.session_records import SessionRecords
from tests.dialects.tinker.receiver.test_telemetry_body import DOCUMENT_ELIXIR, DOCUMENT_PYTHON, TINKER_036, TINKEX
from tests.fuzz.hub_path import HubPath


def check(data: bytes) -> None:
    """Take a body; whatever it is, nothing is raised and every event becomes a row or is refused by name."""
    path = HubPath()
    with tempfile.TemporaryDirectory() as folder:
        TelemetryReceiver(path.entry, SessionRecords(path.entry), Path(folder)).take(data, None).result(0)
    path.finish()


def seeds() -> Iterable[bytes]:
    """The bodies of real clients, and those of the document."""
    return TINKER_036, TINKEX, DOCUMENT_PYTHON, DOCUMENT_ELIXIR
