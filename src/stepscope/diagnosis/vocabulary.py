"""A framework's vocabulary: how its runs are recognised, and the roles of its names that general rules get wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names of one framework by role. A name that ends in `*` is a prefix; one that begins with `*` a suffix."""

    name: str
    signs: frozenset[str] = frozenset()
    """Keys that only this framework logs: one of them tells its runs apart."""
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names that mean this wherever they are seen, by role; the role "" is for names without one."""
    here: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names that mean this only in runs of this framework."""
