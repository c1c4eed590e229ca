"""Trainer configs read as nested dicts: mappings, dataclasses, models, parsed arguments, objects."""

import argparse
import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from stepscope.extend import describe_error, text_of
from stepscope.model.errors import ConfigError
from stepscope.model.metric_labels import parse_labels

SECTIONS = ("logging", "telemetry")
"""Sections of a config that may hold settings, besides its top level."""
DEEPEST = 16
"""Levels that are read; a config may contain itself."""


def read(config: Any) -> dict[str, Any]:
    """Read a config and the configs nested in it; other values stay as they are."""
    if config is None:
        return {}
    try:
        found = fields_of(config)
    except Exception as error:  # a user's object raised
        raise ConfigError(f"TrainingContext: the config cannot be read: {describe_error(error)}") from None
    if found is None:
        raise ConfigError(
            f"TrainingContext: config must be a dict, a dataclass or parsed arguments, got {type(config).__name__}"
        )
    return {key: _inner(value, DEEPEST) for key, value in found.items()}


def find(given: Mapping[str, Any], key: str) -> Any:
    """A setting by name, from the top level or the section `logging` or `telemetry`."""
    if given.get(key) is not None:
        return given[key]
    sections = (_section(given.get(name)) for name in SECTIONS)
    return next((each[key] for each in sections if each.get(key) is not None), None)


def _section(value: Any) -> dict[str, Any]:
    try:
        return fields_of(value) or {}
    except Exception:  # a user's object raised
        return {}


def labels(given: Mapping[str, Any]) -> dict[str, str]:
    """The `metric_labels` of a config: a mapping, or a string in the format of the environment variable."""
    found = find(given, "metric_labels")
    if isinstance(found, str):
        return parse_labels(found)
    pairs = {} if found is None else fields_of(found)
    if pairs is None:
        raise ConfigError(f"TrainingContext: metric_labels={found!r}: pass a mapping, or a string such as 'loss=Loss'")
    return {key: text_of(label) for key, label in pairs.items()}


def fields_of(config: Any) -> dict[str, Any] | None:
    """The fields of a mapping or object, not copied; None for a value without fields."""
    if isinstance(config, Mapping):
        return {text_of(key): value for key, value in config.items()}
    declared = _declared(type(config))
    if declared:
        return {name: getattr(config, name) for name in declared if hasattr(config, name)}
    try:
        return {key: value for key, value in vars(config).items() if not key.startswith("_")}
    except TypeError:
        return None


def _declared(kind: type) -> list[str]:
    """The fields that a class declares; objects with slots have no others."""
    if dataclasses.is_dataclass(kind):
        return [each.name for each in dataclasses.fields(kind)]
    if hasattr(kind, "__attrs_attrs__"):
        return [each.name for each in kind.__attrs_attrs__]
    return list(getattr(kind, "__struct_fields__", ()))


def _inner(value: Any, levels: int) -> Any:
    """A value of a config, or a nested config as a dict; an unreadable one becomes a string."""
    kind = type(value)
    is_config = isinstance(value, (Mapping, argparse.Namespace, SimpleNamespace)) or bool(
        not isinstance(value, type)
        and (_declared(kind) or hasattr(kind, "model_fields") or hasattr(kind, "__fields__"))
    )
    if not is_config or not levels:
        return value
    try:
        found = fields_of(value) or {}
    except Exception:  # a user's object raised
        return text_of(value)
    return {key: _inner(each, levels - 1) for key, each in found.items()}
