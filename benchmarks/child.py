"""The inside of a child interpreter: run a measurement's `child`, or converse, then leave at once."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Read module, answer file and parameters from the command line."""
    name, answer, params = sys.argv[1:4]
    module = importlib.import_module(name)
    if answer == "-":
        _converse(module, json.loads(params))
    else:
        result = module.child(json.loads(params))
        Path(answer).write_text(json.dumps(result))
    sys.stderr.flush()
    # Backlogs of minutes wait in some SDKs' exit hooks; closing is not what is measured here.
    os._exit(0)


def _converse(module: Any, params: dict[str, Any]) -> None:
    # SDKs print to standard output; answers leave through a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    reply = module.child(params)
    for line in sys.stdin:
        answers.write(json.dumps(reply(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
