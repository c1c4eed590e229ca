"""The arguments of `wandb.init` and WANDB_* variables, and the configuration of a run."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stepscope.dialects.wandb.shim.absent import Absent, safe, tags_of, text
from stepscope.extend import text_of
from stepscope.model.run_description import MAX_TAGS

VARIABLES = {
    "entity": "WANDB_ENTITY",
    "project": "WANDB_PROJECT",
    "id": "WANDB_RUN_ID",
    "name": "WANDB_NAME",
    "notes": "WANDB_NOTES",
    "tags": "WANDB_TAGS",
    "group": "WANDB_RUN_GROUP",
    "job_type": "WANDB_JOB_TYPE",
    "mode": "WANDB_MODE",
    "resume": "WANDB_RESUME",
}
"""The environment variables for missing arguments of `init`."""
_OURS = {"project": "STEPSCOPE_PROJECT", "id": "STEPSCOPE_RUN_ID", "name": "STEPSCOPE_NAME"}
"""Stepscope's variables that take precedence over wandb's."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True)
class Start:
    """The requested run; None where an argument was not given."""

    entity: str | None
    project: str | None
    id: str | None
    name: str | None
    notes: str | None
    tags: tuple[str, ...]
    group: str | None
    job_type: str | None
    mode: str | None
    resume: str | None
    parent: str | None = None
    from_step: int | None = None

    @property
    def disabled(self) -> bool:
        """Whether recording is disabled."""
        return self.mode == "disabled"

    @property
    def resumes(self) -> bool:
        """Whether to continue the steps of an earlier run with this id."""
        return self.id is not None and (self.resume or "").lower() in ("allow", "must", "auto", "true")

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of `stepscope.init`."""
        found = {"tags": self.tags[:MAX_TAGS], "notes": self.notes, "group": self.group, "job_type": self.job_type}
        fork = {} if self.parent is None else {"parent": self.parent, "from_step": self.from_step}
        return {**{key: value for key, value in found.items() if value}, **fork}


def read(given: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Start:
    """Read the arguments of `init`, with defaults from the environment."""
    env = os.environ if env is None else env
    found = {key: _found(key, given.get(key), env) for key in VARIABLES}
    tags = tags_of(found.pop("tags"))
    texts: dict[str, Any] = {key: text(value) for key, value in found.items()} | {"id": safe(found["id"])}
    return Start(tags=tags, **texts)


_FORK = re.compile(r"([^?]+)\?_step=(\d{1,18})", re.ASCII)


def forked(start: Start, fork_from: Any) -> Start:
    """Add the run and the step that `fork_from` names, as RUN?_step=N; anything else adds nothing."""
    found = _FORK.fullmatch(text(fork_from) or "")
    return start if found is None else replace(start, parent=safe(found[1]), from_step=int(found[2]))


def continued(start: Start, resume_from: Any) -> Start:
    """Continue the run that `resume_from` names, as RUN?_step=N, after this step; anything else changes nothing."""
    found = _FORK.fullmatch(text(resume_from) or "")
    return start if found is None else replace(start, id=start.id or safe(found[1]), from_step=int(found[2]))


def _found(key: str, given: Any, env: Mapping[str, str]) -> Any:
    if given is not None and not isinstance(given, Absent):
        return given
    value = "" if env.get(_OURS.get(key, "")) else env.get(VARIABLES[key], "")
    return [tag for tag in value.split(",") if tag] if key == "tags" else value


def starts_new_run(reinit: Any) -> bool:
    """Return whether `init` ends the active run; by default only in a notebook, where cells are rerun."""
    if text(reinit) in (None, "default"):
        return "ipykernel.kernelapp" in sys.modules
    return reinit is True or text(reinit) in ("finish_previous", "create_new")


def generate_id(length: int = 8) -> str:
    """Return a random id that is independent of the program's seed."""
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in os.urandom(length))


def _ignore_change(value: Any) -> None:
    """Ignore a change."""


class Config(Mapping[str, Any]):
    """A configuration with keys as items or attributes. Changes of a copy are not recorded."""

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        changed: Callable[[dict[str, Any]], object] = _ignore_change,
        ignore: Callable[[str], object] = _ignore_change,
    ) -> None:
        self.__dict__.update(_values=dict(values or {}), _changed=changed, _ignore=ignore)

    def update(self, values: Any = None, allow_val_change: bool | None = None, **more: Any) -> None:
        """Set several keys."""
        changes = {**self._read(values), **more}
        self._values.update(changes)
        if changes:
            self._changed(changes)

    def setdefaults(self, values: Any) -> None:
        """Set missing keys."""
        self.update({key: value for key, value in self._read(values).items() if key not in self._values})

    def _read(self, values: Any) -> dict[str, Any]:
        found = as_dict(values)
        if found is None:
            self._ignore("config.update")
        return found or {}

    def as_dict(self) -> dict[str, Any]:
        """Return a copy as a dict."""
        return dict(self._values)

    def persist(self) -> None:
        """Do nothing: every change is recorded immediately."""

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
    """A configuration as a dict, from a mapping, pairs or the attributes of an object; None for anything else."""
    try:
        if config is None or isinstance(config, Absent):
            return {}
        if isinstance(config, Mapping):
            pairs = config.items()
        else:
            pairs = (vars(config) if hasattr(config, "__dict__") else dict(config)).items()
        return {text_of(key): value for key, value in pairs}
    except Exception:  # a user's object raised
        return None
