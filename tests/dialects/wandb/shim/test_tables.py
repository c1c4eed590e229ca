"""wandb's tables are recorded as samples: those of scripts, of TRL and of verl."""

import pytest

import stepscope.compat.wandb as wandb
from stepscope.model.names import SCOPE_SAMPLES
from stepscope.model.records import Event, Log, Metric
from tests.dialects.wandb.shim.conftest import Read


def rows(read: Read) -> list[tuple[object, int | None, dict[str, object]]]:
    """Table, step and cells of the samples that were recorded."""
    return [(log.body, log.step, log.attrs) for log in read(Log) if log.scope == SCOPE_SAMPLES]


def test_a_table_is_rows_and_numbers_beside_it_are_kept(read: Read) -> None:
    """Each row is recorded at the step of the call."""
    wandb.init(project="p")
    wandb.log({"loss": 1.0, "out": {"table": wandb.Table(columns=["a", "b"], data=[["x", 1], ["y", None]])}}, step=5)
    assert rows(read) == [("out/table", 5, {"a": "x", "b": 1}), ("out/table", 5, {"a": "y", "b": None})]
    assert [metric.values for metric in read(Metric)] == [{"loss": 1.0}]
    assert wandb.run is not None
    assert not wandb.run._run.finish().rejected_keys


def test_a_table_that_grows_is_recorded_once(read: Read) -> None:
    """Of a table that is logged again, the new rows are recorded."""
    wandb.init(project="p")
    table = wandb.Table(columns=["a"])
    for step in range(3):
        table.add_data(step)
        wandb.log({"growing": table}, step=step)
    assert rows(read) == [("growing", step, {"a": step}) for step in range(3)]


def test_completions_of_trl(read: Read) -> None:
    """A frame with a column for the step, which TRL has written as text: each row is at its own step, once."""
    pandas = pytest.importorskip("pandas")
    wandb.init(project="p")
    frame = {"step": [], "prompt": [], "completion": [], "accuracy_reward": [], "advantage": []}
    for step in (10, 20):
        for at in range(2):
            for name, value in zip(frame, (str(step), f"p{at}", f"c{at} of {step}", 0.5, -0.1), strict=True):
                frame[name].append(value)
        wandb.log({"completions": wandb.Table(dataframe=pandas.DataFrame(frame))}, step=step)
    cells = {"accuracy_reward": 0.5, "advantage": -0.1}
    assert rows(read) == [
        ("completions", step, {"prompt": f"p{at}", "completion": f"c{at} of {step}", **cells})
        for step in (10, 20)
        for at in range(2)
    ]


def test_generations_of_verl(read: Read) -> None:
    """One row for each step with numbered columns, in a new table with all earlier rows: samples of each, once."""
    wandb.init(project="p")
    columns = ["step", *(f"{name}_{at}" for at in (1, 2) for name in ("input", "output", "score"))]
    data: list[list[object]] = []
    for step in (5, 10):
        data.append([step, "a", f"b{step}", 1.0, "c", f"d{step}", 0.0])
        wandb.log({"val/generations": wandb.Table(columns=columns, data=data)}, step=step)
    assert rows(read) == [
        ("val/generations", step, cells)
        for step in (5, 10)
        for cells in (
            {"input": "a", "output": f"b{step}", "score": 1.0},
            {"input": "c", "output": f"d{step}", "score": 0.0},
        )
    ]


def test_media_in_a_table_are_recorded_beside_it(read: Read) -> None:
    """The other cells are kept in the row, and media under the key of the table and the column."""
    wandb.init(project="p")
    wandb.log({"t": wandb.Table(columns=["image", "label"], data=[[wandb.Image([[0]]), "cat"]])}, step=0)
    assert rows(read) == [("t", 0, {"image": "<Image>", "label": "cat"})]
    assert wandb.run is not None
    assert wandb.run._run.finish().rejected_keys == {}
    media = [each.attrs for each in read(Event) if each.name == "stepscope.media"]
    assert [(each["key"], each["kind"]) for each in media] == [("t/image", "image")]


def test_too_many_rows_are_counted(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of wandb holds here too."""
    monkeypatch.setattr("stepscope.dialects.wandb.shim.run_interface.MAX_ROWS", 3)
    wandb.init(project="p")
    wandb.log({"t": wandb.Table(columns=["a"], data=[[at] for at in range(5)])}, step=0)
    assert len(rows(read)) == 3
    assert wandb.run is not None
    assert "t" in wandb.run._run.finish().rejected_keys
