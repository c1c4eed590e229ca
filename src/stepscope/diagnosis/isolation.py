"""Isolation of third-party detectors: one that raises or returns no finding is dropped, which is itself a finding."""

from collections.abc import Callable
from typing import Any

from stepscope.diagnosis.detector import METHODS, Found
from stepscope.diagnosis.finding import SEVERITIES, Finding, Kind

FAILED = Kind(
    "detector_failed",
    "WARN",
    "a bug in the detector",
    "Fix the detector or uninstall its package; the diagnosis continues without it.",
    expects="a detector that does not raise",
)


def failed(name: str, error: Exception, rank: int = 0) -> Finding:
    """Return the finding about a detector that raised."""
    return FAILED.finding(f"the detector {name} raised {error!r} and was dropped"[:400], 0, ranks=(rank,), key=name)


def guarded_take(name: str, rank: int, make: Callable[[], Any]) -> Callable[[], Finding | None]:
    """Make a detector of a series and return its `take`, which never raises; after an exception it returns nothing."""
    problem: Exception | None = None
    dropped = False
    try:
        take = make().take
    except Exception as error:
        problem = error

    def guarded() -> Finding | None:
        nonlocal dropped
        if dropped:
            return None
        try:
            if problem is not None:
                raise problem
            found = take()
            return None if found is None else checked(found)
        except Exception as error:
            dropped = True
            return failed(name, error, rank)

    return guarded


class Guarded:
    """A third-party run detector with the same methods, none of which raises."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self._name, self._dropped = name, False
        self.problem: Finding | None = None
        """The finding about a detector that could not be made."""
        try:
            detector = make()
        except Exception as error:
            self.problem = failed(name, error)
            return
        for method in METHODS:
            if hasattr(detector, method):
                setattr(self, method, self._guarded(getattr(detector, method)))

    def _guarded(self, take: Callable[..., Found]) -> Callable[..., Found]:
        def guarded(*given: Any) -> Found:
            if self._dropped:
                return ()
            try:
                return tuple(map(checked, take(*given)))
            except Exception as error:
                self._dropped = True
                return (failed(self._name, error),)

        return guarded


def checked(found: Any) -> Finding:
    """Return a finding of a third-party detector; TypeError when it is none, or a field has a wrong type."""
    if not isinstance(found, Finding):
        raise TypeError(f"a detector returns findings, not {type(found).__name__}")
    texts: list[Any] = [found.kind, found.text, found.cause, found.advice, found.expects, *found.also, *found.symptoms]
    texts += [each for each in (found.key, found.span) if each is not None]
    numbers: list[Any] = [found.weight, *(found.expected or ()), *([] if found.value is None else [found.value])]
    whole: list[Any] = [
        found.time,
        found.attempt,
        *found.ranks,
        *(each for each in (found.step, found.last) if each is not None),
    ]
    wrong = [each for each in texts if not isinstance(each, str)]
    wrong += [each for each in numbers if not isinstance(each, (int, float))]
    wrong += [each for each in whole if not isinstance(each, int)]
    if wrong or found.severity not in SEVERITIES or len(found.expected or (0, 0)) != 2:
        raise TypeError(f"a field of this finding has a wrong type: {found!r}")
    return found
