"""wandb's summary of a run: one value for each key, the last, the least or the greatest."""

import fnmatch
import numbers
from dataclasses import dataclass
from typing import Any


class Summary(dict[str, Any]):
    """One value for each key; those set by hand stay."""

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def take(self, key: str, value: Any, how: str) -> None:
        """Fold a value in; only numbers of this machine are, for one on a device would have to be waited for.

        NaN is the least or the greatest only as long as there is no number.
        """
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or how == "none":
            return
        now = self.get(key)
        is_best = isinstance(now, numbers.Real) and (now != now or (value < now if how == "min" else value > now))
        if now is None or how == "last" or is_best:
            self[key] = value


@dataclass(frozen=True, slots=True)
class Definition:
    """What was said of metrics whose name matches."""

    name: str
    step_metric: str | None
    summary: str | None

    def matches(self, key: str) -> bool:
        """Tell whether a key is one of them."""
        return self.name == key or ("*" in self.name and fnmatch.fnmatchcase(key, self.name))
