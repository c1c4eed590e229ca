"""The tables: columns and sort order of each kind of record, the shard of a row, and upgrades from older versions."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from stepscope.hub.store import columns
from stepscope.hub.store.engine import TABLE_SETTINGS, Engine, EngineError, listed
from stepscope.model.errors import ConfigError, Retry
from stepscope.model.records import FIRST_STEP

# A series is one metric of one run on one rank, with its axis and attributes. Its number holds the run's number in
# the upper half, and the run's number its era (a week) in the upper half of that; partitions are eras. `commit`
# numbers the group a row came with: what a commit left half done is found and taken back by it.

NO_STEP = FIRST_STEP - 1
"""The step of a record that has none."""
ERA = 65536
"""Runs per era; the partition of a run is its number divided by this."""

FACTS = (
    *("metrics", "histograms", "exemplars", "spans", "open_spans", "logs", "samples", "sample_steps", "alerts"),
    "lifecycle",
)
"""Tables whose rows are deleted when their commit did not complete."""
BY_SERIES = ("metrics", "histograms", "exemplars", "totals", "rollups")
BY_RUN = (
    *("spans", "open_spans", "logs", "samples", "sample_steps", "alerts", "lifecycle", "traces", "findings"),
    *("diagnoses", "series", "writers", "runs"),
)
"""Tables that belong to a run, by series number or run number; `runs` last, because it names the others."""
PUBLIC = (*BY_SERIES, *BY_RUN, "ledger")
"""Tables that a user-supplied query may read."""

_ATTRS = """attr_names Array(String) {zip}, attr_values Array(String) {zip}, attr_types String {zip}"""

_SPAN = f"""run UInt32, step Int64 {{delta}}, rank UInt32, attempt UInt16,
    time Int64 {{delta}}, duration Int64 {{fast}},
    trace_id FixedString(16) {{fast}}, span_id FixedString(8) {{fast}}, parent_id FixedString(8) {{fast}},
    name String {{zip}}, axis String {{zip}}, span_kind UInt8, status UInt8, message String {{zip}},
    scope String {{zip}}, {_ATTRS},
    event_times Array(Int64) {{zip}}, event_names Array(String) {{zip}}, event_attrs Array(String) {{zip}},
    link_traces Array(String) {{zip}}, link_spans Array(String) {{zip}}, link_attrs Array(String) {{zip}},
    commit UInt32 {{delta}}"""

_LOG = f"""run UInt32, time Int64 {{delta}}, step Int64 {{delta}}, rank UInt32, attempt UInt16, kind UInt8,
    severity UInt8, name String {{zip}}, body String {{zip}}, body_type String {{zip}},
    trace_id FixedString(16) {{zip}}, span_id FixedString(8) {{zip}},
    axis String {{zip}}, scope String {{zip}}, {_ATTRS}, commit UInt32 {{delta}}"""

_TOTAL = """points UInt64, flags UInt8, first_step Int64, last_step Int64, first_time Int64, last_time Int64,
    low Float64, high Float64, last Float64, at_step Int64, at_time Int64"""

_STATES = """points AggregateFunction(sum, UInt64), flags AggregateFunction(groupBitOr, UInt8),
    first_step AggregateFunction(min, Int64), last_step AggregateFunction(max, Int64),
    first_time AggregateFunction(min, Int64), last_time AggregateFunction(max, Int64),
    low AggregateFunction(min, Float64), high AggregateFunction(max, Float64),
    last_by_step AggregateFunction(argMax, Float64, Int64), last_by_time AggregateFunction(argMax, Float64, Int64),
    step_by_time AggregateFunction(argMax, Int64, Int64)"""

FOLD = """sumState(points) AS points, groupBitOrState(flags) AS flags,
    minState(first_step) AS first_step, maxState(last_step) AS last_step,
    minState(first_time) AS first_time, maxState(last_time) AS last_time,
    minState(low) AS low, maxState(high) AS high,
    argMaxState(last, at_step) AS last_by_step, argMaxState(last, at_time) AS last_by_time,
    argMaxState(at_step, at_time) AS step_by_time"""
"""Turns rows of totals into states that merge."""

LAST = """if(argMaxMerge(step_by_time) = maxMerge(last_step), argMaxMerge(last_by_time), argMaxMerge(last_by_step))"""
"""The value at the highest step, the latest of several (a state of tuples reads 5 times slower)."""

BY_ERA = f"PARTITION BY intDiv(run, {ERA})"
BY_SERIES_ERA = "PARTITION BY bitShiftRight(series, 48)"

FIRST = {
    "runs": """(run UInt32, id String, project String, created Int64)
        ENGINE = ReplacingMergeTree ORDER BY id{settings}""",
    "writers": f"""(run UInt32, writer UInt64, id String, project String, name String, attempt UInt16,
        rank UInt32, world_size UInt32, local_rank UInt32, host String, pid UInt32, main UInt8,
        wall_ns Int64, monotonic_ns Int64, schema UInt16, {_ATTRS})
        ENGINE = ReplacingMergeTree ORDER BY (run, writer){{settings}}""",
    "series": f"""(run UInt32, series UInt64, key String {{zip}}, axis String {{zip}}, rank UInt32,
        type String {{zip}}, unit String {{zip}}, description String {{zip}}, cumulative UInt8, monotonic UInt8,
        scope String {{zip}}, {_ATTRS})
        ENGINE = ReplacingMergeTree ORDER BY (run, series){{settings}}""",
    "metrics": f"""(series UInt64 {{fast}}, step Int64 {{delta}}, time Int64 {{delta}}, attempt UInt16 {{fast}},
        value Float64 {{fast}}, start Int64 {{delta}}, commit UInt32 {{delta}}{{by_commit}})
        ENGINE = MergeTree {BY_SERIES_ERA} ORDER BY (series, step, time){{dense}}""",
    "totals": f"""(series UInt64, attempt UInt16, {_STATES})
        ENGINE = AggregatingMergeTree {BY_SERIES_ERA} ORDER BY (series, attempt){{settings}}""",
    "totals_in": f"""(series UInt64, attempt UInt16, {_TOTAL}) ENGINE = Null""",
    "histograms": f"""(series UInt64, step Int64 {{delta}}, time Int64 {{delta}}, attempt UInt16, start Int64,
        kind UInt8, given UInt8, count UInt64, total Float64, low Float64, high Float64,
        bounds Array(Float64) {{zip}}, counts Array(UInt64) {{zip}}, scale Int32, zeros UInt64,
        zero_threshold Float64, positive_offset Int32, negative_offset Int32, negative Array(UInt64) {{zip}},
        commit UInt32 {{delta}})
        ENGINE = MergeTree {BY_SERIES_ERA} ORDER BY (series, step, time){{settings}}""",
    "spans": f"""({_SPAN}) ENGINE = MergeTree {BY_ERA} ORDER BY (run, step, rank, time){{settings}}""",
    "open_spans": f"""({_SPAN}) ENGINE = MergeTree {BY_ERA} ORDER BY (run, step, rank, time){{settings}}""",
    "logs": f"""({_LOG}) ENGINE = MergeTree {BY_ERA} ORDER BY (run, time){{settings}}""",
    "alerts": f"""({_LOG}) ENGINE = MergeTree {BY_ERA} ORDER BY (run, time){{settings}}""",
    "lifecycle": f"""(run UInt32, writer UInt64, rank UInt32, attempt UInt16, main UInt8, time Int64, name String,
        status String, {_ATTRS}, commit UInt32)
        ENGINE = MergeTree {BY_ERA} ORDER BY (run, time){{settings}}""",
    "traces": f"""(trace_id FixedString(16) {{fast}}, run UInt32, step Int64 {{delta}})
        ENGINE = ReplacingMergeTree {BY_ERA} ORDER BY (trace_id, run, step){{settings}}""",
    "ledger": """(writer UInt64, first UInt64, last UInt64, commit UInt32, run UInt32, seen Int64, received Int64,
        step Int64, points UInt64, spans UInt64, logs UInt64, events UInt64, alerts UInt64, rejected UInt64)
        ENGINE = ReplacingMergeTree(commit) ORDER BY (writer, first){settings}""",
}
"""The tables of schema version 1 in ClickHouse's SQL; braces are filled with what old servers lack."""

