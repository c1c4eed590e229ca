"""A hub as `stepscope hub` runs it, with limits that a test can reach: `python short_limits.py hub --home DIR ...`."""

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepscope.hub.limits import Limits
from stepscope.hub.questions.routes import mount
from stepscope.hub.service import HubOptions
from stepscope.hub.serving.serve import serve
from stepscope.hub.store.embedded import Chdb


def _hold_queries(path: Path) -> None:
    """Make every query of the store wait while a file is there: a disk that hangs, for as long as a test wants."""
    query = Chdb.query

    def held(engine: Chdb, sql: str) -> Any:
        while path.exists():
            time.sleep(0.05)
        return query(engine, sql)

    Chdb.query = held  # type: ignore[method-assign]


def main() -> int:
    """Run it; STEPSCOPE_TEST_LIMITS is a JSON object of the limits that differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--grpc-port", type=int)
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    given = parser.parse_args()
    if hold := os.environ.get("STEPSCOPE_TEST_HOLD"):
        _hold_queries(Path(hold))
    limits = replace(Limits(), **json.loads(os.environ["STEPSCOPE_TEST_LIMITS"]))
    tls = (given.tls_cert, given.tls_key) if given.tls_cert else None
    options = HubOptions(
        home=given.home, port=given.port, dialects={"grpc-port": given.grpc_port}, tls=tls, limits=limits
    )
    return serve(options, lambda text: print(text, flush=True), lambda hub: mount(hub, "0"))


if __name__ == "__main__":
    raise SystemExit(main())
