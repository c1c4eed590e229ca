"""Desync: a metric that was equal on all ranks and no longer is."""

from collections import Counter
from typing import ClassVar

from stepscope.diagnosis.detector import RunState, drop_rarest
from stepscope.diagnosis.detectors.start_settings import CONFIG
from stepscope.diagnosis.finding import Finding, Kind, number, on_ranks

DESYNC = Kind(
    "desync",
    "ERROR",
    "weights differ between ranks: a missed or failed collective, or different inputs to the optimizer",
    "Compare parameter checksums across ranks; restart from the last checkpoint at which they agree.",
)
REPLICAS = Kind(
    "replicas_differ",
    "ERROR",
    "the weights of data-parallel ranks are not equal: changed on one of them, or a gradient that was not reduced",
    "Look what that rank does to its weights outside of the optimizer; restart from a checkpoint before this step.",
    explains=("desync",),
    lasts=True,
    rules_out="different data on the ranks: the weights themselves differ",
)
CHECKSUM = "torch/weights_checksum"
"""A metric that must be equal on all ranks, to the last bit."""
AGREE = 20
"""A metric that was equal on all ranks for this many steps is expected to stay equal."""
DIFFER = 3
"""It must differ at this many steps in a row."""
OWN = 40
"""A metric that differed at this many steps, and was never equal for long, differs by design."""
MAX_STEPS = 16
MAX_KEYS = 100_000
"""The most metrics that are compared; those that were equal least often are dropped."""
CLOSE = 1e-6


class Shared:
    """The values of one metric on all ranks."""

    __slots__ = ("done", "key", "last", "odd", "own", "rows", "same")

    def __init__(self, key: str) -> None:
        self.key = key
        self.rows: dict[int, dict[int, float]] = {}
        self.same = self.own = self.last = 0
        self.odd: list[tuple[int, int]] = []
        self.done = False
        """Whether there is nothing more to find."""


class Desync:
    """Compares metrics that ranks report at the same steps."""

    KINDS: ClassVar[tuple[Kind, ...]] = (DESYNC, REPLICAS, CONFIG)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._keys: dict[str, Shared] = {}
        self.done = 0
        """How many metrics need not be watched any more."""
        self.dropped = 0
        """How often metrics were dropped: what refers to them is out of date."""

    def of(self, key: str) -> Shared:
        """Return the state of a metric."""
        known = self._keys.get(key)
        if known is None:
            self.dropped += bool(drop_rarest(self._keys, MAX_KEYS, lambda each: each.same + each.own))
            known = self._keys[key] = Shared(key)
        return known

    def take(self, shared: Shared, rank: int, step: int, time: int, value: float) -> Finding | None:
        """Add a value, and compare the ranks once all have reported the step."""
        rows = shared.rows
        row = rows.get(step)
        if row is None:
            rows[step] = {rank: value}
            if len(rows) > MAX_STEPS:
                del rows[min(rows)]
            return None
        row[rank] = value
        if len(row) < self._run.world:
            return None
        del rows[step]
        if len(set(row.values())) == 1:
            shared.same += 1
            shared.last = step
            if shared.odd:
                shared.odd = []
            return None
        return self._differs(shared, step, time, row)

    def _differs(self, shared: Shared, step: int, time: int, row: dict[int, float]) -> Finding | None:
        if shared.key == CHECKSUM:
            return self._replicas(shared, step, time, row)
        if shared.same < AGREE and len(set(row.values())) == len(row) > 2:
            return self._own(shared, step, time, row)
        usual = Counter(row.values()).most_common(1)[0][0]
        odd = [at for at, mine in row.items() if abs(mine - usual) > CLOSE * max(abs(usual), abs(mine), 1e-12)]
        if not odd:
            shared.same += 1
            shared.odd = []
            return None
        if shared.same < AGREE:
            return self._own(shared, step, time, row)
        shared.odd.append((step, odd[0]))
        if len(shared.odd) < DIFFER:
            return None
        self._end(shared)
        begun, world, key = shared.odd[0][0], self._run.world, shared.key
        ranks = tuple(sorted(odd)) if len(odd) < world - 1 or world == 2 else ()
        who = on_ranks(ranks, world) or " between ranks"
        return DESYNC.finding(
            f"{key} has differed{who} since step {begun}: {number(row[odd[0]])}, {number(usual)} elsewhere",
            time,
            step=begun,
            last=step,
            ranks=ranks,
            key=key,
            value=row[odd[0]],
            expected=(usual, usual),
            weight=2.0,
        )

    def _replicas(self, shared: Shared, step: int, time: int, row: dict[int, float]) -> Finding:
        self._end(shared)
        usual, often = Counter(row.values()).most_common(1)[0]
        odd = tuple(sorted(rank for rank, value in row.items() if value != usual)) if 2 * often > len(row) else ()
        who = on_ranks(odd, self._run.world) or " between ranks"
        since = f", and were equal until step {shared.last}" if shared.same else ""
        return REPLICAS.finding(
            f"the weights differ{who} at step {step}{since}",
            time,
            step=step,
            ranks=odd,
            key=shared.key,
            value=row[odd[0]] if odd else None,
            expected=(usual, usual),
            weight=3.0,
        )

    def _own(self, shared: Shared, step: int, time: int, row: dict[int, float]) -> Finding | None:
        """Handle a metric that differs by rank by design; for a batch size that is a fault."""
        shared.same, shared.own = 0, shared.own + 1
        if shared.own < OWN:
            return None
        self._end(shared)
        if not shared.key.endswith("batch_size"):
            return None
        usual, often = Counter(row.values()).most_common(1)[0]
        odd = sorted(rank for rank, value in row.items() if value != usual)
        ranks = odd if often > len(odd) else sorted(row)
        where = on_ranks(tuple(odd), self._run.world)
        text = f"{shared.key} is {number(row[odd[0]])}{where} and {number(usual)} elsewhere"
        return CONFIG.finding(
            text, time, ranks=ranks, key=shared.key, value=row[odd[0]], expected=(usual, usual), last=step
        )

    def _end(self, shared: Shared) -> None:
        shared.done = True
        shared.rows.clear()
        self.done += 1
