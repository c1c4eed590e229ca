"""Diagnosis without a hub: the journals of a run through the same engine, in the order in which they were written."""

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from stepscope.alerts.alert import findings_json
from stepscope.diagnosis.findings_json import FindingJson
from stepscope.diagnosis.record_order import Written, by_writer
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.hub.alerting.alert_log import read_marks
from stepscope.journal import layout
from stepscope.journal.layout import files_of, process_alive
from stepscope.journal.segments import Tail, find_writer
from stepscope.model.ports import Writer
from stepscope.model.states import WriterFacts, writer_state

READ_BYTES = 64 * 1024
Clock = Callable[[], float]


class _Journal:
    """One writer's journal: records that were read and not diagnosed yet."""

    def __init__(self, folder: Path) -> None:
        self.tail = Tail(folder)
        self._found = find_writer(folder)
        self.waiting: deque[Written] = deque()
        self.seen = 0
        self._latest = 0

    @property
    def writer(self) -> Writer:
        """The writer, as its journal says; until something of that is written, as the folder is named."""
        return self.tail.writer or self._found

    def fill(self) -> bool:
        """Read more records if none are waiting; return whether any are."""
        while not self.waiting:
            batches = self.tail.read(READ_BYTES)
            if not batches:
                return False
            for each in by_writer(batches):
                self._latest = max(self._latest, each.at)
                self.waiting.append(each._replace(at=self._latest))
                self.seen = max(self.seen, each.record.time)
        return True


class JournalDiagnosis:
    """Diagnoses a run from its folder. `advance` reads what is new, and nothing twice."""

    def __init__(self, home: Path, run: str) -> None:
        self._home, self._run = home, run
        self._journals: dict[str, _Journal] = {}
        self._diagnosis = Diagnosis()
        self._at_end = False
        self._marks = read_marks(home / "hub")

    def advance(self, seconds: float = 0.25, clock: Clock = time.monotonic) -> bool:
        """Diagnose for about this long; False when nothing is left for now."""
        for name in layout.list_writers(self._home, self._run):
            if name not in self._journals:
                self._journals[name] = _Journal(layout.writer_folder(self._home, self._run, name))
        deadline = clock() + seconds
        filled = [each for each in self._journals.values() if each.fill()]
        worlds = [each.writer.world_size for each in self._journals.values()]
        self._diagnosis.run.world = max([self._diagnosis.run.world, *worlds])
        while filled:
            first = min(each.writer.attempt for each in filled)
            self._merge([each for each in filled if each.writer.attempt == first])
            filled = [each for each in filled if each.waiting or each.fill()]
            if clock() > deadline:
                break
        self._at_end = not filled
        return not self._at_end

    def _merge(self, journals: list[_Journal]) -> None:
        """Diagnose in the order of writing, until the first journal has no more records read."""
        until = min(each.waiting[-1].at for each in journals)
        some = []
        for journal in journals:
            while journal.waiting and journal.waiting[0].at <= until:
                some.append(journal.waiting.popleft())
        some.sort(key=lambda each: each.at)
        for _, rank, attempt, host, record in some:
            self._diagnosis.feed(rank, record, attempt, host)

    def findings(self) -> list[FindingJson]:
        """The findings so far, as a hub answers them; a process counts as dead only when all it wrote was read."""
        if self._at_end and self._report_dead():
            self._diagnosis.tick(time.time_ns())
        project = next((each.writer.project for each in self._journals.values()), "")
        return findings_json(self._diagnosis.findings(), self._run, project, self._marks)

    def _report_dead(self) -> bool:
        """Report dead processes to the engine; return whether one lives here, so that silence is a hang."""
        mains = [each for each in self._journals.values() if each.tail.writer is not None and each.tail.writer.main]
        newest = max((each.writer.attempt for each in mains), default=1)
        ended, now, living = self._diagnosis.ended, time.time(), False
        for each in mains:
            who = each.writer
            if (who.attempt, who.rank) in ended:
                continue
            changed, alive = files_of(each.tail.folder).changed, process_alive(who)
            living |= alive is True
            facts = WriterFacts(who.attempt, each.seen / 1e9, rank=who.rank, touched=changed, alive=alive)
            if who.attempt < newest or writer_state(facts, now) == "crashed":
                self._diagnosis.died(who.rank, each.seen, who.attempt)
        return living


def diagnose(home: Path, run: str) -> list[FindingJson]:
    """Diagnose all that is written of a run."""
    made = JournalDiagnosis(home, run)
    while made.advance(60.0):
        pass
    return made.findings()
