"""How names and tags are spelt for Datadog: its characters, its lengths, the namespace once, no costly tags."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from stepscope.model import names
from stepscope.model.records import Attrs
from stepscope.wire.otlp.names import ATTR_EXEMPLARS, PLAIN_STEPS, RESOURCE_RUN_ALIASES, STEPS
from stepscope.wire.plain import dumps

LONGEST = 200
"""Characters of a metric's name, and of a tag; Datadog cuts or refuses what is longer."""

WRITER_TAGS = frozenset(("project", "rank", "run_id"))
"""Tags that say who wrote a record; it has one of each."""
_ODD = re.compile(r"[^A-Za-z0-9_.]")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_DOTS = re.compile(r"\.{2,}")
_ODD_IN_TAG = re.compile(r"[^\w\-:/.]")
_RUNS = frozenset((*RESOURCE_RUN_ALIASES, "run"))
_STEPS = frozenset((*STEPS, *PLAIN_STEPS))
_OURS = frozenset(
    (names.ATTR_SAMPLE_RATE, names.ATTR_SET_MEMBER, ATTR_EXEMPLARS, names.ATTR_EVENT_ID, names.ATTR_EVENT_INDEX)
)
_OUR_PREFIXES = ("datadog.", "statsd.")


@lru_cache(maxsize=10_000)
def metric_name(key: str, namespace: str = "") -> str:
    """Spell a key as Datadog's metric: `trainer/loss` is `ns.trainer.loss`; a namespace it has already stays one."""
    name = _FOREIGN.sub(_code, key.replace("/", "."))
    name = _DOTS.sub(".", _ODD.sub("_", name)).strip(".")
    if namespace and name != namespace and not name.startswith(namespace + "."):
        name = f"{namespace}.{name}"
    if not name[:1].isalpha():
        name = "x" + name
    return name[:LONGEST]


def _code(found: re.Match[str]) -> str:
    # An underscore for each foreign letter would make one metric of many.
    return f"u{ord(found[0]):04x}"


def tag(key: str, value: Any = None) -> str:
    """Spell a tag; letters of any language stay, what would part tags or lines becomes an underscore."""
    if isinstance(value, bool):
        value = str(value).lower()
    bare = value is None or value == ""
    return _ODD_IN_TAG.sub("_", key if bare else f"{key}:{value}")[:LONGEST]


def joined(tags: tuple[str, ...], own: Iterable[str]) -> tuple[str, ...]:
    """Put a record's own tags behind those of its writer; its own project, rank and run take the writer's place."""
    own = tuple(own)
    replaced = {key for each in own if (key := each.partition(":")[0]) in WRITER_TAGS}
    kept = tags if not replaced else [each for each in tags if each.partition(":")[0] not in replaced]
    return tuple(dict.fromkeys((*kept, *own)))


def tags_of(attrs: Attrs, *, run_tag: bool) -> Iterator[str]:
    """Spell attributes as tags: never the step, a run's id only when asked for; a list is one tag for each element."""
    for key, value in attrs.items():
        if key in _STEPS or key in _OURS or key.startswith(_OUR_PREFIXES) or (key in _RUNS and not run_tag):
            continue
        if isinstance(value, (list, tuple)):
            yield from (tag(key, _text(each)) for each in value)
        else:
            yield tag(key, _text(value))


def _text(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple, bytes)):
        return dumps(value, indent=None)
    return value
