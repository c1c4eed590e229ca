"""What of some batches is still to be sent to Datadog, so that a second offer sends only what is left."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from stepscope.model.errors import Reject
from stepscope.model.ports import Batch, offer_key
from stepscope.wire.datadog.items import Item, is_timely
from stepscope.wire.datadog.translate import Translator

LATE = "too old or too far in the future for Datadog"


class Delivery:
    """The batches under way as items; counts what Datadog does not take and names the records it refused."""

    def __init__(self, translator: Translator, now: Callable[[], float]) -> None:
        self._translator, self._now = translator, now
        self._key: tuple[object, ...] | None = None
        self.items: list[Item] = []
        self._refused: Counter[str] = Counter()
        self._where: set[int] = set()
        self._together = False
        self._reasons: dict[str, None] = {}

    def begin(self, batches: Sequence[Batch]) -> None:
        """Go on where the last offer of the same batches ended, else start; what became too old is counted."""
        key = offer_key(batches)
        if key != self._key:
            self._forget()
            self.items, self._refused = self._translator.translate(batches)
            self._key = key
        now = self._now()
        timely = [item for item in self.items if is_timely(item, now)]
        self.refuse(LATE, len(self.items) - len(timely))
        self.items = timely

    def refuse(self, reason: str, count: int = 1) -> None:
        """Count items for which there is no place."""
        if count:
            self._refused[reason] += count

    def reject(self, reason: str, items: Iterable[Item], *, together: bool) -> None:
        """Note records that were refused, one by one or as a lot."""
        self._where.update(item.where for item in items)
        self._together |= together
        self._reasons[reason] = None

    def end(self) -> Mapping[str, int]:
        """Finish: what was refused by count; Reject when records were refused by name."""
        self._translator.commit()
        refused, where, together = self._refused, sorted(self._where), self._together
        reason = "; ".join(self._reasons)
        self._forget()
        if where:
            raise Reject(reason, where, together=together, counted=refused)
        return dict(refused)

    def _forget(self) -> None:
        self._key = None
        self.items = []
        self._refused = Counter()
        self._where = set()
        self._together = False
        self._reasons = {}
