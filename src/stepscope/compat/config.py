"""wandb's configuration of a run: a mapping whose keys are attributes too, and whose changes are told."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stepscope.compat.absent import Absent
from stepscope.extend import text_of


def _unheard(said: Any) -> None:
    """Tell nobody."""


class Config(Mapping[str, Any]):
    """A configuration: keys as items or attributes. A copy of it is nobody's: its changes are not told."""

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        changed: Callable[[dict[str, Any]], object] = _unheard,
        ignore: Callable[[str], object] = _unheard,
    ) -> None:
        self.__dict__.update(_values=dict(values or {}), _changed=changed, _ignore=ignore)

    def update(self, values: Any = None, allow_val_change: bool | None = None, **more: Any) -> None:
        """Set several keys."""
        changes = {**self._read(values), **more}
        self._values.update(changes)
        if changes:
            self._changed(changes)

    def setdefaults(self, values: Any) -> None:
        """Set the keys that are not there."""
        self.update({key: value for key, value in self._read(values).items() if key not in self._values})

    def _read(self, values: Any) -> dict[str, Any]:
        found = as_dict(values)
        if found is None:
            self._ignore("config.update")
        return found or {}

    def as_dict(self) -> dict[str, Any]:
        """Copy it."""
        return dict(self._values)

    def persist(self) -> None:
        """Do nothing: every change is recorded when it is made."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __getattr__(self, key: str) -> Any:
        try:
            return self.__dict__["_values"][key]
        except KeyError:
            raise AttributeError(key) from None

    def __setattr__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __reduce__(self) -> tuple[Any, ...]:
        return Config, (self.as_dict(),)

    def __repr__(self) -> str:
        return repr(self._values)


def as_dict(config: Any) -> dict[str, Any] | None:
    """A configuration as a dict: of a mapping, pairs, or the attributes of an object; None for what is none of it."""
    try:
        if config is None or isinstance(config, Absent):
            return {}
        if isinstance(config, Mapping):
            pairs = config.items()
        else:
            pairs = (vars(config) if hasattr(config, "__dict__") else dict(config)).items()
        return {text_of(key): value for key, value in pairs}
    except Exception:  # whatever a foreign object raises when it is read
        return None
