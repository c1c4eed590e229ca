"""Settings and code that differ between ranks, from their start events and later changes."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from stepscope.diagnosis.detector import Found, RunState
from stepscope.diagnosis.finding import Finding, Kind, on_ranks
from stepscope.model import names
from stepscope.model.records import Event

CONFIG = Kind(
    "config_differs",
    "WARN",
    "ranks were started with different settings",
    "Start all ranks with the same settings.",
    explains=("desync", "straggler"),
    lasts=True,
    next="stepscope show RUN --json",
)
CODE = Kind(
    "code_differs",
    "WARN",
    "ranks were started with different code",
    "Start all ranks with the same code.",
    next="stepscope show RUN --json",
)
COMPARED = ("config", "git.commit", "vcs.ref.head.revision", "python.version", "versions", "packages", "code.version")
PACKAGES = "packages."
VARY = frozenset(
    (
        *("seed", "rank", "local_rank", "host", "hostname", "device", "pid", "node_rank", "gpu", "shard", "data_seed"),
        *("worker_id", "log_dir"),
    )
)
"""Settings that may differ between ranks."""


_ONE_VALUE = "the same value on all ranks"
MAX_LATER = 1000
"""Settings that changed after the start and are compared."""


class StartSettings:
    """Compares the start events of all ranks, and the settings they change later."""

    KINDS: ClassVar[tuple[Kind, ...]] = (CONFIG, CODE)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._reported: set[str] = set()
        self._known: dict[int, dict[str, Any]] = {}
        self._later: dict[str, dict[int, deque[Any]]] = {}
        """By setting and rank: changes that are not compared yet, for ranks change a setting one after the other."""

    def event(self, rank: int, event: Event) -> Found:
        """Compare a start event, or changed settings, with those of the other ranks."""
        if event.name == names.EVENT_CONFIG:
            changes = _flat({"config": event.attrs})
            return [found for name, value in changes for found in self._change(rank, name, value, event.time)]
        if event.name != names.EVENT_STARTED:
            return ()
        self._known[rank] = dict(_flat({name: event.attrs[name] for name in COMPARED if name in event.attrs}))
        return list(self._compare(event.time)) if len(self._known) >= max(self._run.world, 2) else ()

    def _change(self, rank: int, name: str, value: Any, time: int) -> Iterator[Finding]:
        """Compare a change of a setting when all ranks have made it; what only some change is not compared."""
        if self._run.world < 2 or (name not in self._later and len(self._later) >= MAX_LATER):
            return
        changes = self._later.setdefault(name, {})
        changes.setdefault(rank, deque(maxlen=16)).append(value)
        if len(changes) >= self._run.world and all(changes.values()):
            yield from self._judge(name, {rank: repr(each.popleft()) for rank, each in changes.items()}, time)

    def _compare(self, time: int) -> Iterator[Finding]:
        for name in sorted(set().union(*self._known.values())):
            # A package that a rank has not imported yet is no other one.
            some = {rank: each for rank, each in self._known.items() if name in each or not name.startswith(PACKAGES)}
            yield from self._judge(name, {rank: repr(each.get(name)) for rank, each in some.items()}, time)

    def _judge(self, name: str, values: Mapping[int, str], time: int) -> Iterator[Finding]:
        """Name the ranks on which a setting is not what it is on most."""
        usual, often = Counter(values.values()).most_common(1)[0]
        odd = tuple(sorted(rank for rank, value in values.items() if value != usual))
        if not odd or name in self._reported or name.rsplit(".", 1)[-1].lower() in VARY:
            return
        self._reported.add(name)
        kind = CODE if any(word in name for word in ("commit", "version", "git", "code", PACKAGES)) else CONFIG
        yield kind.finding(
            f"{name} is {values[odd[0]]}{on_ranks(odd, self._run.world)} and {usual} elsewhere",
            time,
            expects=f"{usual}, as on {often} other rank{'s' * (often > 1)}" if often > len(odd) else _ONE_VALUE,
            ranks=odd if often > len(odd) or len(odd) == 1 else tuple(sorted(values)),
            key=name,
        )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