FIRST_VIEW = f"""CREATE MATERIALIZED VIEW IF NOT EXISTS totals_view TO totals AS
    SELECT series, attempt, {FOLD} FROM totals_in GROUP BY series, attempt"""

SECOND = {
    "exemplars": f"""(series UInt64, step Int64 {{delta}}, time Int64 {{delta}}, attempt UInt16, value Float64,
        trace_id FixedString(16), span_id FixedString(8), {_ATTRS}, commit UInt32 {{delta}})
        ENGINE = MergeTree {BY_SERIES_ERA} ORDER BY (series, time){{settings}}""",
}
"""What schema version 2 adds."""

_RECORDED_BY = {"writer": "UInt64 DEFAULT 0", "flags": "UInt32 DEFAULT 0"}
_OBSERVED = {**_RECORDED_BY, "observed": "Int64 DEFAULT 0"}
_REST = {"rest": "Int16 DEFAULT 0"}

FOURTH = {
    **dict.fromkeys(("spans", "open_spans"), _RECORDED_BY),
    **dict.fromkeys(("logs", "alerts"), _OBSERVED),
    **dict.fromkeys(("metrics", "exemplars"), _REST),
}
"""The columns that schema version 4 adds; a writer of 0 is not known, and a `rest` is what `value` is off."""

