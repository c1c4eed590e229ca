"""The runs in the store: a row for each with what its processes recorded, its writers, its series and their totals."""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Raw, Struct
from msgspec.structs import replace

from stepscope.hub.store import attrs, literal
from stepscope.hub.store.columns import EXACT_LIMIT, INT64_LIMIT, Answer, exact_number
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read import saved_runs
from stepscope.hub.store.read.run_row import Details, Ending, Latest, Rest, RunRow, word
from stepscope.hub.store.read.saved_runs import MIN_RUNS, Saved, rows_of, values_of
from stepscope.hub.store.schema import LAST, NO_STEP, created
from stepscope.hub.store.write.ledger import COUNTS
from stepscope.journal.run_edits import edit_of
from stepscope.model import names
from stepscope.model.last_value import LastValue, last_of
from stepscope.model.ports import Writer
from stepscope.model.records import Attrs, Event
from stepscope.model.run_description import Description, Edit, apply, read_tags


class WriterRow(Struct, frozen=True):
    """One process of a run and what it recorded."""

    writer: Writer
    seen: int
    received: int
    step: int | None
    counts: Mapping[str, int]
    started: int = 0
    """When it started, or the time of its first record if that is earlier."""


def run_number(engine: Engine, run: str) -> int | None:
    """The number of a run; None when it is not in the store."""
    found = engine.query(f"SELECT max(run) AS run FROM runs WHERE id = {literal.text(run)} GROUP BY id")["run"]
    return found[0] if found else None


def count_runs(engine: Engine) -> int:
    """How many runs are in the store."""
    return int(engine.query("SELECT uniqExact(run) AS count FROM runs")["count"][0])


def run_ids(engine: Engine, numbers: Iterable[int]) -> dict[int, str]:
    """The ids of runs by their numbers."""
    wanted = set(numbers)
    if not wanted:
        return {}
    found = engine.query(f"SELECT run, any(id) AS id FROM runs WHERE run IN {literal.integers(wanted)} GROUP BY run")
    return dict(found.rows("run", "id"))


def list_runs(
    engine: Engine, *, ids: Sequence[str] | None = None, project: str | None = None, keys: Sequence[str] = ()
) -> list[RunRow]:
    """List runs, the newest first, with the latest values of the named metrics."""
    if ids is None:
        known = _cache_of(engine).rows(engine, keys)
        return known if project is None else [row for row in known if row.project == project]
    conditions = [f"id IN {literal.texts(ids)}" if ids else "0"]
    if project is not None:
        conditions.append(f"project = {literal.text(project)}")
    return _Facts(engine, " AND ".join(conditions), keys).rows()


