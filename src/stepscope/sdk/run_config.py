"""The configuration of a run: a dict whose changes are recorded."""

from collections.abc import Callable, Mapping
from typing import Any

from stepscope.sdk.attributes import clean


class RunConfig(dict[str, Any]):
    """Settings of a run. Each change is recorded at once, one inside a nested dict or list when the run ends.

    A key that is removed is recorded as None. `config.lr = 0.1` is the same as `config["lr"] = 0.1`, and `config.lr`
    reads it, unless it is the name of a method of dict.
    """

    _record: Callable[[Mapping[str, Any]], None]
    _reject: Callable[[str, str], None]
    _recorded: dict[str, Any]

    def __init__(
        self,
        values: Mapping[str, Any] | None,
        record: Callable[[Mapping[str, Any]], None],
        reject: Callable[[str, str], None],
    ) -> None:
        super().__init__(clean(values))
        self.__dict__.update(_record=record, _reject=reject, _recorded=clean(self))

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __delattr__(self, name: str) -> None:
        self.pop(name, None)

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def update(self, *values: Any, **more: Any) -> None:
        """Set several keys; what is no dict and no list of pairs is counted as rejected."""
        try:
            changes = dict(*values, **more)
        except (TypeError, ValueError):
            given = " and ".join(type(each).__name__ for each in values)
            self._reject("config.update", f"must be a dict, got {given}")
            changes = more
        if not changes:
            return
        super().update(changes)
        self._note(changes)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return a value, set first if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def __ior__(self, values: Any) -> "RunConfig":  # type: ignore[override, misc]
        self.update(values)
        return self

    def record_changes(self) -> None:
        """Record what was changed inside of values since they were set."""
        known = self._recorded
        changes = {key: value for key, value in clean(self).items() if key not in known or known[key] != value}
        if changes:
            self._note(changes)

    def _note(self, changes: Mapping[str, Any]) -> None:
        self._recorded.update(clean(changes))
        self._record(changes)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._note({key: None})

    def pop(self, key: str, *default: Any) -> Any:
        """Remove a key and return its value, or the default if there is none."""
        if key not in self and default:
            return default[0]
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last item."""
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove all keys."""
        gone = dict.fromkeys(self)
        super().clear()
        self._note(gone)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle as a plain dict."""
        return dict, (dict(self),)
