"""What a process prints is passed on unchanged and recorded, whatever becomes of the process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stepscope.journal import layout, segments
from stepscope.model import names
from stepscope.model.records import Event, Log
from stepscope.sdk.console_process import how_it_ended

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descriptors of Linux")
HEAD = """
import os, signal, subprocess, sys, time
import stepscope
run = stepscope.init(run_id="r", console=True, probes=False, otel=False, quiet=True)
run.flush()
"""


def start(tmp_path: Path, body: str, **options: Any) -> "subprocess.Popen[bytes]":
    """Start a program that records its console."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("STEPSCOPE_")}
    env = {**kept, "STEPSCOPE_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([sys.executable, "-c", HEAD + body], env=env, **given)


def recorded(tmp_path: Path, kind: type, enough: int = 1) -> list[Any]:
    """The records of a kind, waiting for so many: the process that writes them may outlive the program."""
    deadline = time.monotonic() + 120
    while True:
        found: list[Any] = [
            record
            for name in layout.list_writers(tmp_path, "r")
            for batch in segments.read_writer(layout.writer_folder(tmp_path, "r", name))
            for record in batch.records
            if isinstance(record, kind)
        ]
        wanted = [each for each in found if kind is Log or each.name == names.EVENT_EXITED]
        if len(wanted) >= enough or time.monotonic() > deadline:
            return sorted(wanted, key=lambda each: each.time)
        time.sleep(0.05)


def lines(found: list[Log], stream: str) -> list[str]:
    """The lines of one stream."""
    return [each.body for each in found if each.attrs["log.iostream"] == stream]


def test_both_streams_are_passed_on_and_recorded(tmp_path: Path) -> None:
    """Every byte arrives as it was written, also from C code and from a child, and each line is a log record."""
    body = """
print("out of python")
os.write(2, b"straight to \\xff the descriptor\\n")
subprocess.run(["sh", "-c", "echo from a child; echo and its errors >&2"])
run.finish()
print("after the end")
"""
    out, err = start(tmp_path, body).communicate(timeout=300)
    assert out == b"out of python\nfrom a child\nafter the end\n"
    assert err == b"straight to \xff the descriptor\nand its errors\n"
    found = recorded(tmp_path, Log, 4)
    assert lines(found, "stdout") == ["out of python", "from a child"]
    assert lines(found, "stderr") == ["straight to � the descriptor", "and its errors"]
    assert {each.scope for each in found} == {"console.stdout", "console.stderr"}


def test_what_a_killed_process_printed_last_is_recorded(tmp_path: Path) -> None:
    """SIGKILL loses neither the last line nor how the process ended."""
    process = start(tmp_path, 'print("the last words", flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n')
    out, _ = process.communicate(timeout=300)
    assert out == b"the last words\n"
    assert process.returncode == -signal.SIGKILL
    assert "the last words" in lines(recorded(tmp_path, Log), "stdout")
    (end,) = recorded(tmp_path, Event)
    assert end.attrs["pid"] == process.pid
    assert end.attrs.get("signal", "SIGKILL") == "SIGKILL"


@pytest.mark.parametrize(("end", "how"), [("os.kill(0, 9)", {"signal": "SIGKILL"}), ("sys.exit(3)", {"status": 3})])
def test_how_a_process_ended_is_known_after_it_was_reaped(end: str, how: dict[str, Any]) -> None:
    """A launcher that looks at its children at once does not hide the signal or status (Linux 6.15 and later)."""
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 15):
        pytest.skip("a kernel that forgets how a process ended when it is reaped")
    child = subprocess.Popen([sys.executable, "-c", f"import os, sys; {end}"], start_new_session=True)
    handle = os.pidfd_open(child.pid)
    child.wait()
    try:
        assert how_it_ended(child.pid, 0, handle) == {"pid": child.pid, **how}
        assert how_it_ended(child.pid, 0) == {"pid": child.pid}
    finally:
        os.close(handle)


def test_one_destination_keeps_the_order_of_both_streams(tmp_path: Path) -> None:
    """With 2>&1 lines of both streams stay in the order in which they were written."""
    body = 'for i in range(200): os.write(1 + i % 2, b"%d\\n" % i)\nrun.finish()\n'
    out, _ = start(tmp_path, body, stderr=subprocess.STDOUT).communicate(timeout=300)
    assert out.split() == [str(i).encode() for i in range(200)]


def test_a_progress_bar_is_one_line(tmp_path: Path) -> None:
    """Of what was overwritten, the last state is recorded; colours are left out; everything is passed on."""
    body = """
for i in range(101): sys.stderr.write(f"\\r\\x1b[32mtrain {i}%\\x1b[0m"); sys.stderr.flush()
sys.stderr.write("\\ndone\\n")
run.finish()
"""
    _, err = start(tmp_path, body).communicate(timeout=300)
    assert err.count(b"\r") == 101
    assert lines(recorded(tmp_path, Log, 2), "stderr") == ["train 100%", "done"]


def test_printing_goes_on_when_the_other_process_is_killed(tmp_path: Path) -> None:
    """No write fails or blocks for long, and what was printed meanwhile is passed on."""
    body = """
with open(f"/proc/self/task/{os.getpid()}/children") as file: other = int(file.read())
print("before", flush=True)
time.sleep(0.5)
os.kill(other, signal.SIGKILL)
for i in range(2000): print(f"line {i}", "x" * 100, flush=True)
run.finish()
print("end")
"""
    process = start(tmp_path, body)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert out.count(b"line ") == 2000
    assert out.endswith(b"end\n")


def test_a_replaced_program_still_prints(tmp_path: Path) -> None:
    """After exec the new program's output is passed on."""
    out, _ = start(tmp_path, 'os.execvp("sh", ["sh", "-c", "echo replaced"])\n').communicate(timeout=300)
    assert out == b"replaced\n"


def test_forked_children_print(tmp_path: Path) -> None:
    """A child that outlives its parent can print until it ends."""
    body = """
if os.fork() == 0:
    time.sleep(1.0)
    os.write(1, b"late child\\n")
    os._exit(0)
print("parent")
run.finish()
"""
    out, _ = start(tmp_path, body).communicate(timeout=300)
    assert out == b"parent\nlate child\n"


def test_a_file_is_complete_when_the_program_has_ended(tmp_path: Path) -> None:
    """Output redirected to a file is there as soon as the process is gone."""
    with open(tmp_path / "out.txt", "wb") as file:
        process = start(tmp_path, 'for i in range(5000): print("line", i)\n', stdout=file)
        process.communicate(timeout=300)
    assert (tmp_path / "out.txt").read_bytes().count(b"\n") == 5000


def test_a_full_disk_costs_the_program_nothing(tmp_path: Path) -> None:
    """When the destination accepts nothing, printing goes on."""
    with open("/dev/full", "wb") as full:
        process = start(tmp_path, 'print("x" * 100000, flush=True)\nrun.finish()\n', stdout=full)
        assert process.wait(timeout=300) == 0
