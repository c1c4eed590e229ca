"""Datadog's tags as a receiver reads them: which run, rank and step a sample belongs to, and its attributes."""

from collections.abc import Iterable
from typing import NamedTuple

from stepscope.model.names import ATTR_RANK, ATTR_STEP, ATTR_WORLD_SIZE, CATEGORIES, STEP_ALIASES
from stepscope.model.records import Attrs
from stepscope.wire.otlp.decode.origin import Origin, small_int
from stepscope.wire.otlp.names import ATTR_PROJECT, ATTR_RUN_NAME, PLAIN_STEPS, RESOURCE_RUN_ALIASES

UNKNOWN = "datadog"
"""The project, and the first part of the run's id, where no tag says more."""
NAMESPACE = "stepscope."
"""In front of every metric that our own sink sends, unless another was configured."""
_RUNS = ("run_id", *RESOURCE_RUN_ALIASES, "run")
_NAMES = ("run_name", ATTR_RUN_NAME)
_PROJECTS = ("project", ATTR_PROJECT)
_RANKS = ("rank", ATTR_RANK)
_WORLDS = ("world_size", ATTR_WORLD_SIZE)
_RESOURCES = {"service": "service.name", "env": "deployment.environment.name", "version": "service.version"}
_PLACES = frozenset((*_RUNS, *_NAMES, *_PROJECTS, *_RANKS, *_WORLDS, *_RESOURCES, "host", "axis"))
_STEP_TAGS = frozenset(STEP_ALIASES)
_SIGNED = 19
"""Characters of a step at most."""

_STEP_GAUGES = ("train.step", "training.step", "policy_version", "global_step", "train_step", "training_step")
_STRENGTHS = {name: at for at, name in enumerate((*_STEP_GAUGES, "step", "iteration"))}
"""Gauges that say the step, by the last parts of their names, the surest first."""


class Place(NamedTuple):
    """Where a sample belongs: its process, its other tags, and the step if a tag says it."""

    origin: Origin
    attrs: Attrs
    step: int | None
    axis: str | None


def place_of(tags: Iterable[str], host: str = "", container: str = "", external: str = "") -> Place:
    """Read tags; `host` is that of the sender, unless a tag names another."""
    fields: dict[str, str] = {}
    attrs: Attrs = {}
    for tag in tags:
        key, _, value = tag.partition(":")
        if key in _PLACES and value:
            fields.setdefault(key, value)
        elif key not in attrs:
            attrs[key] = value
        elif isinstance(before := attrs[key], list):
            before.append(value)
        else:
            attrs[key] = [before, value]
    step, axis = _take_step(attrs, fields.get("axis"))
    return Place(_origin(fields, host, container, external), attrs, step, axis)


def _origin(fields: dict[str, str], host: str, container: str, external: str) -> Origin:
    host = fields.get("host") or host
    name = _first(fields, _NAMES)
    rank = small_int(_first(fields, _RANKS), 0)
    service = fields.get("service", "")
    resource = {key: fields[tag] for tag, key in _RESOURCES.items() if tag in fields}
    further = {"host.name": host, "container.id": container, "datadog.external_data": external}
    resource |= {key: value for key, value in further.items() if value}
    alone = f"{service or UNKNOWN}-{host}" if host else service or UNKNOWN
    return Origin(
        run=_first(fields, _RUNS) or name or alone,
        project=_first(fields, _PROJECTS) or service or UNKNOWN,
        name=name or None,
        rank=rank,
        world_size=max(rank + 1, small_int(_first(fields, _WORLDS), 1)),
        host=host,
        resource=resource,
    )


def _first(fields: dict[str, str], keys: tuple[str, ...]) -> str:
    return next((fields[key] for key in keys if key in fields), "")


def _take_step(attrs: Attrs, axis: str | None) -> tuple[int | None, str | None]:
    """Remove a step among the tags; one that is no whole number stays a tag."""
    if _STEP_TAGS.isdisjoint(attrs):
        return None, axis
    for name in STEP_ALIASES:
        text = attrs.get(name)
        if isinstance(text, str) and text.isascii() and text.removeprefix("-").isdigit() and len(text) < _SIGNED:
            del attrs[name]
            return int(text), axis or (None if name in PLAIN_STEPS or name == ATTR_STEP else name)
    return None, axis


def step_strength(name: str) -> int | None:
    """How surely a gauge of this name is the step, 0 the surest; None when it is another metric."""
    parts = name.rsplit(".", 2)
    return _STRENGTHS.get(".".join(parts[-2:]), _STRENGTHS.get(parts[-1]))


def step_axis(name: str) -> str | None:
    """The axis that a gauge of the step counts along; None for plain steps."""
    last = name.rpartition(".")[2]
    return None if last in ("step", "train_step", "training_step") else last


def key_of(name: str) -> str:
    """A metric's name as a key: that of our own sink as it was before, any other unchanged."""
    if not name.startswith(NAMESPACE):
        return name
    bare = name.removeprefix(NAMESPACE)
    category, _, rest = bare.partition(".")
    if bare == ATTR_STEP or not rest or category not in CATEGORIES:
        return bare or name
    return f"{category}/{rest}"
