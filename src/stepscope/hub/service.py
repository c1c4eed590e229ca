"""The hub without its ports: journal, pump, store and access control, opened and closed in order."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from stepscope.alerts.alert import Expected
from stepscope.hub.alerting.alerting_thread import Alerting
from stepscope.hub.dashboards import saved_views
from stepscope.hub.dashboards.dashboard import LONGEST, Dashboards
from stepscope.hub.dashboards.saved_views import SavedViews
from stepscope.hub.diagnosing.thread import Diagnosing
from stepscope.hub.home import HubHome
from stepscope.hub.intake.counters import Counters, families, outcomes
from stepscope.hub.intake.intake_journal import MEGA, Intake, SequenceNumbers, shifted_clock
from stepscope.hub.intake.pacing import Pacing
from stepscope.hub.intake.read_back import ReadBack
from stepscope.hub.intake.scrub import Scrubber
from stepscope.hub.intake.store_pump import (
    PACE_SECONDS,
    SINK,
    WATCHED_PACE_SECONDS,
    FolderReceiver,
    GroupReader,
    IntakeReader,
    Readers,
    StorePump,
    StoreSink,
)
from stepscope.hub.limits import Limits
from stepscope.hub.live import LiveTopics
from stepscope.hub.receivers.ingest import Ingest, RunLimits, RunLinks, RunOwners
from stepscope.hub.runs.bucket import Bucket, RemoteBlobs
from stepscope.hub.runs.deletion import RunDeletion
from stepscope.hub.runs.presence import Presence
from stepscope.hub.runs.run_files import ImportedFiles, LoggedFiles, RunFiles
from stepscope.hub.runs.run_states import Journals, RunStates, StateCounts
from stepscope.hub.security.guard import Guard, is_loopback, known_hosts
from stepscope.hub.security.tokens import RateLimits, Tokens
from stepscope.hub.store.engine import Damaged, Engine, EngineError
from stepscope.hub.store.maintenance import info, lost, retain
from stepscope.hub.store.read.run_catalog import count_runs, list_runs, save_runs
from stepscope.hub.store.store import Store
from stepscope.hub.texts import TextFiles
from stepscope.hub.threads import Periodic, Topic, Workers
from stepscope.journal.following import Cursors
from stepscope.journal.kept_files import sweep
from stepscope.journal.layout import runs_folder
from stepscope.journal.quarantine import Quarantine
from stepscope.journal.run_edits import Edits, folder_bytes
from stepscope.model.errors import Retry
from stepscope.model.ports import Writer
from stepscope.model.states import UNFINISHED
from stepscope.wire.openmetrics import Family

if TYPE_CHECKING:  # a single hub runs without it
    from stepscope.hub.fleet.fleet import Fleet

_SIZE_SECONDS = 10.0
_BEHIND_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """The options of a hub."""

    home: Path
    store: str = field(default="", repr=False)
    """The address of a ClickHouse server, which may hold a password; empty for the store in the home."""
    advertise: str = ""
    """The URL at which other hubs on the same store reach this one; empty for the address that it binds."""
    host: str = "127.0.0.1"
    port: int = 4318
    tls: tuple[Path, Path] | None = None
    """The files of certificate and key."""
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    keep_seconds: float | None = None
    max_bytes: int | None = None
    journal_bytes: int = 4096 * MEGA
    limits: Limits = field(default_factory=Limits)
    dialects: Mapping[str, Any] = field(default_factory=dict)
    """The values of the options that dialects declare, by name."""
    yields: bool = False
    """Whether it leaves the machine to training: low priority, and fewer commits while nobody reads."""
    blobs: str = ""
    """The address of the bucket for uploaded files; empty to keep them in the home."""
    only_run: str | None = None
    """The one run whose journals are read; None for all."""

    @property
    def scheme(self) -> str:
        """The scheme of the hub's address."""
        return "http" if self.tls is None else "https"


