"""How commands ask a hub, or its engine when none runs: open a client and resolve the run."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from stepscope.hub.client import HubClient, open_client, resolve_run


@contextlib.contextmanager
def asking(home: Path, text: str) -> Iterator[tuple[HubClient, str]]:
    """Open a client for a home folder and resolve the run that `text` names."""
    with open_client(home) as client:
        if client.trouble:
            print(f"stepscope: the newest records are not in the answer: {client.trouble}", file=sys.stderr)
        yield client, resolve_run(client, home, text)
