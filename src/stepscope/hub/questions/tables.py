"""The endpoint that describes the store's tables, for people who write SQL."""

from typing import Any

from stepscope.hub.questions.endpoint import Endpoint, Reader
from stepscope.hub.questions.schemas import INTEGER, TEXT, many, thing
from stepscope.hub.store.maintenance import describe

WORDS = {
    "metrics": "Every value of every step metric, by series.",
    "series": "What a series is: run, key, rank, axis, unit.",
    "totals": "Running totals of each series; read states with sumMerge and the like.",
    "histograms": "Recorded distributions.",
    "exemplars": "Single measurements that were recorded with a point, and their spans.",
    "spans": "Timed operations that ended.",
    "open_spans": "Timed operations when they began.",
    "logs": "Logs (kind 2) and events (kind 3).",
    "alerts": "Alerts.",
    "lifecycle": "How runs began and ended.",
    "traces": "Which runs and steps a trace touches.",
    "writers": "The processes of each run.",
    "runs": "The number of each run, which other tables call run.",
    "ledger": "Which batches of which writer are in.",
}


def tables(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/sql/tables`."""
    return {
        "tables": [
            {
                "name": table.name,
                "text": WORDS.get(table.name, ""),
                "rows": table.rows,
                "bytes": table.bytes,
                "columns": [{"name": name, "type": type} for name, type in table.columns],
            }
            for table in describe(reader.engine)
        ]
    }


ENDPOINTS = (
    Endpoint(
        "/api/sql/tables",
        "listTables",
        "The tables that SQL may read, their columns and their sizes.",
        tables,
        thing(
            tables=many(
                thing(name=TEXT, text=TEXT, rows=INTEGER, bytes=INTEGER, columns=many(thing(name=TEXT, type=TEXT)))
            )
        ),
    ),
)
