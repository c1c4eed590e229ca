"""`stepscope.show`: the page of a run in a notebook, which follows it live."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from stepscope.sdk.run import Run

TABS = ("diagnosis", "charts", "files", "overview", "traces", "logs")


class Shown:
    """What a cell that ends with it shows: the page of a run, or, where no hub runs, how to start one."""

    def __init__(self, run: str, home: Path, address: str | None, tab: str | None, height: int) -> None:
        self.run, self._home, self._height = run, home, height
        tail = "" if tab is None else f"?tab={tab}"
        self.url = None if address is None else f"{address}/#/run/{quote(run, safe='')}{tail}"
        """The address of the page; None where no hub has the home folder open."""

    def _repr_html_(self) -> str:
        if self.url is None:
            return f"<div>No hub runs here. <code>stepscope hub --home {escape(str(self._home))}</code></div>"
        where = escape(self.url, quote=True)
        frame = f"<iframe src='{where}' width='100%' height='{self._height}' style='border:0' loading='lazy'></iframe>"
        hint = "empty? start the hub with <code>--allow-origin</code> and the address of this notebook"
        return f"{frame}<div style='opacity:.7'><a href='{where}' target='_blank'>{where}</a>; {hint}</div>"

    def __repr__(self) -> str:
        return self.url or f"no hub runs here: stepscope hub --home {self._home}"


def show(
    run: "str | Run | None" = None, *, tab: str | None = None, home: "Path | str | None" = None, height: int = 640
) -> Shown:
    """Show the page of a run in a notebook: one of this process, or its id, its name or `latest`, which is the default.

    Without a run and a home, the current run is shown.
    `tab` is one of diagnosis, charts, files, overview, traces and logs. The hub that has the home folder open is used;
    it must allow the origin of the notebook (`stepscope hub --allow-origin http://localhost:8888`).
    StepscopeError when no run matches, or more than one does.
    """
    from stepscope.journal.layout import address_of
    from stepscope.journal.resolve_run import find_run
    from stepscope.model.errors import StepscopeError
    from stepscope.sdk import api, settings

    if tab is not None and tab not in TABS:
        raise StepscopeError(f"there is no tab {tab!r}; use one of {', '.join(TABS)}")
    found = api.current_run() if run is None and home is None else run
    if found is not None and not isinstance(found, str):
        place, id = found.home, found.id
    else:
        place = settings.load({}).home if home is None else Path(home).expanduser().absolute()
        id = find_run(place, found or "latest")
    return Shown(id, place, address_of(place), tab, max(100, int(height)))
