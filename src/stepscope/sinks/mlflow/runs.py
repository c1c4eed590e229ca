"""Which MLflow run stands for which run of ours: found by a tag, created once, taken into use."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepscope.model.errors import Retry
from stepscope.model.ports import Writer
from stepscope.sinks.mlflow.server import Experiments, NoAnswer, Refused, Server, retry_of
from stepscope.sinks.mlflow.target import Target
from stepscope.wire import mlflow
from stepscope.wire.mlflow import birth_tags

SETTLE_SECONDS = 3.0
"""After a create without an answer, how long a search has to find nothing before there is another."""
FOLLOW_SECONDS = 20.0
"""How long other hosts leave it to that of rank 0 to create the run."""
MOST_SIBLINGS = 100


@dataclass(slots=True)
class Found:
    """A run as MLflow has it."""

    id: str
    experiment: str
    status: str
    attempt: int
    """The newest attempt it was used for; 0 when it was created and never used."""
    creator: str
    start: int
    params: dict[str, str]
    presumed: bool = False
    """Whether its end is only presumed; then `status` is RUNNING here."""


class Runs:
    """The runs of one server. `find` only looks; `open` creates, and deletes what an interrupted create left."""

    def __init__(
        self,
        server: Server,
        target: Target,
        *,
        clock: Callable[[], float] = time.monotonic,
        host: Callable[[], str] = socket.gethostname,
    ) -> None:
        self._server, self._target, self._clock, self._host = server, target, clock, host()
        self.experiments = Experiments(server, target)
        self._known: dict[str, Found] = {}
        self._asked: dict[str, float] = {}
        """When the run of another rank was first looked for in vain."""
        self._doubts: dict[str, float] = {}
        """When a create was left without an answer."""

    def find(self, writer: Writer) -> Found | None:
        """Find the run of a writer; None when it is not there yet, Retry when nobody can tell."""
        known = self._known.get(writer.run)
        if known is None:
            found = self._search(writer)
            if found:
                known = self._known[writer.run] = found[0]
        return known

    def known(self, writer: Writer) -> Found | None:
        """The run of a writer if it was found before; asks nobody."""
        return self._known.get(writer.run)

    def open(self, writer: Writer, began: int) -> Found:
        """Find the run of a writer, or create it with its begin in milliseconds; Retry says why neither could be."""
        known = self._known.get(writer.run)
        if known is not None:
            return known
        try:
            known = self.settle(writer)
            if known is None:
                self._await_turn(writer)
                self._create(writer, began)
                known = self.settle(writer)  # two may have created it in one moment: both choose the same
        except Refused as error:
            if error.is_absent:
                self.experiments.forget()
            raise Retry(str(error)) from error
        if known is None:
            raise Retry("the run was created, and MLflow does not find it yet")
        self._known[writer.run] = known
        self._doubts.pop(writer.run, None)
        return known

    def settle(self, writer: Writer) -> Found | None:
        """Choose among all runs with the tag of ours; delete those that were created here and never used."""
        found = self._search(writer)
        for other in found[1:]:
            if not other.attempt and other.creator == self._host:
                self._server.post("runs/delete", {"run_id": other.id})
        return found[0] if found else None

    def forget(self, writer: Writer) -> None:
        """Look it up again: it is not there any more."""
        self._known.pop(writer.run, None)

    def _search(self, writer: Writer) -> list[Found]:
        """All runs with the tag, the one to use first: one in use before one that is not, then by age and id."""
        try:
            if self._target.run_id:
                return [_read(self._server.get("runs/get", run_id=self._target.run_id)["run"])]
            query = {
                "experiment_ids": [self.experiments.find(writer.project)],
                "filter": f"tags.\"{mlflow.TAG_RUN}\" = '{mlflow.run_mark(writer.run)}'",
                "max_results": MOST_SIBLINGS,
            }
            found = [_read(each) for each in self._server.post("runs/search", query).get("runs", ())]
        except Refused as error:
            if error.is_absent:
                self.experiments.forget()
            raise retry_of(error) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Retry(f"the answer is not that of an MLflow server: {error!r}") from error
        return sorted(found, key=lambda each: (not each.attempt, each.start, each.id))

    def _await_turn(self, writer: Writer) -> None:
        """Leave the create to the shipper that has rank 0, and give one without an answer time to show."""
        now = self._clock()
        if writer.rank and now - self._asked.setdefault(writer.run, now) < FOLLOW_SECONDS:
            raise Retry(f"the run {writer.run} is not in MLflow yet: it is for rank 0's host to create it", after=2.0)
        if now - self._doubts.get(writer.run, float("-inf")) < SETTLE_SECONDS:
            raise Retry("a create had no answer: waiting whether the run shows", after=1.0)

    def _create(self, writer: Writer, began: int) -> None:
        tags = {**self._target.tags, **birth_tags(writer, self._host)}
        body = {
            "experiment_id": self.experiments.find(writer.project),
            "start_time": began,
            "run_name": writer.name or writer.run,
            "tags": [{"key": mlflow.legal_key(key), "value": str(value)} for key, value in tags.items()],
        }
        try:
            self._server.post("runs/create", body, once=True)
        except NoAnswer:
            self._doubts[writer.run] = self._clock()
            raise


def _read(run: dict[str, Any]) -> Found:
    info, data = run["info"], run.get("data", {})
    tags = {each["key"]: each.get("value", "") for each in data.get("tags", ())}
    attempt = str(tags.get(mlflow.TAG_ATTEMPT, ""))
    presumed = attempt != "" and tags.get(mlflow.TAG_PRESUMED) == attempt
    return Found(
        id=str(info["run_id"]),
        experiment=str(info["experiment_id"]),
        status="RUNNING" if presumed else str(info.get("status", "RUNNING")),
        attempt=int(attempt) if attempt.isdigit() else 0,
        creator=str(tags.get(mlflow.TAG_CREATOR, "")),
        start=int(info.get("start_time", 0)),
        params={each["key"]: each.get("value", "") for each in data.get("params", ())},
        presumed=presumed,
    )
