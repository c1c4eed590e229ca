"""`stepscope quarantine list|show|retry`: inspect what sinks and the hub's store refused, and deliver it again."""

import argparse
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepscope.cli import text
from stepscope.cli.options import Commands, add_command, add_to_verbs, home_of, print_answer
from stepscope.cli.record_lines import json_line
from stepscope.cli.ship import chosen_sinks
from stepscope.hub.client import TOKEN_VARIABLE
from stepscope.hub.home import address_of
from stepscope.journal.quarantine import Entry, Full, Quarantine, Unreadable, quarantined
from stepscope.model import formatting
from stepscope.model.errors import ConfigError, Reject, Retry, ServerError
from stepscope.model.ports import Sink
from stepscope.sdk.shipping import sink_requests
from stepscope.sdk.shipping.sink_worker import kept_sinks
from stepscope.sinks.hub import Hub
from stepscope.sinks.registry import Chosen, open_sink
from stepscope.wire.plain import dumps

STORE = "store"
"""The quarantine of the hub's store."""


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "quarantine", "inspect what sinks refused, and deliver it again", show_list)
    verbs = made.add_subparsers(metavar="list|show|retry")
    verbs.add_parser("list", help="list rejected records and the reasons").set_defaults(command=show_list)
    show = verbs.add_parser("show", help="show the records of an entry")
    show.add_argument("id", help="its id, or the beginning of it")
    show.set_defaults(command=show_entry)
    retry = verbs.add_parser("retry", help="deliver entries again; accepted ones are deleted")
    retry.add_argument("id", nargs="*", help="their ids; default: all")
    about = "only what this sink refused: its id as in `list`, a name, or JSON as in `sinks:`"
    retry.add_argument("--sink", action="append", metavar="SINK", help=about)
    retry.set_defaults(command=retry_entries)
    add_to_verbs(verbs)


def _entries(home: Path) -> Iterator[tuple[str, Quarantine, Entry]]:
    for sink in quarantined(home):
        quarantine = Quarantine(home, sink)
        for entry in quarantine.entries():
            yield sink, quarantine, entry


def _damaged(home: Path) -> Iterator[tuple[str, Unreadable]]:
    for sink in quarantined(home):
        for bad in Quarantine(home, sink).unreadable():
            yield sink, bad


def show_list(args: argparse.Namespace) -> int:
    """List all entries, oldest first; then those that are damaged."""
    rows: list[dict[str, Any]] = [
        {
            "id": entry.id,
            "sink": sink,
            "run": entry.batch.writer.run,
            "records": entry.note.records,
            "time": entry.note.time,
            "reason": entry.note.reason,
        }
        for sink, _, entry in _entries(home_of(args))
    ]
    rows += [
        {
            "id": bad.id,
            "sink": sink,
            "run": bad.run,
            "records": bad.note.records if bad.note is not None else 0,
            "time": bad.time,
            "reason": bad.about,
        }
        for sink, bad in _damaged(home_of(args))
    ]
    print_answer(args, rows, list(map(_row_line, rows)) or "nothing is in quarantine")
    return 0


def _row_line(row: dict[str, Any]) -> str:
    count = formatting.amount(row["records"], "record")
    return f"{row['id']}  {text.moment(row['time'])}  {row['sink']}  {row['run']}  {count}: {text.clean(row['reason'])}"


def show_entry(args: argparse.Namespace) -> int:
    """Print the records of an entry, one line of JSON each."""
    for sink, _, entry in _named(home_of(args), [args.id]):
        if not args.json:
            print(f"{entry.id}: {sink}: {text.clean(entry.note.reason)}")
        for record in entry.batch.records:
            print(json_line(entry.batch.writer, record))
    return 0


def retry_entries(args: argparse.Namespace) -> int:
    """Deliver entries again; 0 when all were accepted."""
    home = home_of(args)
    known = _known(home, args.sink or [])
    entries = _named(home, args.id)
    if args.sink:
        entries = _refused_by(_resolve_sinks(home, args.sink, known), entries)
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as undo:
        sinks = _open_all(home, {name for name, _, _ in entries}, known, undo)
        for name, quarantine, entry in entries:
            sink = sinks[name]
            outcome = str(sink) if isinstance(sink, ConfigError) else _retry(sink, name, quarantine, entry)
            rows.append(
                {"id": entry.id, "sink": name, "records": entry.note.records, "taken": not outcome, "reason": outcome}
            )
            if not args.json:
                accepted = f"{formatting.amount(entry.note.records, 'record')} accepted"
                print(f"{entry.id}: {text.clean(outcome) or accepted}")
    if args.json:
        print(dumps(rows))
    return 0 if all(row["taken"] for row in rows) else 1


