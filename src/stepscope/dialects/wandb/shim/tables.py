"""Tables that a script logs: the rows of each that were not recorded before."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from stepscope.dialects.wandb.shim.media import Table, WBValue
from stepscope.dialects.wandb.wire import Row, has_steps, rows_of
from stepscope.extend import text_of

MAX_SEEN = 20_000


class SeenRows:
    """Rows with a step of their own that were recorded: such tables are logged whole again with each new row."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def new_rows(self, key: str, table: Table) -> Iterator[Row]:
        """Yield the rows of a table that were not recorded before."""
        columns = [text_of(name) for name in table.columns]
        start = 0 if has_steps(columns) else table.recorded
        table.recorded = len(table.data)
        for step, cells in rows_of(columns, islice(table.data, start, None)):
            if step is None or self._is_new(key, step, cells):
                yield step, cells

    def _is_new(self, key: str, step: int, cells: dict[str, Any]) -> bool:
        found = hash((key, step, *((name, text_of(value)) for name, value in cells.items())))
        if found in self._seen:
            return False
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        self._seen.add(found)
        return True


def without_media(cells: dict[str, Any]) -> tuple[dict[str, Any], dict[str, WBValue]]:
    """Replace media in cells by the names of their types; also return the media by column."""
    media = {name: value for name, value in cells.items() if isinstance(value, WBValue)}
    return {**cells, **{name: f"<{type(value).__name__}>" for name, value in media.items()}}, media
