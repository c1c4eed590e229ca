"""The line that a run prints when it begins: its id, and how to open it."""

from stepscope.journal.layout import address_of
from stepscope.sdk.run_protocols import Part
from stepscope.sdk.settings import default_home


def url_of(run: Part) -> str | None:
    """The address of a run on the page of the hub that has its home open; None without one."""
    from urllib.parse import quote

    address = address_of(run.settings.home)
    return f"{address}/#/run/{quote(run.id, safe='')}" if address else None


def line(run: Part) -> str:
    """Return the run id and how to open the run: the URL of a running hub, else a command."""
    home = run.settings.home
    elsewhere = "" if home == default_home() else f" --home {home}"
    where = url_of(run) or f"stepscope show{elsewhere} {run.id}"
    called = f"{run.project}/{run.name}" if run.name else run.project
    return f"stepscope: recording {called}, run {run.id}: {where}"
