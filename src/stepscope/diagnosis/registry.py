"""All detectors: the modules of `stepscope.diagnosis.detectors`, and those of other packages' entry points."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from stepscope.diagnosis import detectors
from stepscope.diagnosis.detector import METHODS, RunDetector, SeriesDetector, is_run_detector
from stepscope.diagnosis.exits import Exits
from stepscope.diagnosis.finding import Kind
from stepscope.diagnosis.isolation import FAILED
from stepscope.diagnosis.raised_alerts import RaisedAlerts

GROUP = "stepscope.detectors"
"""The group of entry points; each names a class with the shape of `SeriesDetector` or `RunDetector`."""
log = logging.getLogger("stepscope")


def is_series(detector: Any) -> bool:
    """Return whether a detector watches single series."""
    return hasattr(detector, "ROLES")


def built_in() -> Iterator[Any]:
    """Yield the classes with `KINDS` in the modules of the folder of detectors, by module name."""
    for module in sorted(each.name for each in iter_modules(detectors.__path__)):
        for name, found in vars(import_module(f"{detectors.__name__}.{module}")).items():
            if isinstance(found, type) and hasattr(found, "KINDS") and not name.startswith("_"):
                yield found


_BUILT_IN = tuple(dict.fromkeys(built_in()))
SERIES: tuple[type[SeriesDetector], ...] = tuple(filter(is_series, _BUILT_IN))
RUN: tuple[type[RunDetector], ...] = tuple(filter(is_run_detector, _BUILT_IN))
"""The others are called by the engine itself."""


@lru_cache(maxsize=1)
def installed() -> tuple[Any, ...]:
    """Return the detectors registered by other packages; one that cannot be loaded is logged and skipped."""
    from importlib.metadata import entry_points  # slow to import, and only others' detectors need it

    found = []
    for point in entry_points(group=GROUP):
        try:
            made = point.load()
            check_shape(made)
        except Exception as error:
            log.warning("stepscope: the detector %r (%s) cannot be loaded: %r", point.name, point.value, error)
            continue
        found.append(made)
    return tuple(found)


def check_shape(detector: Any) -> None:
    """Raise TypeError when a detector of another package lacks something."""
    if not isinstance(detector, type):
        raise TypeError("a detector is a class")
    kinds = getattr(detector, "KINDS", None)
    if not isinstance(kinds, (tuple, list)) or not all(isinstance(kind, Kind) for kind in kinds):
        raise TypeError("KINDS must be a tuple of stepscope.diagnosis.finding.Kind")
    if not is_series(detector):
        if not is_run_detector(detector):
            raise TypeError(f"it has neither ROLES and `take` nor one of the methods {', '.join(METHODS)}")
        return
    roles = getattr(detector, "ROLES", None)
    if not isinstance(roles, (tuple, list)) or not all(isinstance(role, str) for role in roles):
        raise TypeError("ROLES must be a tuple of texts")
    if getattr(detector, "HELD_OUT", "") not in (None, True, False):
        raise TypeError("HELD_OUT must be None, True or False")
    if getattr(detector, "EACH", "") not in ("value", "block"):
        raise TypeError('EACH must be "value" or "block"')
    if not callable(getattr(detector, "take", None)):
        raise TypeError("it has no method `take`")


def kinds(added: Iterable[Any] = ()) -> Mapping[str, Kind]:
    """Return every kind of finding by name, of the built-in detectors and the given ones."""
    found = {kind.name: kind for each in (*_BUILT_IN, Exits, RaisedAlerts, *added) for kind in each.KINDS}
    return {FAILED.name: FAILED, **found}


KINDS = tuple(kinds())
"""All kinds of finding, except those of installed detectors."""
