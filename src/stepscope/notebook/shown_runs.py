"""Where a view in a notebook has a run from: the hub that has its home open, else its journals."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stepscope.hub.client import HttpClient, HubError, open_http_client
from stepscope.journal.key_trend import KeyTrend
from stepscope.journal.layout import address_of
from stepscope.journal.watched import Watched
from stepscope.model import names
from stepscope.model.records import Alert

POINTS = 200
"""Marks of a line, or up to twice as many."""
MAX_FINDINGS = 20
_FIELDS = {"min": "low", "max": "high", "mean": "mean"}


class HubRun:
    """A run of a hub, asked over its API with the token of the environment."""

    def __init__(self, client: HttpClient, address: str, run: str) -> None:
        self._client, self._run = client, run
        self._page = f"{address}/#/run/{quote(run, safe='')}"

    def advance(self, seconds: float) -> None:
        """Nothing: the hub reads."""

    def about(self) -> dict[str, Any]:
        """Its row in the table of runs."""
        row = self._client.get("/api/runs/{run}", run=self._run)
        return {name: row[name] for name in ("id", "name", "project", "status", "step")} | {"url": self._page}

    def keys(self) -> dict[str, str]:
        """Its metrics that have steps."""
        rows = self._client.get("/api/runs/{run}/keys", run=self._run)["keys"]
        return {row["key"]: row["unit"] or "" for row in rows if row["first_step"] is not None}

    def lines(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Lines of metrics, over all ranks."""
        found = self._client.get("/api/runs/{run}/series", run=self._run, key=list(keys), points=POINTS)["series"]
        return {line["key"]: line for line in found}

    def findings(self) -> list[dict[str, Any]]:
        """What the hub's diagnosis found and nobody muted."""
        found = self._client.get("/api/runs/{run}/findings", run=self._run)["findings"]
        shown = [each for each in found if not each["muted"]]
        return [{name: each[name] for name in ("severity", "text", "step")} for each in shown[:MAX_FINDINGS]]


class JournalRun:
    """A run as its journals have it, read on as they grow."""

    def __init__(self, home: Path, run: str) -> None:
        self._watched = Watched(home, run)

    def advance(self, seconds: float) -> None:
        """Read what was written since."""
        self._watched.read(seconds)

    def about(self) -> dict[str, Any]:
        """What its records and its processes say."""
        found, status = self._watched.summary, self._watched.status()
        facts = {"name": found.described.name, "project": found.project, "step": found.last_step}
        return {"id": found.run, **facts, "status": status, "url": None}

    def keys(self) -> dict[str, str]:
        """Its metrics; journals have no units of them."""
        return dict.fromkeys(self._watched.keys, "")

    def lines(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Lines of metrics."""
        known = self._watched.keys
        return {key: _line(known[key]) for key in keys if key in known}

    def findings(self) -> list[dict[str, Any]]:
        """What the diagnosis in the trainer recorded, and alerts of the training code."""
        found = [each for _, each in self._watched.alerts.last(MAX_FINDINGS) if isinstance(each, Alert)]
        return [
            {"severity": names.severity_word(each.severity), "text": each.message or each.name, "step": each.step}
            for each in found
        ]


def _line(trend: KeyTrend) -> dict[str, Any]:
    """A metric as the hub's `series` answers it."""
    parts = [part for _, part in sorted(trend.drawn().items())]
    columns = {
        "x": [each.first for each in parts],
        "x_last": [each.last for each in parts],
        **{name: [getattr(each, own) if each.good else None for each in parts] for name, own in _FIELDS.items()},
        "count": [each.good + each.bad for each in parts],
        "flags": [each.flags for each in parts],
    }
    return {"shape": "buckets", "columns": columns, "total": trend.count, "aligned": False}


Source = HubRun | JournalRun
"""A run, as a view asks for it. HubError when it cannot be read now."""


def open_source(home: Path, run: str) -> Source:
    """Open a run: at the hub that has its home open, if it knows the run, else in the journals."""
    client, address = open_http_client(home, timeout=10.0), address_of(home)
    if client is not None and address is not None:
        made = HubRun(client, address, run)
        try:
            made.about()
            return made
        except HubError:  # no token, or the run is not there yet
            pass
    return JournalRun(home, run)
