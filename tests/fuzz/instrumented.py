"""Every target, imported with what atheris needs to watch its branches."""

import atheris

from tests.fuzz.target import NAMES, PLANTED, load

with atheris.instrument_imports(include=["stepscope", "tests.fuzz"]):
    TARGETS = {name: load(name) for name in (*NAMES, PLANTED)}
