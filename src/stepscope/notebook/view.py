"""A view of one or more runs as one document: their states, findings, and charts of the leading metrics."""

from collections.abc import Sequence
from typing import Any

from stepscope.hub.client import HubError
from stepscope.journal.key_summary import leading
from stepscope.notebook.shown_runs import Source

MAX_RUNS = 8
MAX_CHARTS = 12
ENDED = frozenset(("finished", "failed", "crashed", "preempted", "killed"))


class View:
    """What a cell shows of runs; `read` reads it anew. Never raises: what cannot be read is named in `note`."""

    def __init__(self, sources: Sequence[Source], metrics: Sequence[str] = ()) -> None:
        self._sources, self._metrics = sources, list(metrics)
        self.last: dict[str, Any] = {"runs": [], "charts": [], "findings": [], "more": 0, "note": ""}
        """What was read last."""

    @property
    def ended(self) -> bool:
        """Whether every run has ended, as far as is known."""
        return all(run["status"] in ENDED for run in self.last["runs"])

    def read(self, seconds: float) -> dict[str, Any]:
        """Read the runs, for about so long each; what the hub does not answer stays as it was."""
        try:
            for source in self._sources:
                source.advance(seconds)
            self.last = self._read()
        except HubError as problem:
            self.last = {**self.last, "note": str(problem)}
        except Exception as error:  # the thread that follows must not end, and a cell has to show something
            self.last = {**self.last, "note": f"the runs cannot be read: {type(error).__name__}: {error}"}
        return self.last

    def _read(self) -> dict[str, Any]:
        known = [source.keys() for source in self._sources]
        units: dict[str, str] = {}
        for keys in known:
            units |= keys
        own = [key for key in units if not key.startswith(("stepscope/", "system/"))]
        chosen = [key for key in self._metrics if key in units] if self._metrics else leading(own, MAX_CHARTS)
        wanted = [[key for key in chosen if key in keys] for keys in known]
        found = [source.lines(keys) if keys else {} for source, keys in zip(self._sources, wanted, strict=True)]
        return {
            "runs": [source.about() for source in self._sources],
            "charts": [
                {
                    "key": key,
                    "unit": units[key],
                    "lines": [{"run": at, **_drawn(lines[key])} for at, lines in enumerate(found) if key in lines],
                }
                for key in chosen
            ],
            "findings": [{"run": at, **each} for at, source in enumerate(self._sources) for each in source.findings()],
            "more": 0 if self._metrics else len(own) - len(chosen),
            "note": "",
        }


def _drawn(line: dict[str, Any]) -> dict[str, Any]:
    return {name: line[name] for name in ("shape", "columns", "total", "aligned")}
