"""Which run of a hub is meant."""

from pathlib import Path
from typing import Any

import pytest

from stepscope.hub import meant
from stepscope.hub.door import Refusing
from stepscope.journal.meant import PROBES, UnknownRun


class Few:
    """A door to a hub that lists the newest of its runs only."""

    trouble = ""
    runs = (PROBES, "new", "newer", "old")

    def get(self, path: str, **params: Any) -> Any:
        """The newest runs, or one."""
        if "run" not in params:
            return {"runs": [{"id": id, "name": id.upper()} for id in self.runs[: params["limit"]]]}
        if params["run"] not in self.runs:
            raise Refusing("no such run")
        return {"id": params["run"]}

    def post(self, path: str, body: Any) -> Any:
        """Nothing is asked so."""

    def copy(self, out: Any, path: str, **params: Any) -> int:
        """Nothing is asked so."""
        return 0


def test_a_run_is_found_by_id_beginning_name_or_as_the_latest() -> None:
    """As among journals; probes of the doctor are nobody's latest run."""
    found = {text: meant.find(Few(), Path("home"), text) for text in ("latest", "new", "newe", "OLD")}
    assert found == {"latest": "new", "new": "new", "newe": "newer", "OLD": "old"}
    with pytest.raises(UnknownRun, match="no run 'x'"):
        meant.find(Few(), Path("home"), "x")


def test_a_run_too_old_to_be_listed_is_found_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many runs a hub has, an id is an id."""
    monkeypatch.setattr(meant, "MOST", 3)
    assert meant.find(Few(), Path("home"), "old") == "old"
    assert meant.find(Few(), Path("home"), "latest") == "new"
    with pytest.raises(UnknownRun, match="no run 'OLD'"):
        meant.find(Few(), Path("home"), "OLD")
