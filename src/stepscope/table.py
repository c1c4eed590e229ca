"""`stepscope.read`: what a run recorded, as a table of Arrow or pandas."""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

What = Literal["metrics", "histograms", "exemplars", "spans", "logs", "alerts", "samples"]


def read(
    run: str,
    *,
    what: What = "metrics",
    keys: str | Sequence[str] = (),
    rank: int | None = None,
    home: Path | str | None = None,
    pandas: bool = False,
) -> Any:
    """Read a run into a `pyarrow.Table`, or a pandas `DataFrame`: one row for each point, histogram, span, ...

    `run` is its id, the beginning of one, its name, or `latest`, as for the commands; `keys` is one metric or several,
    and all are read without any. A hub that has the home folder open is queried; else its engine is started here
    and reads the journals first. Needs `pip install 'stepscope[hub]'`.
    StepscopeError when no run matches, or more than one does.
    """
    from stepscope.hub.client import open_client, resolve_run
    from stepscope.hub.store.read import arrow
    from stepscope.sdk import settings

    place = settings.load({}).home if home is None else Path(home).expanduser().absolute()
    data = io.BytesIO()
    with open_client(place) as client:
        if client.problem:
            warnings.warn(f"the newest records of {place} are not in the table: {client.problem}", stacklevel=2)
        path = "/api/runs/{run}/export"
        wanted = [keys] if isinstance(keys, str) else list(keys)
        client.copy(data, path, run=resolve_run(client, place, run), format="arrow", what=what, key=wanted, rank=rank)
    data.seek(0)
    table = arrow.read_stream(data)
    return table.to_pandas() if pandas else table
