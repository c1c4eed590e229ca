"""Declarations of foreign systems, and plugins by name: of dialects, of the core, or of other packages."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

import msgspec

from stepscope.model.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


GROUP = "stepscope.dialects"
"""The entry point group in which other packages register their dialects."""
PACKAGE = "stepscope.dialects"
"""The package with one folder for each built-in dialect; a folder that is removed is not missed."""

Part = Literal["sink", "receiver", "listener", "importer", "notifier", "trace_format", "media"]
PARTS: tuple[Part, ...] = get_args(Part)
ClientState = Literal["none", "kept", "movable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOption:
    """An option of `stepscope hub` that a receiver or listener reads."""

    flag: str
    """Such as `--acme-port`; its value is found under the flag without the dashes in front."""
    help: str
    metavar: str = ""
    default: Any = None
    several: bool = False
    """Whether it can be given more than once; its value is a list then."""
    switch: bool = False
    """Whether it takes no value, and is true where it is given."""
    port: bool = False
    """Whether it is a port, of which 0 is any free one."""

    @property
    def name(self) -> str:
        """The key of its value in the hub's options."""
        return self.flag.lstrip("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A foreign system. Each part is the `module:attribute` of an object that is imported when it is needed."""

    name: str
    """The name of its sink and notifier in settings, and of its receiver in lists."""
    sink: str = ""
    """A `SinkConfig`: delivers records to such a system."""
    receiver: str = ""
    """A `Receiver`: takes what its clients send over HTTP."""
    listener: str = ""
    """A `Listener`: takes what its clients send to another port."""
    importer: str = ""
    """A tuple of `Source`: reads runs from its files."""
    notifier: str = ""
    """A `NotifierConfig`: sends alerts to it."""
    trace_format: str = ""
    """A `TraceFormat`: writes and reads files of spans."""
    media: str = ""
    """A `MediaReader`: finds the images, sounds, tables and texts that its clients logged."""
    options: tuple[HubOption, ...] = ()
    """Options of `stepscope hub`."""
    client_state: ClientState = "none"
    """Whether the hub that takes its requests keeps state for clients, and whether another hub may take it over."""
    reads_back: bool = False
    """Whether its clients read values that they sent before."""
    headers: tuple[str, ...] = ()
    """Headers by which requests of other dialects refer to runs of its clients."""


def load(place: str) -> Any:
    """Import what a part names."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


@cache
def all_dialects() -> Mapping[str, Dialect]:
    """Return all dialects by name: the built-in ones, then those of other packages; ConfigError names a broken one."""
    found = {each.name: each for each in _built_in()}
    for each in _registered():
        found.setdefault(each.name, each)
    return found


def find_dialect(name: str) -> Dialect | None:
    """Return one dialect; a built-in one is found without importing the others."""
    if name.isidentifier() and find_spec(PACKAGE) is not None and find_spec(f"{PACKAGE}.{name}") is not None:
        return _declaration(name)
    return all_dialects().get(name)


def with_part(part: Part) -> list[Dialect]:
    """List the dialects that have a part, by name."""
    return sorted((each for each in all_dialects().values() if getattr(each, part)), key=lambda each: each.name)


def hub_options() -> list[HubOption]:
    """List the options of `stepscope hub` that dialects declare."""
    return [option for name in sorted(all_dialects()) for option in all_dialects()[name].options]


def _built_in() -> Iterator[Dialect]:
    if find_spec(PACKAGE) is None:
        return
    for module in iter_modules(import_module(PACKAGE).__path__):
        if module.ispkg and (declared := _declaration(module.name)) is not None:
            yield declared


def _declaration(folder: str) -> Dialect | None:
    place = f"{PACKAGE}.{folder}.dialect"
    if find_spec(place) is None:
        return None
    declared = load(f"{place}:DIALECT")
    assert isinstance(declared, Dialect)
    return declared


def _registered() -> Iterator[Dialect]:
    from importlib.metadata import entry_points  # slow to import, and only dialects of other packages need it

    for point in entry_points(group=GROUP):
        try:
            declared = point.load()
        except Exception as error:
            raise ConfigError(f"dialect {point.name!r} ({point.value}) cannot be loaded: {error!r}") from None
        if not isinstance(declared, Dialect):
            raise ConfigError(
                f"dialect {point.name!r} ({point.value}) must be a Dialect, got {type(declared).__name__}"
            )
        yield declared


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
            raise ConfigError(f"unknown {self.kind} {name!r}{nearest(name, known) or '.'} Known: {', '.join(known)}")
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
            raise ConfigError(f"unknown option {key!r}{nearest(str(key), known) or '.'} Known: {', '.join(known)}")
    try:
        return msgspec.convert(dict(options), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from None
