"""What can be fuzzed: a function that must not raise, and bytes to begin with; found by name."""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

NAMES = (
    *("otlp_protobuf", "otlp_json", "native_frames", "tinker_telemetry", "datadog_lines", "datadog_bodies", "inflate"),
    *("dashboard", "run_filter", "statement"),
)
PLANTED = "planted_fault"
"""A target with a fault in it, to see that faults are found."""


@dataclass(frozen=True, slots=True)
class Target:
    """`check` raises nothing for any bytes, unless there is a bug; `seeds` are bytes that real encoders made."""

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]


def load(name: str) -> Target:
    """Import a target."""
    module = importlib.import_module(f"tests.fuzz.{name}")
    return Target(name, module.check, module.seeds)
