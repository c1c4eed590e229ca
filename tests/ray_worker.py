"""Starts a worker of Ray in the environment of its job, as Ray's own script does, which imports Ray only for that."""

import json
import os
import sys

_CONTEXT = "--serialized-runtime-env-context="
_LANGUAGE = "--language="


def main(arguments: list[str]) -> None:
    """Become the worker."""
    for each in arguments:
        if each.startswith(_CONTEXT):
            os.environ.update(json.loads(each.removeprefix(_CONTEXT)).get("env_vars") or {})
    rest = [each for each in arguments if not each.startswith((_CONTEXT, _LANGUAGE))]
    os.execv(sys.executable, [sys.executable, *rest])


if __name__ == "__main__":
    main(sys.argv[1:])