THIRD = {"ledger": {"began": "Int64 DEFAULT 0"}}
"""The columns that schema version 3 adds: the time of a writer's first record; 0 where it was stored before."""

FIFTH = {
    "findings": f"""(run UInt32, place UInt32, version Int64, id UInt64, kind String, severity String,
        text String {{zip}}, step Int64, last Int64, ranks Array(UInt32), key String {{zip}},
        also Array(String) {{zip}}, span String {{zip}}, given UInt8, value Float64, low Float64, high Float64,
        cause String {{zip}}, advice String {{zip}}, symptoms Array(String) {{zip}}, time Int64, attempt UInt16,
        weight Float64)
        ENGINE = ReplacingMergeTree(version) {BY_ERA} ORDER BY (run, place){{settings}}""",
    "diagnoses": f"""(run UInt32, version Int64, engine UInt32, commit UInt32, found UInt32, worst String)
        ENGINE = ReplacingMergeTree(version) {BY_ERA} ORDER BY run{{settings}}""",
}
"""What schema version 5 adds: the findings of each run in order, and how far it is diagnosed.

Findings whose `place` is not below `found` are of an older version. `commit` is the last one that was diagnosed, 0
while records are diagnosed as they arrive.
"""

SIXTH = {"findings": {"expects": "String DEFAULT ''"}}
"""The column that schema version 6 adds: what a finding expected, in words, where that is not a band."""

SEVENTH = {
    "rollups": f"""(series UInt64, level UInt8, at Int64 {{delta}}, attempt UInt16, upto UInt32 {{delta}},
        points UInt64 {{delta}}, good UInt64 {{delta}}, flags UInt8, first_step Int64 {{delta}},
        last_step Int64 {{delta}}, low Float64 {{fast}}, high Float64 {{fast}}, total Float64 {{fast}},
        last Float64 {{fast}}, last_time Int64 {{delta}})
        ENGINE = ReplacingMergeTree(upto) {BY_SERIES_ERA} ORDER BY (series, level, at, attempt){{settings}}""",
}
"""What schema version 7 adds: cells of steps of long series, computed from points (see `rollups`)."""

