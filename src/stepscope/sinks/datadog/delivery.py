"""What of some batches is still to be sent to Datadog, so that a second offer sends only what is left."""

import time
from collections.abc import Callable, Mapping, Sequence

from stepscope.model.errors import Retry
from stepscope.model.ports import Batch
from stepscope.sinks.delivery import Delivery
from stepscope.wire.datadog.datadog_items import Item, Point, is_timely
from stepscope.wire.datadog.datadog_translate import Translator

LATE = "too old or too far in the future for Datadog"


class ItemDelivery(Delivery[Item]):
    """The batches under way as Datadog's items, less those that became too old."""

    def __init__(
        self, translator: Translator, now: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._translator, self._now = translator, now
        self._points_failed = False

    def translate(self, batches: Sequence[Batch], timeout: float) -> None:
        """Go on where the last offer of the same batches ended, else start."""
        if self.begin(batches, timeout):
            self._points_failed = False
            self.parts, refused = self._translator.translate(batches)
            for reason, count in refused.items():
                self.refuse(reason, count)
        now = self._now()
        timely = [item for item in self.parts if is_timely(item, now)]
        self.refuse(LATE, len(self.parts) - len(timely))
        self.parts = timely

    def fail_items(self, error: Retry, items: Sequence[Item]) -> None:
        """Note items on which the server failed."""
        self._points_failed |= any(isinstance(item, Point) for item in items)
        self.fail(error, [item.where for item in items])

    def finish(self) -> Mapping[str, int]:
        """Keep what the translator learnt, unless its points come again, and end."""
        if not self._points_failed:
            self._translator.commit()
        return self.end()