def _named(home: Path, ids: list[str]) -> list[tuple[str, Quarantine, Entry]]:
    found = list(_entries(home))
    if not ids:
        return found
    chosen = [each for each in found if any(each[2].id.startswith(name) for name in ids)]
    if not chosen:
        for _, bad in _damaged(home):
            if any(bad.id.startswith(name) for name in ids):
                raise ConfigError(f"{bad.id}: {text.clean(bad.about)}")
        raise ConfigError(f"no entry {', '.join(ids)} is in quarantine: see `stepscope quarantine list`")
    return chosen


def _known(home: Path, given: list[str]) -> dict[str, Chosen]:
    """The reachable sinks, by id: those used so far, and those of the settings where needed."""
    requests = sorted(sink_requests.list_requests(home), key=lambda request: request.since)
    known = kept_sinks(home) | {each.id: each for request in requests for each in request.sinks}
    if not given or set(given) & set(quarantined(home)):
        known |= {each.id: each for each in chosen_sinks(None)}
    return known


def _resolve_sinks(home: Path, given: list[str], known: dict[str, Chosen]) -> set[str]:
    """The ids of the named sinks; those given with options are kept."""
    found, ids = set(), {STORE, *quarantined(home), *known}
    for each in given:
        if each in ids:
            found.add(each)
            continue
        named = {chosen.id: chosen for chosen in chosen_sinks([each])}
        known |= named
        found |= named.keys()
    return found


def _refused_by(sinks: set[str], entries: list[tuple[str, Quarantine, Entry]]) -> list[tuple[str, Quarantine, Entry]]:
    """Keep the entries that these sinks rejected; ConfigError names the others when there are none."""
    found = [each for each in entries if each[0] in sinks]
    others = sorted({name for name, _, _ in entries})
    if others and not found:
        raise ConfigError(
            f"nothing in quarantine was rejected by {', '.join(sorted(sinks))}, but by other sinks: "
            f"name one with --sink ({', '.join(others)})"
        )
    return found


def _open_all(
    home: Path, names: set[str], known: dict[str, Chosen], undo: contextlib.ExitStack
) -> dict[str, Sink | ConfigError]:
    """Open sinks, or say why one cannot be opened; ConfigError when none can."""
    found: dict[str, Sink | ConfigError] = {}
    for name in sorted(names):
        try:
            found[name] = _open(home, name, known, undo)
        except ConfigError as error:
            found[name] = error
    errors = [each for each in found.values() if isinstance(each, ConfigError)]
    if errors and len(errors) == len(found):
        raise errors[0]
    return found


def _open(home: Path, name: str, known: dict[str, Chosen], undo: contextlib.ExitStack) -> Sink:
    """Open the sink that entries are for; what is opened is closed with `undo`."""
    if name == STORE:
        return _open_store(home, undo)
    if name not in known:
        raise ConfigError(f"the options of {name} are no longer known: give them with --sink, or in STEPSCOPE_SINKS")
    sink = open_sink(known[name].config, home)
    undo.callback(sink.close)
    return sink


def _open_store(home: Path, undo: contextlib.ExitStack) -> Sink:
    """The hub that has the store open, or the store itself when none does."""
    address = address_of(home)
    if address is not None:
        sink = Hub(url=address, token=os.environ.get(TOKEN_VARIABLE)).open()
        undo.callback(sink.close)
        return sink
    try:
        from stepscope.hub.home_store import opened
        from stepscope.hub.intake.store_pump import StoreSink
    except ImportError as error:
        raise ConfigError(f"this needs the hub's packages: pip install 'stepscope[hub]' ({error.name})") from error
    return StoreSink(undo.enter_context(opened(home)))


def _retry(sink: Sink, name: str, quarantine: Quarantine, entry: Entry) -> str:
    """Deliver an entry and delete it when it was accepted; return why it was not, else nothing."""
    if not entry.batch.records:
        return "the sink did not report which records it refused, so none can be retried"
    batch = entry.batch
    if name == STORE:  # it has seen the old number; an entry is stored once
        batch = batch._replace(seq=int(entry.id) | 1 << 63)
    try:
        refused = sink.write([batch])
    except (Reject, ServerError) as error:
        return _refused(name, quarantine, entry, error)
    except Retry as error:
        return str(error)
    except Exception as error:
        return f"the sink failed: {error!r}"
    for reason, count in refused.items():
        quarantine.note(batch, reason, count)
    quarantine.discard(entry)
    return "; ".join(f"{count} refused: {reason}" for reason, count in refused.items())


def _refused(name: str, quarantine: Quarantine, entry: Entry, error: Reject | ServerError) -> str:
    """Keep what was rejected, as a separate entry where the rest was accepted or its sequence number was used."""
    count = len(entry.batch.records)
    records = [entry.batch.records[index] for index in error.where if index < count]
    if name == STORE or len(records) < count:
        try:
            quarantine.set_aside(entry.batch._replace(records=records), str(error))
        except (Full, OSError) as full:
            return f"{error}; {full}"
        quarantine.discard(entry)
    return str(error) if len(records) == count else f"{count - len(records)} accepted, {len(records)} not: {error}"
