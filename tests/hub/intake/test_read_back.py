"""Batches are looked up in the store until they are found; tests/hub/cluster has real hubs that pass them on."""

from collections.abc import Sequence

from stepscope.hub.intake import read_back
from stepscope.hub.intake.read_back import ReadBack
from stepscope.hub.intake.store_pump import ReceivedBatch
from stepscope.hub.store.columns import Answer
from stepscope.hub.store.write.ledger import writer_key
from stepscope.model.ports import Batch
from tests.hub.store.contract import writer


class Ledger:
    """An engine whose ledger has the batches 0 to `last` of every writer."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.asked: list[str] = []
        self.settled: Sequence[str] = ()

    def query(self, sql: str) -> Answer:
        """Return the one range of each writer that is asked for."""
        self.asked.append(sql)
        writers = [int(each) for each in sql.partition("IN (")[2].partition(")")[0].split(",")]
        rows = len(writers)
        return Answer({
            "writer": writers,
            "firsts": [[0]] * rows,
            "lasts": [[self.last]] * rows,
        })  # type: ignore[dict-item]  # fmt: skip

    def settle(self, tables: Sequence[str]) -> None:
        """Note what is waited for."""
        self.settled = tables


def noted(engine: Ledger, *batches: Batch, receiver: str = "mlflow", deleted: str = "") -> ReadBack:
    """Batches that left the journal."""
    made = ReadBack(lambda: engine, lambda batch: batch.writer.run == deleted)  # type: ignore[arg-type,return-value]
    made.note(ReceivedBatch(receiver, batch) for batch in batches)
    return made


def test_a_run_is_complete_when_the_ledger_has_all_of_it() -> None:
    """And the replicas that are read have caught up; then nothing is asked any more."""
    ledger = Ledger(last=1)
    found = noted(ledger, *(Batch(writer("a"), seq, []) for seq in range(3)), Batch(writer("b"), 1, []))
    assert (found.is_complete("mlflow", ["a"]), ledger.settled) == (False, ())
    assert found.is_complete("mlflow", ["b"])
    assert "metrics" in ledger.settled
    assert not found.is_complete("mlflow")
    assert found.is_complete("wandb")
    ledger.last = 2
    assert found.is_complete("mlflow")
    asked = len(ledger.asked)
    assert found.is_complete("mlflow")
    assert len(ledger.asked) == asked


def test_what_nobody_reads_back_is_not_noted() -> None:
    """Batches of other receivers, and those of deleted runs, which are never stored."""
    ledger = Ledger(last=-1)
    assert noted(ledger, Batch(writer("a"), 0, []), receiver="otlp_http").is_complete("mlflow")
    assert noted(ledger, Batch(writer("a"), 0, []), deleted="a").is_complete("mlflow")
    assert ledger.asked == []


def test_the_oldest_are_taken_for_stored() -> None:
    """With very many waiting writers, the oldest count as stored."""
    ledger = Ledger(last=-1)
    many = [Batch(writer(f"run{index}"), 0, []) for index in range(read_back.MAX_WRITERS + 1)]
    found = noted(ledger, *many)
    assert found.is_complete("mlflow", ["run0"])
    assert not found.is_complete("mlflow", ["run1"])
    assert str(writer_key(many[1].writer)) in ledger.asked[-1]
