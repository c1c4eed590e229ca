"""A program that closes all descriptors, as daemons do, keeps its files to itself, and its run goes on."""

from collections.abc import Callable
from pathlib import Path

from stepscope.model.records import Metric
from tests.conftest import Python

PROGRAM = """
    import os, sys
    import stepscope

    run = stepscope.init(probes=False)
    for step in range(100):
        run.log({"loss": 0.5}, step=step)
    assert run.flush(60)
    os.closerange(3, 4096)
    files = [open(f"{sys.argv[1]}/{number}", "wb", buffering=0) for number in range(30)]
    for step in range(100, 200):
        run.log({"loss": 0.5}, step=step)
    assert run.flush(60)
    assert run.finish(timeout=60)
    for number, file in enumerate(files):
        file.write(b"mine")
"""


def test_no_journal_bytes_in_a_file_of_the_program(
    python: Python, records: Callable[..., list[Metric]], tmp_path: Path
) -> None:
    """Each file has what the program wrote, and the journal has every record, once."""
    place = tmp_path / "files"
    place.mkdir()
    done = python(PROGRAM, place)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.read_bytes() for path in place.iterdir()} == {b"mine"}
    steps = [record.step for record in records(Metric) if "loss" in record.values]
    assert steps == list(range(200))
