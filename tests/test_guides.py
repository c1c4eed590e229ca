"""The guides run: every snippet and every command of `docs/start.md`, `docs/cheatsheet.md` and `docs/how`, in order."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import left_over
from tests.forked import NORMAL, ForkedHub, run
from tests.imports.clients import PYTHON
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]
HOW = ROOT / "docs" / "how"
PAGES = [ROOT / "docs" / "start.md", ROOT / "docs" / "cheatsheet.md", *sorted(HOW.glob("*.md"))]
RUN = [page for page in PAGES if page.name != "README.md"]
ADDRESSES = re.compile(r"http://(?:127\.0\.0\.1|localhost):4318")
_BLOCK = re.compile(r"^```(python|console|yaml)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w.-]+\.(?:py|yaml))\n")
_PLAIN = re.compile(r"""stepscope( [\w./=:,-]+| "[^"$`\\\\]*"| '[^']*')*$""")
"""A command that a shell would only split into words."""


class Block(NamedTuple):
    """A fenced block of a page."""

    kind: str
    text: str


def blocks(page: Path) -> list[Block]:
    """What a page has to run, in order."""
    return [Block(*found) for found in _BLOCK.findall(page.read_text())]


def commands(text: str) -> list[str]:
    """The commands of a console block, without the remarks behind them."""
    lines = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
    return [re.sub(r" {2,}# .*$", "", line) for line in lines]


class Reader:
    """Someone who follows a page: with a home, a folder to work in, and a hub once the page starts one."""

    def __init__(self, place: Path, python: Path) -> None:
        self._python = python
        self.folder = place / "work"
        self.folder.mkdir()
        programs = place / "bin"
        programs.mkdir()
        for name, line in (("stepscope", f'"{sys.executable}" -m stepscope'), ("python", f'"{python}"')):
            (programs / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
            (programs / name).chmod(0o755)
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("STEPSCOPE_", "OTEL_", "WANDB_"))
        }
        ours = {"HOME": str(place), "PATH": f"{programs}:{kept['PATH']}", "PYTHONPATH": str(ROOT / "src")}
        self.env = {**kept, **NORMAL, **ours}
        self.address = ""
        self._hubs: list[ForkedHub] = []

    def follow(self, block: Block) -> None:
        """Do what a block says: save a file, run a snippet, or run its commands."""
        text = ADDRESSES.sub(self.address, block.text) if self.address else block.text
        named = _FILE.match(text)
        if named is not None:
            (self.folder / named[1]).write_text(text)
        elif block.kind == "python":
            self._snippet(text)
        elif block.kind == "console":
            for command in commands(text):
                self._command(ADDRESSES.sub(self.address, command) if self.address else command)

    def _snippet(self, text: str) -> None:
        script = self.folder / "snippet.py"
        script.write_text(text)
        if self._python == Path(sys.executable):
            self._check(text, run([], self.env, script=script, imported="stepscope.sdk.otel"))
        else:
            self._run([str(self._python), "snippet.py"])

    def _command(self, command: str) -> None:
        if command == "stepscope hub":
            self._start_hub()
        elif _PLAIN.match(command):
            self._check(command, run(shlex.split(command)[1:], self.env, cwd=self.folder))
        elif not command.startswith("pip install"):
            self._run(["bash", "-o", "pipefail", "-c", command])

    def _run(self, line: list[str]) -> None:
        done = subprocess.run(
            line, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
        )
        self._check(line[-1], done)

    def _check(self, what: str, done: "subprocess.CompletedProcess[str]") -> None:
        assert done.returncode == 0, f"{what}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        may_fail = what.endswith("|| true")
        assert may_fail or "Traceback" not in done.stderr, done.stderr[-4000:]

    def _start_hub(self) -> None:
        hub = ForkedHub(["--port", "0", "--grpc-port", "0"], self.env, cwd=self.folder)
        self._hubs.append(hub)
        lines = []
        for line in hub.stdout:
            lines.append(line)
            if found := re.match(r"stepscope hub: (http://\S+)", line):
                self.address = found[1]
                return
        raise AssertionError("".join(lines) + hub.stderr.read())

    def close(self) -> None:
        """Stop the hub, once it has the end of the runs that are sent to it."""
        wait_until(lambda: not left_over.running(lambda each: f"ship --background --home {self.folder}" in each.line))
        for process in self._hubs:
            process.terminate()
            process.communicate(timeout=120)


@contextmanager
def reading(place: Path, python: Path = Path(sys.executable)) -> Iterator[Reader]:
    """Follow a page in an empty place."""
    reader = Reader(place, python)
    try:
        yield reader
    finally:
        reader.close()


def python_for(page: Path) -> Path:
    """The Python that has what a page imports: W&B's client is installed apart. Skip without it."""
    code = "".join(block.text for block in blocks(page) if block.kind == "python")
    names = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)) - {"stepscope"}
    if "wandb" in names:
        if not PYTHON.exists():
            pytest.skip("W&B's client is not installed")
        return PYTHON
    if lacking := [name for name in sorted(names) if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{', '.join(lacking)} is not installed")
    return Path(sys.executable)


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_a_guide_runs(page: Path, tmp_path: Path) -> None:
    """Someone who pastes everything on the page, from top to bottom, sees no error."""
    python = python_for(page)
    if shutil.which("curl") is None and "curl" in page.read_text():
        pytest.skip("curl is not installed")
    found = blocks(page)
    assert found
    with reading(tmp_path, python) as reader:
        for block in found:
            reader.follow(block)


def test_a_guide_that_is_wrong_fails(tmp_path: Path) -> None:
    """A command that fails and a snippet that raises are noticed."""
    with reading(tmp_path) as reader:
        for block in (Block("console", "$ stepscope shwo\n"), Block("python", "import stepscope\nstepscope.initt()\n")):
            with pytest.raises(AssertionError):
                reader.follow(block)


def test_the_index_has_every_page() -> None:
    """Each page answers one question, which is its title, and the index lists it with that title; 25 at least."""
    index = dict(re.findall(r"^- \[(.*?)\]\((.*?)\.md\)$", (HOW / "README.md").read_text(), re.MULTILINE))
    titles = {page.read_text().splitlines()[0].removeprefix("# "): page.stem for page in HOW.glob("*.md")}
    titles.pop("How do I ...?")
    assert index == titles
    assert len(titles) >= 25
    assert all(title.startswith("How do I ") and title.endswith("?") for title in titles)
    assert all(len(page.read_text().splitlines()) < 60 for page in HOW.glob("*.md"))
