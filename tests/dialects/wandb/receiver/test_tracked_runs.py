"""The files that are kept of W&B's runs."""

from pathlib import Path
from typing import Any

import msgspec

from stepscope.dialects.wandb.receiver.tracked_runs import TrackedRun, TrackedRuns


def test_a_deleted_run_leaves_no_files(tmp_path: Path) -> None:
    """The files of a deleted run are removed and counted; those of others, and of a newer run of that id, stay."""
    unused: Any = None
    runs = TrackedRuns(tmp_path, unused, unused)
    kept = {}
    for project, id, run, created in (("p", "a", "a", 5), ("q", "a", "q.a", 5), ("p", "b", "b", 50)):
        folder = runs.make(runs.folder(project, "runs", id, "files"))
        (folder / "model.pt").write_bytes(b"weights")
        about = msgspec.json.encode(TrackedRun(project=project, id=id, run=run, created=created))
        (folder.parent / "run.json").write_bytes(about)
        kept[run] = folder, len(about) + len(b"weights")
    assert runs.find("q", "a") is not None
    assert runs.delete_run("q.a", before=10) == kept["q.a"][1]
    assert runs.find("q", "a") is None
    assert runs.delete_run("b", before=10) == runs.delete_run("../p", before=10) == 0
    assert {run for run, (folder, _) in kept.items() if folder.exists()} == {"a", "b"}
    assert runs.delete_run("a", before=10) == kept["a"][1]
    assert not kept["a"][0].parent.exists()
