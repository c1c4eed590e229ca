"""With a full, read-only or missing disk training continues, with one warning; kept records are written later."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.model.records import Metric
from tests.forked import stepscope

Read = Callable[..., Any]

# Logs 1,000 records in each of three phases; a file named after a phase lets it begin.
TRAINER = """
    import os, sys, threading, time
    import stepscope

    touched = []
    sys.addaudithook(lambda name, args: name == "builtins.id" or touched.append((threading.get_ident(), name)))

    def reached(phase):
        print(phase, flush=True)
        while not os.path.exists(phase):
            time.sleep(0.005)

    run = stepscope.init(exit_timeout=10)
    me = threading.get_ident()
    for number, phase in enumerate(("healthy", "broken", "mended")):
        reached(phase)
        before = len(touched)
        for index in range(number * 1000, number * 1000 + 1000):
            with run.step(index):
                run.log({"index": index, "filler/" + "x" * 100: 0.5})
        print("I/O in the loop:", [name for who, name in touched[before:] if who == me])
        print(phase, "is safe:", bool(run.flush(3 if phase == "mended" else 0.5)), flush=True)
    reached("end")
"""


def indices(records: Read, home: Path) -> list[int]:
    """The indices that can be read back."""
    found = records(Metric, home=home)
    return [record.values["index"] for record in found if "index" in record.values]


def go_on(program: Any, until: Any, phase: str) -> None:
    """Wait for a phase and let it begin."""
    wait_said(program, until, f"{phase}\n")
    (program.place / phase).touch()


def wait_said(program: Any, until: Any, words: str) -> None:
    """Wait until the program has printed something, or is dead."""
    until(lambda: words in (program.place / "out").read_text() or program.process.poll() is not None)
    assert words in (program.place / "out").read_text(), (program.place / "err").read_text()


def check(program: Any, trouble: int = 1, removed: int = 0) -> None:
    """See that nothing was raised, nothing touched the disk in the loop, and the warnings came once."""
    done = program.wait()
    assert done.returncode == 0, done.stderr
    assert re.findall(r"I/O in the loop: (.*)", done.stdout) == ["[]"] * 3
    assert done.stderr.count("cannot be written") == trouble, done.stderr
    assert done.stderr.count("can be written again") == trouble
    assert len(re.findall(r"the journal in \S+ was removed or changed", done.stderr)) == removed
    assert "Traceback" not in done.stderr


def test_full_and_freed(start: Any, until: Any, records: Read, small_disk: Path) -> None:
    """A disk that fills up and gets room again: all records arrive, once each, in order."""
    home = small_disk / "home"
    trainer = start(TRAINER, env={"STEPSCOPE_HOME": str(home)})
    go_on(trainer, until, "healthy")
    wait_said(trainer, until, "healthy is safe: True")
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(bytes(4 * 1024 * 1024))
    go_on(trainer, until, "broken")
    wait_said(trainer, until, "broken is safe: False")
    filler.unlink()
    go_on(trainer, until, "mended")
    wait_said(trainer, until, "mended is safe: True")
    go_on(trainer, until, "end")
    check(trainer)
    assert indices(records, home) == list(range(3000))


def test_folder_removed(start: Any, until: Any, records: Read, home: Path) -> None:
    """If the folder is deleted during a run, it is created again; only the deleted records are lost."""
    trainer = start(TRAINER)
    go_on(trainer, until, "healthy")
    wait_said(trainer, until, "healthy is safe: True")
    shutil.rmtree(home)
    for phase in ("broken", "mended"):
        go_on(trainer, until, phase)
        wait_said(trainer, until, f"{phase} is safe: True")
    go_on(trainer, until, "end")
    check(trainer, trouble=0, removed=1)
    assert indices(records, home) == list(range(1000, 3000))


def test_home_is_a_file(start: Any, until: Any, records: Read, home: Path) -> None:
    """A home that is a file is warned of once; once it is out of the way everything kept in memory arrives."""
    home.write_text("in the way")
    trainer = start(TRAINER)
    for phase in ("healthy", "broken"):
        go_on(trainer, until, phase)
        wait_said(trainer, until, f"{phase} is safe: False")
    home.unlink()
    until(lambda: indices(records, home) == list(range(2000)))
    go_on(trainer, until, "mended")
    wait_said(trainer, until, "mended is safe: True")
    go_on(trainer, until, "end")
    check(trainer)
    assert indices(records, home) == list(range(3000))


NEVER = """
    import os, sys
    import stepscope

    if sys.argv[2:]:
        os.chdir(sys.argv[2])
        os.setuid(int(sys.argv[3]))
        del os.environ["HOME"], os.environ["STEPSCOPE_HOME"]
    run = stepscope.init(home=sys.argv[1] or None, exit_timeout=2)
    for index in range(1000):
        with run.step(index):
            run.log({"index": index})
    print(run.home)
"""


def test_a_disk_that_can_only_be_read(python: Any, read_only_disk: Path) -> None:
    """On a read-only file system the program ends normally, with one warning and the count of lost records."""
    done = python(NEVER, read_only_disk / "home")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert done.stderr.count("Read-only file system") == 1
    assert re.search(r"2,0\d\d records could not be written before the end", done.stderr)


def test_a_place_that_cannot_be(python: Any) -> None:
    """A home below something that takes no folders is no reason to fail either."""
    done = python(NEVER, "/proc/nowhere/home")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert done.stderr.count("cannot be written") == 1


def test_no_home(python: Any, records: Read) -> None:
    """A user without HOME and without a passwd entry records in the working folder."""
    if os.geteuid() != 0:
        pytest.skip("becoming a user without a home needs root")
    with tempfile.TemporaryDirectory() as work:
        os.chmod(work, 0o777)
        done = python(NEVER, "", work, 54321)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{work}/.stepscope\n", "")
        assert indices(records, Path(work) / ".stepscope") == list(range(1000))


def test_no_working_folder(python: Any, records: Read, home: Path) -> None:
    """A working folder that is gone is not asked for anything."""
    done = python(
        """
    import os
    import stepscope
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    run = stepscope.init()
    run.log({"index": 0})
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert indices(records, home) == [0]


def test_a_question_where_the_store_has_no_room(python: Any, tight_disk: Path) -> None:
    """The store keeps some of a disk free: responses say at once that the newest records are not in it."""
    home = tight_disk / "home"
    source = "import stepscope; run = stepscope.init(run_id='r'); run.log({'a': 1.0}, step=3); run.finish()"
    assert python(source, env={"STEPSCOPE_HOME": str(home)}).returncode == 0
    done = stepscope("step", "latest", "3", "--home", home)
    assert "the newest records are missing from this output: the store's disk has" in done.stderr
    assert "Traceback" not in done.stderr
