"""A hub as `stepscope hub` runs it, with limits that a test can reach: `python short_limits.py hub --home DIR ...`."""

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path

from stepscope.hub.api.routes import mount
from stepscope.hub.limits import Limits
from stepscope.hub.serve import serve
from stepscope.hub.service import HubOptions


def main() -> int:
    """Run it; STEPSCOPE_TEST_LIMITS is a JSON object of the limits that differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--grpc-port", type=int)
    given = parser.parse_args()
    limits = replace(Limits(), **json.loads(os.environ["STEPSCOPE_TEST_LIMITS"]))
    options = HubOptions(home=given.home, port=given.port, grpc_port=given.grpc_port, limits=limits)
    return serve(options, lambda text: print(text, flush=True), lambda hub: mount(hub, "0"))


if __name__ == "__main__":
    raise SystemExit(main())