class _RunCache:
    """All runs as last read, with values of the metrics that were asked for; only what a later commit changed is read
    again, and of a metric that is asked for the first time only its values.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, None] = {}
        """The metrics whose latest values the rows have, the one that was asked for last at the end."""
        self._commits: dict[int, int] = {}
        """The newest commit of each shard whose runs were looked for."""
        self._behind: dict[int, int] = {}
        """Runs that were read without their newest commit, from a replica that did not have it yet."""
        self._rows: dict[int, RunRow] = {}
        self._saved: Saved | None = None
        """What another hub knew at its end."""
        self._values: dict[str, Raw] = {}
        """Values of metrics that were saved, and not asked for since."""
        self._read: set[int] = set()
        """Runs that were read since: what was saved of them does not count."""

    def rows(self, engine: Engine, keys: Sequence[str]) -> list[RunRow]:
        """All runs, the newest first."""
        with self._lock:
            if self._saved is not None:
                self._bring_back(self._saved)
            if len(self._keys.keys() | set(keys)) > max(_MAX_KEYS, len(keys)):
                self._forget()
            changed = self._changed(engine, _newest_commits(engine))
            present = engine.query(_NUMBERS)["run"]
            if changed or present != list(self._rows):
                self._update(engine, present, changed, keys)
            self._add([key for key in keys if key not in self._keys], engine)
            for key in keys:
                self._keys[key] = self._keys.pop(key)
            return list(self._rows.values())

    def _update(self, engine: Engine, present: Sequence[int], changed: dict[int, int], keys: Sequence[str]) -> None:
        """Read the runs that are new or changed, and leave out those that are gone."""
        wanted = {number for number in present if number not in self._rows or number in changed}
        if wanted:
            if len(wanted) == len(present):
                self._keys |= dict.fromkeys(keys)
            where = f"run IN {literal.integers(wanted)}" if len(wanted) <= _FEW else ""
            facts = _Facts(engine, where, list(self._keys))
            read = {row.number: row for row in facts.rows()}
            self._rows.update(read)
            self._note_read(read)
            self._behind = {run: at for run, at in changed.items() if run in wanted and facts.commit(run) < at}
        self._rows = {number: self._rows[number] for number in present if number in self._rows}
        for run, at in changed.items():
            self._commits[run % engine.shards] = max(at, self._commits.get(run % engine.shards, 0))

    def _add(self, keys: Sequence[str], engine: Engine) -> None:
        """Read the values of metrics that the rows do not have yet."""
        for key in [key for key in keys if key in self._values]:
            for run, latest in values_of(self._values.pop(key)):
                if run in self._rows and run not in self._read:
                    self._rows[run].values[key] = latest
            keys = [each for each in keys if each != key]
            if self._read:
                self._read_values(engine, [key], self._read)
            self._keys[key] = None
        if not keys:
            return
        newest = _newest_commits(engine)
        self._read_values(engine, keys)
        self._keys |= dict.fromkeys(keys)
        for shard, known in self._commits.items():  # what a replica that is behind did not have is read next time
            self._commits[shard] = min(known, newest.get(shard, 0))

    def _read_values(self, engine: Engine, keys: Sequence[str], runs: Collection[int] | None = None) -> None:
        among = "" if runs is None else f" AND run IN {literal.integers(runs)}"
        for run, values in _read_values(engine, f"FROM series WHERE key IN {literal.texts(keys)}{among}").items():
            if run in self._rows:
                self._rows[run].values.update(values)

    def _note_read(self, runs: Iterable[int]) -> None:
        if self._values:
            self._read.update(runs)
            if len(self._read) > _FEW:
                self._values, self._read = {}, set()

    def _forget(self) -> None:
        self._keys, self._commits, self._behind, self._rows = {}, {}, {}, {}
        self._values, self._read = {}, set()

    def _bring_back(self, saved: Saved) -> None:
        self._saved = None
        self._forget()
        self._rows, self._commits = rows_of(saved), dict(saved.commits)
        self._values = {key: Raw.copy(packed) for key, packed in saved.values.items()}

    def take(self, saved: Saved | None) -> None:
        """Begin with the rows that were saved."""
        with self._lock:
            self._saved = saved

    def save(self, engine: Engine, path: Path) -> None:
        """Write what is known for the next hub on the same store, which must not change before it has been closed."""
        if self._rows or self._saved is not None:
            self.rows(engine, ())
        with self._lock:
            if len(self._rows) >= MIN_RUNS and not self._behind:
                saved_runs.save(path, created(engine), self._commits, self._rows, list(self._keys))

    def _changed(self, engine: Engine, newest: dict[int, int]) -> dict[int, int]:
        """The newest commit of each run that has one since the last read; a replica that is behind names fewer."""
        if any(newest.get(shard, 0) < known for shard, known in self._commits.items()):
            self._forget()
        later = [
            f"run % {engine.shards} = {shard} AND commit > {self._commits.get(shard, 0)}"
            for shard, commit in newest.items()
            if commit > self._commits.get(shard, 0)
        ]
        changed = dict(self._behind)
        if later:
            asked = f"SELECT run, max(commit) AS newest FROM ledger WHERE {' OR '.join(later)} GROUP BY run"
            changed |= dict(engine.query(asked).rows("run", "newest"))
        return changed


def take_saved_runs(engine: Engine, path: Path) -> None:
    """Begin with the runs that a hub saved at its end, where nothing was stored since. The file is removed."""
    if path.is_file():
        _cache_of(engine).take(saved_runs.take(path, created(engine), _newest_commits(engine)))


def save_runs(engine: Engine, path: Path) -> None:
    """Write the runs for the next hub on the same store, which must not change before it has been closed."""
    _cache_of(engine).save(engine, path)


def _newest_commits(engine: Engine) -> dict[int, int]:
    """The newest commit of each shard that has any: every shard numbers its own."""
    found = engine.query(f"SELECT run % {engine.shards} AS shard, max(commit) AS newest FROM ledger GROUP BY shard")
    return dict(found.rows("shard", "newest"))


_FEW = 500
"""When more runs than this changed, all are read."""
_MAX_KEYS = 256
"""When more metrics than this were asked for, those of the request at hand are kept."""
_caches: "WeakKeyDictionary[Engine, _RunCache]" = WeakKeyDictionary()
_caches_lock = threading.Lock()


def _cache_of(engine: Engine) -> _RunCache:
    with _caches_lock:
        return _caches.setdefault(engine, _RunCache())


class _Facts:
    """What the tables hold about many runs, by run."""

    def __init__(self, engine: Engine, where: str, keys: Sequence[str]) -> None:
        among = f"run IN (SELECT run FROM runs WHERE {where})" if where else "1"
        wanted = f"FROM series WHERE {among} AND key IN {literal.texts(keys)}"
        # In the reverse of the order in which a commit writes the tables: whoever ended here is known below. Of those
        # that are asked together, the slowest first, so that the others run beside it.
        questions = [_VALUES.format(wanted=wanted)] if keys else []
        questions += [question.format(among=among) for question in (_STANDINGS, _BEGINNINGS, _ENDINGS, _EDITS)]
        *values, progress, beginnings, endings, edits = engine.query_many(questions)
        questions = [_SERIES.format(wanted=wanted)] if keys else []
        *series, writers, self.runs = engine.query_many(
            [*questions, _WRITERS.format(among=among), _RUNS.format(where=where or "1")]
        )
        self._writers, self._progress, self._beginnings = map(_by_run, (writers, progress, beginnings))
        self._endings = _ends(endings)
        self._process_edits, self._settings = _edits(edits)
        self._values = _latest(series[0], values[0], last_remainders(engine, values[0])) if keys else {}

    def commit(self, run: int) -> int:
        """The newest commit of a run that was read."""
        return int(self._progress[run][0]) if run in self._progress else 0

    def rows(self) -> list[RunRow]:
        """All of them, the newest first."""
        return [self._row(*row) for row in self.runs.rows("run", "name", "family", "since")]

    def _row(self, run: int, id: str, project: str, created: int) -> RunRow:
        name, wall, world_size, ranks, hosts, attempts = self._writers.get(run, ("", 0, 1, 0, [], 0))
        _, seen, received, step, began, *amounts = self._progress.get(run, (0, 0, 0, NO_STEP, 0, *(0 for _ in COUNTS)))
        started = earliest(wall, began, seen)
        encoded = self._beginnings.get(run)
        beginning = _configured(encoded, self._settings.get(run, ()))
        recorded, process_edits = _recorded(name, beginning), tuple(self._process_edits.get(run, ()))
        now = apply(recorded, process_edits)
        return RunRow(
            number=run,
            id=id,
            project=project,
            name=now.name or "",
            created=created,
            started=started,
            world_size=world_size,
            ranks=ranks,
            attempts=attempts,
            step=step_of(step),
            rest=Rest(
                Details(
                    hosts=tuple(sorted(hosts)),
                    counts=dict(zip(COUNTS, amounts, strict=True)),
                    beginning=beginning,
                    endings=tuple(self._endings.get(run, ())),
                    recorded=recorded,
                    process_edits=process_edits,
                )
            ),
            seen=seen,
            received=received,
            values=self._values.get(run) or {},
            notes=now.notes,
            tags=now.tags,
            archived=now.archived,
        )


def _configured(encoded: tuple[Any, ...] | None, later: Sequence[tuple[int, Attrs]]) -> Attrs:
    """The attributes of a start; its configuration has what was set after it, and what was set before and not by it."""
    if not encoded or not later:
        return attrs.restore(*encoded[1:]) if encoded else {}
    began, beginning = encoded[0], attrs.restore(*encoded[1:])
    config = beginning.get("config")
    changes = [*later, (began, config if isinstance(config, dict) else {})]
    changes.sort(key=lambda each: each[0])
    return {**beginning, "config": {key: value for _, settings in changes for key, value in settings.items()}}


def _recorded(name: str, beginning: Attrs) -> Description:
    tags = beginning.get("tags")
    return Description(
        name or None, word(beginning, "notes"), read_tags(tags if isinstance(tags, (dict, list, tuple, str)) else None)
    )


_LATEST = ", ".join(f"argMax({name}, commit) AS last_{name}" for name in COUNTS)
_SUMS = ", ".join(f"sum(last_{name}) AS {name}" for name in COUNTS)

_RUNS = """SELECT run, any(id) AS name, any(project) AS family, min(created) AS since
    FROM runs WHERE {where} GROUP BY run ORDER BY since DESC, run DESC"""
_NUMBERS = "SELECT run, min(created) AS since FROM runs GROUP BY run ORDER BY since DESC, run DESC"
_WRITERS = """SELECT run, argMin(name, rank + (name = '') * 4294967296) AS named, minIf(wall_ns, wall_ns > 0) AS wall,
    max(world_size) AS world, toUInt32(uniqExact(rank)) AS ranks, groupUniqArray(host) AS hosts,
    max(attempt) AS attempts FROM writers WHERE {among} GROUP BY run"""
_STANDINGS = f"""SELECT run, max(last_commit) AS newest, max(last_seen) AS seen, max(last_received) AS received,
        max(last_step) AS step, minIf(first_time, first_time > 0) AS began, {_SUMS}
    FROM (SELECT run, writer, max(commit) AS last_commit, max(seen) AS last_seen, max(received) AS last_received,
        max(step) AS last_step, argMax(began, commit) AS first_time, {_LATEST}
        FROM ledger WHERE {{among}} GROUP BY run, writer) GROUP BY run"""
_BEGINNINGS = f"""SELECT run, time, attr_names, attr_values, attr_types FROM lifecycle
    WHERE {{among}} AND main = 1 AND name = {literal.text(names.EVENT_STARTED)}
    ORDER BY run, attempt DESC, rank, time DESC LIMIT 1 BY run"""
_ENDINGS = f"""SELECT run, attempt, status, groupArray(rank) AS ranks, groupArray(time) AS times FROM lifecycle
    WHERE {{among}} AND main = 1 AND name = {literal.text(names.EVENT_FINISHED)}
    GROUP BY run, attempt, status ORDER BY run, attempt, status"""
_EDITS = f"""SELECT run, name, rank, time, attr_names, attr_values, attr_types FROM lifecycle
    WHERE {{among}} AND name IN {literal.texts([names.EVENT_EDITED, names.EVENT_CONFIG])}
    ORDER BY run, time DESC, rank DESC LIMIT 1000 BY run, name"""
_VALUES = f"""SELECT series, attempt, {LAST} AS value, maxMerge(last_step) AS at, maxMerge(last_time) AS latest,
        minMerge(low) AS least, maxMerge(high) AS most
    FROM totals WHERE series IN (SELECT series {{wanted}}) GROUP BY series, attempt"""
_SERIES = "SELECT series, key, rank, unit {wanted}"


def _by_run(answer: Answer) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in answer.rows()}


def _ends(answer: Answer) -> dict[int, list[Ending]]:
    found: dict[int, list[Ending]] = {}
    for run, attempt, status, ranks, times in answer.rows("run", "attempt", "status", "ranks", "times"):
        ended = [Ending(rank, attempt, time, status) for rank, time in sorted(zip(ranks, times, strict=True))]
        found.setdefault(run, []).extend(ended)
    return found


def _edits(answer: Answer) -> tuple[dict[int, list[Edit]], dict[int, list[tuple[int, Attrs]]]]:
    """The edits of each run in order of time, and the settings that changed, each with its time."""
    found: dict[int, list[Edit]] = {}
    settings: dict[int, list[tuple[int, Attrs]]] = {}
    columns = ("run", "name", "rank", "time", "attr_names", "attr_values", "attr_types")
    for run, name, rank, time, *encoded in reversed(list(answer.rows(*columns))):
        if name == names.EVENT_CONFIG:
            settings.setdefault(run, []).append((time, attrs.restore(*encoded)))
            continue
        edits = found.setdefault(run, [])
        event = Event(time, None, None, None, None, 0, names.EVENT_EDITED, attrs.restore(*encoded))
        edit = edit_of(Writer(id=f"r{rank}", run="", project="", rank=rank), event, len(edits))
        if edit is not None:
            edits.append(edit)
    return found, settings


def _read_values(engine: Engine, wanted: str) -> dict[int, dict[str, Latest]]:
    """The last value of each key, by run, of the series that a part of a query names."""
    values = engine.query(_VALUES.format(wanted=wanted))
    series = engine.query(_SERIES.format(wanted=wanted))
    return _latest(series, values, last_remainders(engine, values))


def _latest(catalog: Answer, found: Answer, remainders: Mapping[tuple[int, int], int]) -> dict[int, dict[str, Latest]]:
    """The last value of each key, by run."""
    known = {number: rest for number, *rest in catalog.rows("series", "key", "rank", "unit")}
    folded: dict[int, dict[str, Latest]] = {}
    alone: dict[tuple[int, str], tuple[int, int]] = {}
    """Rank and attempt of the first series of a key: most often it is the only one, and its value the last one."""
    several: dict[tuple[int, str], LastValue] = {}
    columns = ("series", "attempt", "value", "at", "latest", "least", "most")
    for number, attempt, value, step, time, least, most in found.rows(*columns):
        key, rank, unit = known.get(number, ("", 0, ""))
        value, run = exact_number(value, remainders.get((number, attempt), 0)), number >> 32
        values = folded.setdefault(run, {})
        if (first := values.get(key)) is None:
            values[key] = Latest(value, step_of(step), time, 1, unit, least, most)
            alone[run, key] = rank, attempt
            continue
        if (last := several.get((run, key))) is None:
            last = several[run, key] = last_of([(first.value, *alone[run, key], first.step, first.time)])
        last.add(value, rank, attempt, step_of(step), time)
        values[key] = replace(first, low=min(first.low, least), high=max(first.high, most))
    for (run, key), last in several.items():
        if (mean := last.value) is not None:
            summed = folded[run][key]
            folded[run][key] = replace(summed, value=mean, step=last.step, time=last.time, ranks=len(last.by_rank))
    return folded


def read_writers(engine: Engine, run: int) -> list[WriterRow]:
    """List the processes of a run, by attempt and rank."""
    latest = ", ".join(f"argMax({name}, commit) AS {name}" for name in COUNTS)
    progress = engine.query(
        f"""SELECT writer, max(seen) AS seen, max(received) AS received, max(step) AS step,
            argMax(began, commit) AS began, {latest}
        FROM ledger WHERE run = {run} GROUP BY writer"""
    )
    by_writer = {row[0]: row[1:] for row in progress.rows()}
    columns = (
        *("writer", "id", "project", "name", "attempt", "rank", "world_size", "local_rank", "host", "pid", "main"),
        *("wall_ns", "monotonic_ns", "schema", "attr_names", "attr_values", "attr_types"),
    )
    found = engine.query(
        f"""SELECT {", ".join(columns)} FROM writers WHERE run = {run}
        ORDER BY attempt, rank, wall_ns LIMIT 1 BY writer"""
    )
    owner = run_ids(engine, [run]).get(run, "")
    return [_writer_row(owner, row, by_writer) for row in found.rows(*columns)]


def _writer_row(run: str, row: Sequence[Any], progress: Mapping[int, tuple[Any, ...]]) -> WriterRow:
    key, id, project, name, attempt, rank, world, local, host, pid, main, wall, monotonic, schema, *rest = row
    attr_names, attr_values, attr_types = rest
    writer = Writer(
        id=id, run=run, project=project, name=name or None, attempt=attempt, rank=rank, world_size=world,
        local_rank=local, host=host, pid=pid, main=bool(main), wall_ns=wall, monotonic_ns=monotonic,
        schema=schema, resource=attrs.restore(attr_names, attr_values, attr_types),
    )  # fmt: skip
    seen, received, step, began, *amounts = progress.get(key, (0, 0, NO_STEP, 0, *(0 for _ in COUNTS)))
    counts = dict(zip(COUNTS, amounts, strict=True))
    return WriterRow(writer, seen, received, step_of(step), counts, earliest(wall, began, seen))


def earliest(*times: int) -> int:
    """The earliest of some known times; 0 when none is known.

    A writer whose clock was set back has records from before its start.
    """
    return min((time for time in times if time > 0), default=0)


def step_of(stored: int) -> int | None:
    """The step of a row; None when its record had none."""
    return None if stored == NO_STEP else stored


class SeriesRow(Struct, frozen=True):
    """One series: a metric of a run on one rank, with one set of attributes."""

    number: int
    key: str
    axis: str
    rank: int
    type: str
    unit: str
    description: str
    attrs: Attrs
    scope: str = ""
    """The instrumentation scope that measured it."""


class Total(Struct, frozen=True):
    """The totals of a series in one attempt."""

    series: SeriesRow
    attempt: int
    points: int
    flags: int
    first_step: int
    last_step: int
    first_time: int
    last_time: int
    low: float
    high: float
    """Minimum and maximum of the finite values; +Inf and -Inf when there are none."""
    last: float


def span_of(run: int) -> str:
    """The SQL condition for the series of a run, by their numbers."""
    return f"series BETWEEN {run << 32} AND {(run << 32) + 0xFFFFFFFF}"


def find_series(
    engine: Engine, run: int, *, key: str | None = None, keys: Collection[str] = (), rank: int | None = None
) -> dict[int, SeriesRow]:
    """The series of a run by number: of one key, of some keys, or all."""
    conditions = [f"run = {run}"]
    if key is not None:
        conditions.append(f"key = {literal.text(key)}")
    if keys:
        conditions.append(f"key IN {literal.texts(keys)}")
    if rank is not None:
        conditions.append(f"rank = {int(rank)}")
    found = engine.query(
        f"""SELECT series, key, axis, rank, type, unit, description, attr_names, attr_values, attr_types, scope
        FROM series WHERE {" AND ".join(conditions)} ORDER BY series LIMIT 1 BY series"""
    )
    return {
        series: SeriesRow(series, key, axis, rank, type, unit, description, attrs.restore(names, values, types), scope)
        for series, key, axis, rank, type, unit, description, names, values, types, scope in found.rows()
    }


def read_totals(engine: Engine, run: int, catalog: dict[int, SeriesRow]) -> list[Total]:
    """The totals of series, by series and attempt."""
    if not catalog:
        return []
    among = span_of(run)
    if len(catalog) <= 1000:
        among = f"series IN {literal.integers(catalog)}"
    found = engine.query(
        f"""SELECT series, attempt, sumMerge(points) AS n, groupBitOrMerge(flags) AS f,
            minMerge(first_step) AS s0, maxMerge(last_step) AS s1,
            minMerge(first_time) AS t0, maxMerge(last_time) AS t1,
            minMerge(low) AS v0, maxMerge(high) AS v1, {LAST} AS v
        FROM totals WHERE {among} GROUP BY series, attempt ORDER BY series, attempt"""
    )
    return [Total(catalog[series], *rest) for series, *rest in found.rows() if series in catalog]


def last_remainders(engine: Engine, lasts: Answer) -> dict[tuple[int, int], int]:
    """Return by how much last values beyond 2**53 are off the integers that were logged, by series and attempt."""
    values = abs(lasts.array("value"))
    large = set(lasts.array("series")[(values >= EXACT_LIMIT) & (values <= INT64_LIMIT)].tolist())
    if not large:
        return {}
    found = engine.query(
        f"""SELECT series, attempt, argMax(rest, (step, time)) AS last FROM metrics
        WHERE series IN {literal.integers(large)} GROUP BY series, attempt"""
    )
    return {(number, attempt): rest for number, attempt, rest in found.rows("series", "attempt", "last")}
