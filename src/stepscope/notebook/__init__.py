"""`stepscope.show`: runs in a notebook, which follow what they record."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from stepscope.notebook.view import View
    from stepscope.sdk.run import Run

TABS = ("diagnosis", "charts", "files", "overview", "traces", "logs")
FIRST_SECONDS = 5.0
"""How long the journals of all runs are read before a view is shown; the rest follows."""
LIVE = "This view does not follow the run. For one that does: pip install 'stepscope[notebook]'"


class Shown:
    """What a cell that ends with it shows: states, findings and charts of runs."""

    def __init__(self, view: "View", height: int) -> None:
        self._view, self._height = view, height
        self.widget = _live(view, height)
        """The live view, an `anywidget`; None without that package."""

    def _repr_html_(self) -> str:
        from stepscope.notebook.cell_document import frame

        view = self._view.last
        return frame(view if self.widget is not None else {**view, "note": view["note"] or LIVE}, self._height)

    def _repr_mimebundle_(self, **given: Any) -> dict[str, Any]:
        found = {} if self.widget is None else self.widget._repr_mimebundle_(**given)
        data = found[0] if isinstance(found, tuple) else found or {}
        return {**data, "text/html": self._repr_html_(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        runs = self._view.last["runs"]
        return ", ".join(f"{each['name'] or each['id']}: {each['status']}, step {each['step']}" for each in runs)


class ShownPage:
    """A tab of a run's page, in a frame; or, where no hub runs, how to start one."""

    def __init__(self, run: str, home: Path, address: str | None, tab: str, height: int) -> None:
        self.run, self._home, self._height = run, home, height
        self.url = None if address is None else f"{address}/#/run/{quote(run, safe='')}?tab={tab}"
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
    run: "str | Run | Sequence[str | Run] | None" = None,
    *,
    metrics: Sequence[str] = (),
    tab: str | None = None,
    home: "Path | str | None" = None,
    height: int = 640,
) -> Shown | ShownPage:
    """Show runs in a notebook, with their states, findings and charts: one of this process, or its id, its name or
    `latest`, which is the default; several, up to eight, are compared.

    Without a run and a home, the current run is shown. `metrics` are the charts, else the leading ones. The kernel asks
    the hub that has the home folder open (with the token of STEPSCOPE_TOKEN), and reads the journals where none does.
    With `pip install 'stepscope[notebook]'` the view follows the runs.

    `tab` shows the hub's own page instead: diagnosis, charts, files, overview, traces or logs. The hub must allow the
    origin of the notebook then (`stepscope hub --allow-origin http://localhost:8888`).
    StepscopeError when no run matches, or more than one does.
    """
    from stepscope.journal.layout import address_of
    from stepscope.model.errors import StepscopeError

    if tab is not None and tab not in TABS:
        raise StepscopeError(f"there is no tab {tab!r}; use one of {', '.join(TABS)}")
    several: list[Any] = list(run) if isinstance(run, (list, tuple)) else [run]
    found = list(dict.fromkeys(_find(each, home) for each in several))
    tall = max(100, int(height))
    if tab is not None:
        place, id = found[0]
        return ShownPage(id, place, address_of(place), tab, tall)
    return Shown(_view(found, [metrics] if isinstance(metrics, str) else metrics), tall)


def _find(run: "str | Run | None", home: "Path | str | None") -> tuple[Path, str]:
    """Return the home and the id of a run."""
    from stepscope.hub.client import find_anywhere
    from stepscope.sdk import api, settings

    found = api.current_run() if run is None and home is None else run
    if found is not None and not isinstance(found, str):
        return found.home, found.id
    place = settings.load({}).home if home is None else Path(home).expanduser().absolute()
    return place, find_anywhere(place, found or "latest")


def _view(found: Sequence[tuple[Path, str]], metrics: Sequence[str]) -> "View":
    from stepscope.model.errors import StepscopeError
    from stepscope.notebook.shown_runs import open_source
    from stepscope.notebook.view import MAX_RUNS, View

    if not 0 < len(found) <= MAX_RUNS:
        raise StepscopeError(f"a view shows 1 to {MAX_RUNS} runs, not {len(found)}")
    view = View([open_source(home, run) for home, run in found], metrics)
    view.read(FIRST_SECONDS / len(found))
    return view


def _live(view: "View", height: int) -> Any:
    """Return the live view; None without anywidget."""
    try:
        from stepscope.notebook.widget import Live
    except ImportError:
        return None
    return Live(view, height)