class Hub:
    """A hub on an open home and store. `start` begins to move records, `close` ends in order."""

    def __init__(self, options: HubOptions, home: HubHome, store: Store, tokens: Tokens) -> None:
        self.options, self.home, self.store = options, home, store
        self._began = time.monotonic()
        self._size: tuple[float, int] = (0.0, 0)
        self.damage = _lost(store)
        """Known damage of the store, until the hub restarts."""
        self.expired = 0
        """Runs deleted because they were too old or the store too large."""
        self.closing: list[Callable[[], object]] = []
        """Called once when the hub stops and still answers, to end live streams and queries."""
        self.ending: list[Callable[[], object]] = []
        """Called once before the store closes; its readers have finished when these return."""

        # What parts announce to each other.
        self.here = LiveTopics()
        """What this hub stores."""
        self.elsewhere = LiveTopics()
        """What other hubs on the same store do."""
        marked: Topic[Expected] = Topic()
        arrived = threading.Event()

        # Requests: who may send what.
        self.counters = Counters()
        self.readers = Readers()
        self.rates = RateLimits(options.limits.requests)
        hosts, required = known_hosts(options.host, options.allow_hosts), not is_loopback(options.host)
        self.guard = Guard(tokens, self.rates, hosts, options.allow_origins, options.scheme, required=required)
        self.scrubber = Scrubber(options.limits)
        self.workers = Workers("body", threads=2, waiting=256)
        """Unpacks and decodes bodies; two are unpacked in memory at a time, and one of them is large."""
        self.links = RunLinks()

        # From the journals into the store.
        cursors = Cursors(home.folder, SINK)
        cursors.prune(lambda writer: "/" in writer and not (runs_folder(home.home) / writer).is_dir())
        self.intake = Intake(
            home.journal,
            _writer(),
            most_bytes=options.journal_bytes,
            written=arrived.set,
            check=home.check,
            on_wait=self.readers.note,
        )
        self.progress = self.intake.progress
        self.intake_reader = IntakeReader(
            home.journal, cursors, self.counters, self.intake.measure, self.progress.store
        )
        self.folder = FolderReceiver(home.home, cursors, self.counters, self.scrubber.mask_batch, only=options.only_run)
        self.edits = Edits(home.home)
        self.deletion = RunDeletion(home.home, self.edits, store, self._forget_run)
        self.deleting = self.deletion.uploads
        self.presence = Presence(stored=(self.here.stored, self.elsewhere.stored))
        self.fleet = self._join_fleet(tokens, cursors)
        store.skip_deleted(self.edits.covers)
        self.read_back = ReadBack(lambda: store.engine, self.edits.covers)
        self.pacing = Pacing(self._waiting_bytes)
        if options.yields:
            self.here.stored.subscribe(self.pacing.take)
        self.pump = self._make_pump(cursors, arrived)
        self._numbers = SequenceNumbers(shifted_clock(store.ownership.member.hub) if store.ownership else time.time_ns)
        run_limits = RunLimits(options.limits, lambda: count_runs(store.engine), self._project_of)
        self._owners = RunOwners(self._project_of, tokens.are_bound, run_limits)

        # What is made of stored records.
        self.states = RunStates(self.presence, Journals(home.home, cursors, self.folder.torn), self._is_behind)
        self.state_counts = StateCounts(self.presence, lambda: list_runs(store.engine), self.states)
        self.alerting = self._make_alerting(marked)
        self.diagnosing = Diagnosing(
            store,
            self.states,
            self.pump.is_busy,
            stored=self.here.stored,
            found=self.here.found,
            marked=marked,
            is_watched=self._is_watched,
        )
        self.logged_files = LoggedFiles(home.home, self.files / "media")
        """The files that trainers logged."""
        self.run_files: list[RunFiles] = [ImportedFiles(home.home), self.logged_files]
        self.blobs = RemoteBlobs(Bucket(options.blobs), self.files / "media") if options.blobs else None
        """Those of them that are in a bucket."""
        self.moving = Periodic(self.blobs.work, first=0.5, every=1.0, what="storing files") if self.blobs else None
        self.upkeep = Periodic(self._tidy)
        self.deletion.finish()

    def _join_fleet(self, tokens: Tokens, cursors: Cursors) -> "Fleet | None":
        """Join the other hubs on a shared store; None for a hub that has its store to itself."""
        ownership = self.store.ownership
        if ownership is None:
            return None
        from stepscope.hub.fleet.fleet import Fleet

        return Fleet(
            self.store,
            ownership,
            self.home,
            tokens=tokens,
            rates=self.rates,
            edits=self.edits,
            deletion=self.deletion,
            intake=self.intake,
            cursors=cursors,
            counters=self.counters,
            writer=_writer(),
            most_bytes=self.options.journal_bytes,
            certificate=self.options.tls[0] if self.options.tls else None,
            here=self.here,
            elsewhere=self.elsewhere,
            on_gained=self._check_new_shards,
        )

    def _make_pump(self, cursors: Cursors, arrived: threading.Event) -> StorePump:
        fleet, check = self.fleet, self.home.check
        sources = (self.intake_reader, self.folder, *(fleet.deferred if fleet is not None else ()))
        groups = GroupReader(sources, cursors, self.counters, check=check, is_deleted=self.edits.covers)
        return StorePump(
            StoreSink(self.store if fleet is None else fleet.route(groups), check),
            groups,
            Quarantine(self.home.home, SINK),
            self.counters,
            idle=self.folder.next_due,
            quiet_pace=self.quiet_pace,
            is_due=lambda: self.options.yields and self.pacing.is_due(),
            readers=self.readers,
            passed_on=fleet.passed_on if fleet is not None else None,
            on_safe=self.read_back.note if fleet is not None else None,
            stored=self.here.stored,
            wake=arrived,
        )

    def quiet_pace(self) -> float:
        """Seconds between two commits while nobody reads."""
        if not self.options.yields or self.fleet is not None:  # a store of several hubs may be read at another one
            return PACE_SECONDS
        return WATCHED_PACE_SECONDS if self.alerting.has_own_rules else self.pacing.seconds()

    def catch_up(self, seconds: float) -> None:
        """Wait until what waits for the next commit is stored, for so long at most; the first reader calls it."""
        self.diagnosing.look_soon()
        if self.pacing.has_waiting():
            self.pump.catch_up(seconds)

    def _is_watched(self) -> bool:
        """Return whether someone reads, or has alert rules; of several hubs on a store any may be read."""
        alone = self.options.yields and self.fleet is None
        return not alone or self.readers.any() or self.alerting.has_own_rules

    def _waiting_bytes(self, writers: Iterable[str]) -> int:
        return self.intake_reader.bytes_behind() + self.folder.unread_of(writers)

    def _make_alerting(self, marked: Topic[Expected]) -> Alerting:
        sharing = self.fleet.sharing if self.fleet is not None else None
        return Alerting(
            self.home.home,
            self.home.folder,
            self._ended,
            shared=sharing.alerts if sharing is not None else None,
            page=sharing.rules if sharing is not None else None,
            written_here=self.fleet.written_here if self.fleet is not None else list,
            stored=self.here.stored,
            found=self.here.found,
            marked=marked,
        )

    @property
    def limits(self) -> Limits:
        """The limits on what clients send."""
        return self.options.limits

    @property
    def engine(self) -> Engine:
        """The engine of the store."""
        return self.store.engine

    @property
    def dashboards(self) -> Dashboards:
        """The dashboards."""
        files = TextFiles(self.home.home / "dashboards", LONGEST)
        return Dashboards(files if self.fleet is None else self.fleet.sharing.dashboards)

    @property
    def views(self) -> SavedViews:
        """The saved views of projects."""
        files = TextFiles(self.home.home / "views", saved_views.LONGEST)
        return SavedViews(files if self.fleet is None else self.fleet.sharing.views)

    @property
    def files(self) -> Path:
        """The folder of the files that receivers keep."""
        return self.home.folder / "files"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The options of dialects."""
        return self.options.dialects

    def ingest(self, receiver: str, *, ours: bool = False) -> Ingest:
        """Create the object that masks, packs and journals the records of a receiver; `ours` for our own SDK."""
        return Ingest(receiver, self.intake, self.scrubber, self.counters, self._numbers, self._owners, ours=ours)

    def start(self) -> None:
        """Begin to move records into the store."""
        self.guard.tokens.watch()
        if self.fleet is not None:
            self.fleet.start()
            self.deletion.start()
        self.pump.start()
        self.alerting.start()
        self.diagnosing.start()
        self._owners.limits.counting.start()
        if self.options.only_run is None:
            self.state_counts.begin()
        self.upkeep.start()
        if self.moving is not None:
            self.moving.start()

    def end_subscriptions(self) -> None:
        """End streams that would wait forever while the hub still answers."""
        _call_once(self.closing)

    def close(self, seconds: float = 10.0) -> None:
        """Journal what was accepted, store what is possible in time, and close everything."""
        self.end_subscriptions()
        self.guard.tokens.close()
        self.workers.close()
        self.intake.close()
        self.pump.stop(seconds)
        self.diagnosing.stop()
        self.alerting.stop()
        self.deletion.stop()
        self.upkeep.stop()
        if self.moving is not None:
            self.moving.stop()
        if self.fleet is not None:
            self.fleet.stop()
        self._owners.limits.counting.stop()
        self.state_counts.end(seconds)
        self._save_runs()
        _call_once(self.ending)
        self.store.close()
        self.home.close()

    def _save_runs(self) -> None:
        """Keep the table of runs for the next start; without it, all runs are summarised again."""
        if self.store.folder is not None:
            with contextlib.suppress(EngineError, OSError):
                save_runs(self.engine, self.home.saved_runs)

    def _forget_run(self, run: str) -> None:
        self.presence.forget(run)
        self.diagnosing.forget(run)

    def _ended(self, runs: Sequence[str]) -> list[str]:
        """Those of some runs that are not running or no longer known."""
        rows = list_runs(self.store.engine, ids=list(runs))
        unfinished = {row.id for row in rows if self.states.state(row) in UNFINISHED}
        return [run for run in runs if run not in unfinished]

    def _check_new_shards(self) -> None:
        """Diagnose the runs of shards that this hub just got, and delete what was to be deleted of them."""
        self.diagnosing.find_missed()
        self.deletion.find_left_rows()

    def note_damage(self, message: str) -> None:
        """Record what is damaged in the store, for health."""
        self.damage = message

    def _tidy(self) -> None:
        """Delete what is too old or too much, and files that no record names."""
        keep, most = self.options.keep_seconds, self.options.max_bytes
        if keep is not None or most is not None:
            self.expired += retain(self.store, keep=keep, max_bytes=most, files=self.deletion).runs
        sweep(self.home.home)

    def _project_of(self, run: str) -> str | None:
        try:
            return next((row.project for row in list_runs(self.store.engine, ids=[run])), None)
        except Damaged as error:
            self.note_damage(str(error))
            raise Retry(str(error), after=60.0) from error
        except EngineError as error:
            raise Retry(f"the store is failing: {error}", after=5.0) from error

    def health(self) -> dict[str, Any]:
        """The hub's health."""
        runs = self._runs_by_state()
        fleet = self.fleet
        cluster = fleet.cluster if fleet is not None else None
        parts = (
            self.intake.problem,
            self.damage,
            cluster.problem if cluster is not None else "",
            self.pump.problem,
            self.upkeep.problem,
            self.moving.problem if self.moving is not None else "",
            fleet.problem if fleet is not None else "",
            self.deletion.problem,
            self._ignored_aborts(),
        )
        problem = self.home.problem() or next(filter(None, parts), "")
        return {
            "status": "ok" if not problem else "degraded",
            "trouble": problem,
            "uptime_seconds": round(time.monotonic() - self._began, 1),
            "receivers": outcomes(self.counters.snapshot()),
            "journal": {
                "bytes": self.intake.size,
                "waiting_bytes": self.intake.waiting,
                "limit_bytes": self.options.journal_bytes,
                "deferred_bytes": fleet.deferred_bytes() if fleet is not None else 0,
                "groups": self.intake.groups,
            },
            "lag": {"bytes": self._bytes_behind(), "seconds": round(self.pump.seconds_behind(), 1)},
            "store": {
                "records_per_second": round(self.pump.rate(), 1),
                "bytes": self._store_bytes(),
                "expired_runs": self.expired,
                "ignored_aborts": self.store.ignored_aborts(),
            },
            "cluster": None if cluster is None else to_builtins(cluster),
            "folder": {"writers": self.folder.writers, **self._reading()},
            "diagnosis": self.diagnosing.health(),
            "runs": runs,
            **({"hubs": fleet.describe()} if fleet is not None else {}),
        }

    def metrics(self) -> list[Family]:
        """List the same as metric families, for `/metrics`."""
        return families(self.counters.snapshot(), self.health())

    def _bytes_behind(self) -> int:
        return self.intake_reader.bytes_behind() + (self.fleet.deferred_bytes() if self.fleet is not None else 0)

    def _reading(self) -> dict[str, Any]:
        """Whether journals of trainers are still being read, and how many bytes of them are left."""
        reading = self.pump.is_reading()
        return {"reading": reading, "unread_bytes": self.folder.unread() if reading else 0}

    def _is_behind(self) -> bool:
        """Whether received records have been waiting for the store for longer than usual."""
        return self.pump.seconds_behind() > _BEHIND_SECONDS and self.intake_reader.bytes_behind() > 0

    def _runs_by_state(self) -> dict[str, int]:
        try:
            return self.state_counts.counts()
        except Damaged as error:
            self.note_damage(str(error))
        except EngineError:
            pass  # a busy or closing store is reported elsewhere
        return self.state_counts.counts()

    def _ignored_aborts(self) -> str:
        count = self.store.ignored_aborts()
        if not count:
            return ""
        which = "a commit" if count == 1 else f"{count} commits"
        return f"a hub that had lost its shard tried to take back {which} of another hub: nothing was deleted"

    def _store_bytes(self) -> int:
        now = time.monotonic()
        if now >= self._size[0]:
            held = self._size[1]
            with contextlib.suppress(EngineError):
                held = folder_bytes(self.home.store) if self.store.folder is not None else info(self.engine).bytes
            self._size = (now + _SIZE_SECONDS, held)
        return self._size[1]


def _call_once(calls: list[Callable[[], object]]) -> None:
    while calls:
        with contextlib.suppress(Exception):
            calls.pop()()


def _lost(store: Store) -> str:
    """Describe the parts that the engine set aside when it started, if any."""
    parts = lost(store.engine)
    if not parts:
        return ""
    return f"{len(parts)} parts of the store could not be loaded: stop the hub and run `stepscope store check`"


def _writer() -> Writer:
    """The writer of the hub's journal."""
    host, now = socket.gethostname(), time.time_ns()
    return Writer(id="hub", run="hub", project="stepscope", host=host, pid=os.getpid(), wall_ns=now)