EIGHTH = {
    "samples": f"""(run UInt32, name String {{zip}}, step Int64 {{delta}}, rank UInt32, attempt UInt16,
        time Int64 {{delta}}, axis String {{zip}}, prompt UInt64 {{fast}}, trace_id FixedString(16) {{zip}},
        span_id FixedString(8) {{zip}}, writer UInt64, {_ATTRS}, commit UInt32 {{delta}})
        ENGINE = MergeTree {BY_ERA} ORDER BY (run, name, step, rank, time){{long}}""",
}
"""What schema version 8 adds: rows of tables of samples; the attributes are their columns, `prompt` is a hash."""

NINTH = {
    "sample_steps": f"""(run UInt32, name String {{zip}}, step Int64 {{delta}}, row_count UInt32 {{fast}},
        commit UInt32 {{delta}})
        ENGINE = ReplacingMergeTree {BY_ERA} ORDER BY (run, name, step, commit){{settings}}""",
}
"""What schema version 9 adds: how many samples of a table each commit has at a step.

The steps of a table are found here, among as many rows as there are steps. Repeated rows are equal.
"""
_INDEX = "INDEX by_commit commit TYPE minmax GRANULARITY 4"
"""Finds the points that came after a commit."""


TABLES = {**FIRST, **SECOND, **FIFTH, **SEVENTH, **EIGHTH, **NINTH}
"""All tables of the newest version."""
Upgrade = Callable[[Engine], None]

_SAFE = listed(TABLE_SETTINGS)
_WORDS = {
    "delta": "CODEC(Delta, LZ4)",
    "fast": "CODEC(LZ4)",
    "zip": "CODEC(ZSTD(1))",
    "by_commit": f", {_INDEX}",
    "settings": f" SETTINGS {_SAFE}",
    "dense": f" SETTINGS {_SAFE}, index_granularity = 2048, min_compress_block_size = 16384",
    "long": f" SETTINGS {_SAFE}, index_granularity = 256",
}
"""`dense` lets one step of many series be read without unpacking its neighbours, `long` one step of long texts."""


def create(engine: Engine, name: str, definition: str) -> None:
    """Create a table if it is missing, with the codecs and settings that this engine supports.

    It has the columns that later versions add: a new store needs no ALTER, which on a cluster takes many statements.
    """
    words = _WORDS if engine.modern else dict.fromkeys(_WORDS, "")
    later = {**THIRD.get(name, {}), **FOURTH.get(name, {}), **SIXTH.get(name, {})}
    if later:
        added = "".join(f", {column} {type}" for column, type in later.items())
        definition = re.sub(r"\)\s+ENGINE", f"{added}) ENGINE", definition, count=1)
    engine.execute(f"CREATE TABLE IF NOT EXISTS {name} {definition.format(**words)}")


def create_all(definitions: Mapping[str, str], engine: Engine) -> None:
    """Create the tables that are missing."""
    for name, definition in definitions.items():
        create(engine, name, definition)


def first(engine: Engine) -> None:
    """Create the tables of version 1."""
    create_all(FIRST, engine)
    engine.execute(FIRST_VIEW)


def seventh(engine: Engine) -> None:
    """Add the table that is new in version 7, and the index of the points that were there before."""
    create_all(SEVENTH, engine)
    if engine.modern and _present(engine):
        engine.execute(f"ALTER TABLE metrics ADD {_INDEX.replace('INDEX', 'INDEX IF NOT EXISTS')}")
        engine.execute("ALTER TABLE metrics MATERIALIZE INDEX by_commit")


def ninth(engine: Engine) -> None:
    """Add the table that is new in version 9, and the steps of the samples that were there before."""
    create_all(NINTH, engine)
    for index in range(engine.shards):
        tables = engine.shard(index)
        if tables.query("SELECT count() AS held FROM samples").one("held"):
            tables.execute(f"{LIST_SAMPLES} {BY_STEP}")


