"""Plugins by name, from dialects, the core or other packages' entry points, and their options read into structs."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from stepscope.model.dialects import Part, find_dialect, load, with_part
from stepscope.model.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True)
class Plugins:
    """One kind of plugin: the part of a dialect that it is, its entry point group, and the core's own ones."""

    kind: Part
    group: str
    built_in: Mapping[str, str]
    """Those of no foreign system, as `module:attribute`."""

    def names(self) -> list[str]:
        """List the names that can be used here."""
        return sorted({*self.built_in, *(each.name for each in with_part(self.kind)), *self._registered()})

    def find(self, name: str, also: Iterable[str] = ()) -> Any:
        """Import a plugin; ConfigError lists the known names, `also` among them, or says why it cannot be loaded."""
        dialect = None if name in self.built_in else find_dialect(name)
        if place := self.built_in.get(name) or (getattr(dialect, self.kind) if dialect is not None else ""):
            return load(place)
        point = self._registered().get(name)
        if point is None:
            known = sorted({*self.names(), *also})
            raise ConfigError(f"unknown {self.kind} {name!r}{nearest(name, known)} Known: {', '.join(known)}")
        try:
            return point.load()
        except Exception as error:
            raise ConfigError(f"{name!r} is registered as {point.value} and cannot be loaded: {error!r}") from None

    def _registered(self) -> "dict[str, EntryPoint]":
        from importlib.metadata import entry_points  # slow to import, and only plugins of other packages need it

        return {point.name: point for point in entry_points(group=self.group)}


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint for a word that is not known: the nearest one that is, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def read_options(options: Mapping[str, Any], kind: type[Options], also: Iterable[str] = ()) -> Options:
    """Read options into a struct; ConfigError names the wrong option and the known ones, `also` among them."""
    known = [*(field.encode_name for field in msgspec.structs.fields(cast(Any, kind))), *also]
    for key in options:
        if key not in known:
            raise ConfigError(f"unknown option {key!r}{nearest(str(key), known)} Known: {', '.join(known)}")
    try:
        return msgspec.convert(dict(options), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from None
