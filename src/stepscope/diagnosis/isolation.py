"""Isolation of third-party detectors: one that raises is dropped, which is itself a finding."""

from collections.abc import Callable
from typing import Any

from stepscope.diagnosis.detector import Found
from stepscope.diagnosis.finding import Finding, Kind

FAILED = Kind(
    "detector_failed",
    "WARN",
    "a bug in the detector",
    "Fix the detector or uninstall its package; the diagnosis continues without it.",
    expects="a detector that does not raise",
)
_METHODS = ("span", "step", "row", "log", "event")


def failed(name: str, error: Exception, rank: int = 0) -> Finding:
    """Return the finding about a detector that raised."""
    return FAILED.finding(f"the detector {name} raised {error!r} and was dropped"[:400], 0, ranks=(rank,), key=name)


def guarded_take(name: str, rank: int, take: Callable[[], Finding | None]) -> Callable[[], Finding | None]:
    """Wrap `take` so that it never raises; after an exception it returns nothing."""
    dropped = False

    def guarded() -> Finding | None:
        nonlocal dropped
        if dropped:
            return None
        try:
            return take()
        except Exception as error:
            dropped = True
            return failed(name, error, rank)

    return guarded


class Guarded:
    """A third-party run detector with the same methods, none of which raises."""

    def __init__(self, name: str, detector: Any) -> None:
        self._name, self._dropped = name, False
        for method in _METHODS:
            if hasattr(detector, method):
                setattr(self, method, self._guarded(getattr(detector, method)))

    def _guarded(self, take: Callable[..., Found]) -> Callable[..., Found]:
        def guarded(*given: Any) -> Found:
            if self._dropped:
                return ()
            try:
                return tuple(take(*given))
            except Exception as error:
                self._dropped = True
                return (failed(self._name, error),)

        return guarded
