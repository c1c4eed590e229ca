"""What is not delivered yet, and which shippers run: for `stepscope ship --status` and `stepscope doctor`."""

import contextlib
from pathlib import Path

import msgspec

from stepscope.journal.atomic_files import holder
from stepscope.journal.following import Following
from stepscope.journal.layout import host_name, is_alive, shipping_folder
from stepscope.sdk.shipping import sink_requests
from stepscope.sdk.shipping.sink_worker import Report


class Pending(msgspec.Struct, frozen=True):
    """A run that a sink does not have completely."""

    run: str
    host: str
    sink: str
    place: str
    unread: int
    """Bytes of journal still to be delivered."""
    problem: str = ""
    """Why, as the shipper last reported it."""
    shipper: int | None = None
    """The process that is delivering it; None when none does."""
    gives_up_at: float | None = None
    """When that process stops trying, in seconds of the wall clock; None while it waits for trainers."""


def running_shippers(home: Path) -> dict[str, int]:
    """Return the pid of the running shipper of each host, as far as its lock can be seen from here."""
    found = {}
    for path in sorted(shipping_folder(home).glob("*.lock")):
        with contextlib.suppress(ValueError):  # it is about to sign
            pid = holder(path)
            if pid is not None:
                found[path.stem] = int(pid)
    return found


def latest_reports(home: Path) -> dict[str, Report]:
    """Return the last report about each sink, by its id."""
    reports = []
    for path in shipping_folder(home).glob("*.report"):
        with contextlib.suppress(OSError, ValueError):
            reports.append(msgspec.json.decode(path.read_bytes(), type=Report))
    return {report.sink: report for report in sorted(reports, key=lambda report: report.time)}


def pending(home: Path) -> list[Pending]:
    """Return what the sinks lack of the runs that requested them; an unreadable cursor counts as none."""
    shippers, reports = running_shippers(home), latest_reports(home)
    found = []
    for request in sink_requests.list_requests(home):
        shipper = _server(request) or shippers.get(request.host)
        for sink in request.sinks:
            unread = _unread(home, sink.id, request.run, request.host)
            if unread:
                report = reports.get(sink.id)
                problem, until = (report.problem, report.gives_up_at) if report is not None else ("", None)
                place = str(sink.config.place)
                found.append(Pending(request.run, request.host, sink.id, place, unread, problem, shipper, until))
    return found


def _server(request: sink_requests.SinkRequest) -> int | None:
    """Return the live process that delivers its own records, if there is one on this host."""
    here = request.host == host_name() and is_alive(request.server, int(request.since * 1e9))
    return request.server if here else None


def _unread(home: Path, sink: str, run: str, host: str) -> int:
    following = Following(home, sink, runs=lambda: (run,), wanted=lambda name: name.host == host, remember=False)
    try:
        return following.unread()
    except OSError:
        return 0
