"""The SQLite file of experiments, runs, params, tags, models and traces, which clients read back exactly as sent."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from stepscope.model.errors import ConfigError, Retry

_TABLES = """
CREATE TABLE experiments (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, artifacts TEXT NOT NULL,
    stage TEXT NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, project TEXT);
CREATE TABLE experiment_tags (experiment INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (experiment, key)) WITHOUT ROWID;
CREATE TABLE runs (number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, experiment INTEGER NOT NULL,
    name TEXT NOT NULL, user_id TEXT NOT NULL, status TEXT NOT NULL, start_time INTEGER, end_time INTEGER,
    stage TEXT NOT NULL, artifact_uri TEXT NOT NULL, project TEXT NOT NULL, attempt INTEGER NOT NULL);
CREATE INDEX runs_of_experiment ON runs (experiment, start_time);
CREATE TABLE params (run INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (run, key)) WITHOUT ROWID;
CREATE TABLE tags (run INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (run, key)) WITHOUT ROWID;
CREATE TABLE latest (run INTEGER NOT NULL, key TEXT NOT NULL, value REAL, timestamp INTEGER NOT NULL,
    step INTEGER NOT NULL, PRIMARY KEY (run, key)) WITHOUT ROWID;
CREATE TABLE datasets (run INTEGER NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, context TEXT,
    input TEXT NOT NULL, PRIMARY KEY (run, name, digest)) WITHOUT ROWID;
CREATE TABLE models (model_id TEXT PRIMARY KEY, experiment INTEGER NOT NULL, name TEXT NOT NULL,
    artifact_uri TEXT NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, model_type TEXT NOT NULL,
    status TEXT NOT NULL, stage TEXT NOT NULL, source_run TEXT NOT NULL, project TEXT NOT NULL);
CREATE TABLE model_params (model TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (model, key)) WITHOUT ROWID;
CREATE TABLE model_tags (model TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (model, key)) WITHOUT ROWID;
CREATE TABLE model_metrics (model TEXT NOT NULL, run TEXT NOT NULL, key TEXT NOT NULL, value REAL,
    timestamp INTEGER NOT NULL, step INTEGER NOT NULL, dataset TEXT NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (model, key, run, dataset, digest)) WITHOUT ROWID;
CREATE TABLE model_links (run INTEGER NOT NULL, kind TEXT NOT NULL, model TEXT NOT NULL, step INTEGER);
CREATE INDEX links_of_run ON model_links (run);
"""
_ORDERED_DATASETS = """
CREATE TABLE ordered (run INTEGER NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, context TEXT,
    input TEXT NOT NULL, PRIMARY KEY (run, name, digest));
INSERT INTO ordered SELECT run, name, digest, context, input FROM datasets;
DROP TABLE datasets;
ALTER TABLE ordered RENAME TO datasets;
"""
_REGISTRY = """
CREATE TABLE registered_models (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created INTEGER NOT NULL,
    updated INTEGER NOT NULL, description TEXT NOT NULL, project TEXT);
CREATE TABLE registered_tags (model INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (model, key)) WITHOUT ROWID;
CREATE TABLE registered_aliases (model INTEGER NOT NULL, alias TEXT NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (model, alias)) WITHOUT ROWID;
CREATE TABLE model_versions (model INTEGER NOT NULL, version INTEGER NOT NULL, created INTEGER NOT NULL,
    updated INTEGER NOT NULL, description TEXT, stage TEXT NOT NULL, source TEXT NOT NULL, location TEXT NOT NULL,
    run_id TEXT, run_link TEXT, PRIMARY KEY (model, version)) WITHOUT ROWID;
CREATE TABLE version_tags (model INTEGER NOT NULL, version INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (model, version, key)) WITHOUT ROWID;
"""
_TRACES = """
CREATE TABLE traces (trace_id TEXT PRIMARY KEY, experiment INTEGER NOT NULL, project TEXT NOT NULL,
    run_id TEXT NOT NULL, timestamp INTEGER NOT NULL, duration INTEGER, status TEXT NOT NULL,
    client_id TEXT, info TEXT NOT NULL);
CREATE INDEX traces_of_experiment ON traces (experiment, timestamp);
CREATE INDEX traces_of_run ON traces (run_id);
CREATE TABLE trace_tags (trace TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (trace, key)) WITHOUT ROWID;
CREATE TABLE trace_metadata (trace TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (trace, key)) WITHOUT ROWID;
CREATE TABLE trace_runs (trace TEXT NOT NULL, run_id TEXT NOT NULL, PRIMARY KEY (trace, run_id)) WITHOUT ROWID;
"""
_ARTIFACT_TOKENS = "CREATE TABLE artifact_tokens (path TEXT PRIMARY KEY, token TEXT NOT NULL) WITHOUT ROWID;"
_VERSIONS = (_TABLES, _ORDERED_DATASETS, _REGISTRY, _TRACES, _ARTIFACT_TOKENS)
"""What leads from each version to the next one."""
VERSION = len(_VERSIONS)
# A NULL value is NaN, which SQLite cannot store. `latest` duplicates data of the store so that searches read one file,
# and so that clients can read their own writes.


class TrackingDatabase:
    """The open database. Safe to use from any thread; writes are serialized."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = path
        self._lock = threading.Lock()
        self._unused: list[sqlite3.Connection] = []
        """Idle connections: as many as there were concurrent readers, not bound to threads."""
        self._writer = self._open()
        self._writer.execute("PRAGMA journal_mode = WAL")
        self._writer.execute("PRAGMA synchronous = FULL")
        self._prepare()

    def _open(self) -> sqlite3.Connection:
        made = sqlite3.connect(self._path, timeout=10.0, isolation_level=None, check_same_thread=False)
        made.execute("PRAGMA case_sensitive_like = ON")
        return made

    def _prepare(self) -> None:
        version = self._writer.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise ConfigError(
                f"{self._path} has version {version}, newer than the supported {VERSION}: upgrade Stepscope"
            )
        for number, statements in enumerate(_VERSIONS[version:], version + 1):
            self._writer.executescript(f"BEGIN;{statements}PRAGMA user_version = {number};COMMIT;")

    @contextlib.contextmanager
    def write(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Open a transaction, committed to disk when the context ends without an error.

        Without `durable` it survives a crash of the process but not of the machine. Retry when the write fails.
        """
        with self._lock:
            try:
                self._writer.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException as error:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError):
                    raise Retry(f"the hub cannot write {self._path.name}: {error}", after=5.0) from error
                raise

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Open a read transaction on a connection of its own; Retry when that fails."""
        made: sqlite3.Connection | None = None
        try:
            try:
                made = self._unused.pop()
            except IndexError:
                made = self._open()
            made.execute("BEGIN")
            yield made
        except sqlite3.Error as error:
            raise Retry(f"the hub cannot read {self._path.name}: {error}", after=5.0) from error
        finally:
            if made is not None:
                self._put_back(made)

    def _put_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self._unused.append(connection)
        except sqlite3.Error:
            connection.close()

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            for connection in (self._writer, *self._unused):
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
