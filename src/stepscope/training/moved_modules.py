"""Modules of this package under their earlier names: they can still be imported, with a DeprecationWarning."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_HERE = "stepscope.training."
MOVED = {
    "bus.dispatch": "bus.event_bus",
    "bus.poller": "bus.runtime",
    "bus_span": "bus.event_bus",
    "categories": "trainer_fields",
    "collector.collecting": "collector",
    "collector.history": "collector",
    "context": "trainer_context",
    "correlation": "service.correlation",
    "datadog": "collector.datadog",
    "definitions": "bus.definitions",
    "dist": "trainer_context",
    "evaluation": "trainer_context",
    "events.kinds": "events",
    "events.sessions": "events.telemetry",
    "exceptions": "events.exceptions",
    "exceptions_kinds": "events",
    "fields": "trainer_fields",
    "history": "collector",
    "labels": "trainer_fields",
    "poller": "bus.runtime",
    "poller_runtime": "bus.runtime",
    "reporters": "bus.reporters",
    "reporters_prometheus": "bus.prometheus",
    "service.metrics": "service.service_metrics",
    "service.resources": "service.service_metrics",
    "service_metrics": "service.service_metrics",
    "service_resources": "service.service_metrics",
    "telemetry": "events.telemetry",
    "trainer": "trainer_context",
    "trainer.categories": "trainer_fields",
    "trainer.configs": "trainer_config",
    "trainer.context": "trainer_context",
    "trainer.dist": "trainer_context",
    "trainer.evaluation": "trainer_context",
    "trainer.fields": "trainer_fields",
    "trainer.labels": "trainer_fields",
}
"""Earlier names and present ones."""


class _Moved:
    """Finds and loads a module under its earlier name; everything in it is that of the present one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for an earlier name, and None for any other."""
        if not name.startswith(_HERE) or name.removeprefix(_HERE) not in MOVED:
            return None
        return ModuleSpec(name, self, is_package=name == f"{_HERE}trainer")  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Use an ordinary module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module with the names of the present one."""
        present = _HERE + MOVED[module.__name__.removeprefix(_HERE)]
        warnings.warn(f"{module.__name__} is now {present}", DeprecationWarning, stacklevel=2)
        found = vars(importlib.import_module(present))
        vars(module).update({name: value for name, value in found.items() if not name.startswith("__")})


def keep_earlier_names() -> None:
    """Let `import` find the modules of the table; the last finder, so no other import takes longer."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())