LIST_SAMPLES = """INSERT INTO sample_steps (run, name, step, row_count, commit)
    SELECT run, name, step, toUInt32(count()) AS row_count, commit FROM samples"""
BY_STEP = "GROUP BY run, name, step, commit"


def add_columns(columns: Mapping[str, Mapping[str, str]], engine: Engine) -> None:
    """Add the columns that tables lack."""
    found = engine.query("SELECT table, name FROM system.columns WHERE database = currentDatabase()")
    present = set(zip(found["table"], found["name"], strict=True))
    for table, added in columns.items():
        absent = [f"ADD COLUMN {name} {type}" for name, type in added.items() if (table, name) not in present]
        if absent:
            engine.execute(f"ALTER TABLE {table} {', '.join(absent)}")


UPGRADES: Mapping[int, Upgrade] = {
    1: first,
    2: partial(create_all, SECOND),
    3: partial(add_columns, THIRD),
    4: partial(add_columns, FOURTH),
    5: partial(create_all, FIFTH),
    6: partial(add_columns, SIXTH),
    7: seventh,
    8: partial(create_all, EIGHTH),
    9: ninth,
}
"""The upgrade to each version from the one before; each may be repeated after a crash."""


def prepare(engine: Engine, upgrades: Mapping[int, Upgrade] = UPGRADES) -> int:
    """Upgrade the tables to the newest version and return it; ConfigError when they are newer than this program."""
    create(engine, "versions", "(version UInt32, time Int64) ENGINE = MergeTree ORDER BY version{settings}")
    newest = max(upgrades)
    present = _present(engine)
    if present > newest:
        raise ConfigError(
            f"the store has schema {present} and this Stepscope knows {newest}: upgrade Stepscope, "
            "or choose another folder with --home"
        )
    reached = []
    for version in range(present + 1, newest + 1):
        upgrades[version](engine)
        reached.append((version, time.time_ns()))
    _note(engine, range(engine.shards), reached)
    return newest


def created(engine: Engine) -> int:
    """When the first tables were created, in ns."""
    return min(moment for _, moment in _versions(engine))


def _present(engine: Engine) -> int:
    """The version of the tables; 0 when there are none."""
    return max((version for version, _ in _versions(engine)), default=0)


def _versions(engine: Engine) -> list[tuple[int, int]]:
    """The versions of the tables and their times: every shard has them, so that one is enough when others are down.

    A shard that lacks them gets them. EngineError when no shard knows them and one does not answer.
    """
    found: dict[int, list[tuple[int, int]]] = {}
    errors: list[EngineError] = []
    for index in range(engine.shards):
        try:
            rows = engine.shard(index).query("SELECT DISTINCT version, time FROM versions").rows("version", "time")
            found[index] = list(rows)
        except EngineError as error:
            errors.append(error)
    known = max(found.values(), key=len, default=[])
    if errors and not known:
        raise errors[0]
    if not errors:
        _note(engine, [index for index, rows in found.items() if not rows], known)
    return known


def _note(engine: Engine, shards: Iterable[int], rows: Sequence[tuple[int, int]]) -> None:
    """Note versions of the tables, each with the time at which it was reached, on some shards."""
    for index in shards if rows else ():
        versions = columns.numbers("UInt32", [version for version, _ in rows])
        times = columns.numbers("Int64", [moment for _, moment in rows])
        engine.shard(index).insert("versions", {"version": versions, "time": times})


COPIED_TABLE = "SELECT count() AS held FROM system.tables WHERE database = currentDatabase() AND name = 'migrations'"
"""Whether the store is a copy of another one."""


class ShardUnavailable(Retry):
    """A batch was not accepted because its shard takes nothing at present; others may."""

    def __init__(self, reason: str, shard: int, after: float = 5.0) -> None:
        super().__init__(reason, after)
        self.shard = shard
