"""`stepscope checkpoints`: a table with the metrics at each step, and the best one."""

import json
from pathlib import Path

from tests.cli.journals import event, finished, metric, write
from tests.forked import stepscope


def record(home: Path) -> None:
    """Write the journal of a run with three checkpoints."""
    saved = [
        event("train.checkpoint", id=f"c{step}", path=f"/ckpt/\x1b[31m{step}", step=step, seconds=1.5)
        for step in (1, 2, 3)
    ]
    sized = event("train.checkpoint.measured", id="c2", path="/ckpt/\x1b[31m2", step=2, bytes=2_500_000, files=1)
    losses = [metric(step, loss=loss) for step, loss in ((1, 3.0), (2, 1.0), (3, 2.0))]
    write(home, "one", [event("train.run.started", config={}), *losses, *saved, sized, finished()], name="n")


def test_the_table_and_the_best(tmp_path: Path) -> None:
    """Each checkpoint has a line, the best a mark and the last line; control characters of a path are not printed."""
    record(tmp_path)
    done = stepscope("checkpoints", "one", "--best", "loss", "--home", tmp_path)
    assert done.returncode == 0, done.stderr
    head, *rows, best = done.stdout.splitlines()
    assert head.split() == ["STEP", "SIZE", "TOOK", "trainer/loss", "PATH"]
    assert [row.split()[0] for row in rows] == ["3", "*", "1"]
    assert rows[1].split()[1:5] == ["2", "2.5", "MB", "1.5"]
    assert best.startswith("best trainer/loss: 1 at step 2: /ckpt/")
    assert "\x1b" not in done.stdout
    found = json.loads(stepscope("checkpoints", "--json", "--key", "loss", "--home", tmp_path).stdout)
    assert found["best"]["step"] == 2
    few = stepscope("checkpoints", "one", "--limit", "1", "--home", tmp_path).stdout
    assert "and 2 older ones" in few
    wrong = stepscope("checkpoints", "one", "--best", "lost", "--home", tmp_path)
    assert (wrong.returncode, "did you mean trainer/loss" in wrong.stderr) == (2, True)


def test_a_path_that_is_written_again_has_one_line(tmp_path: Path) -> None:
    """The newest version is listed, and how many were replaced."""
    saved = [event("train.checkpoint", id=f"c{step}", path="/ckpt/last", step=step) for step in range(1, 6)]
    other = event("train.checkpoint", id="other", path="/ckpt/2", step=2)
    write(tmp_path, "one", [event("train.run.started", config={}), *saved, other, finished()])
    _, *rows, more = stepscope("checkpoints", "one", "--home", tmp_path).stdout.splitlines()
    assert [row.split()[-3:] for row in rows if "last" in row] == [["/ckpt/last", "(version", "5)"]]
    assert len(rows) == 2
    assert more.startswith("and 4 that later ones at the same path replaced")


def test_a_run_without_any(tmp_path: Path) -> None:
    """The command says how to record them."""
    write(tmp_path, "one", [event("train.run.started", config={}), finished()])
    assert "run.checkpoint(PATH)" in stepscope("checkpoints", "one", "--home", tmp_path).stdout
