"""Every decoder, briefly: with hypothesis on any bytes and on damaged requests, with atheris where it is installed."""

import functools
import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.forked import run
from tests.fuzz.target import NAMES, PLANTED, Target, load
from tests.repeats import repeats

PROGRAM = Path(__file__).with_name("__main__.py")
SECONDS = repeats(1, 60)
"""How long atheris tries each target."""

needs_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris is not installed (tests/fuzz/README.md)"
)
briefly = settings(max_examples=150, suppress_health_check=list(HealthCheck))


@functools.cache
def seeds_of(target: Target) -> Sequence[bytes]:
    """The seeds of a target."""
    return tuple(target.seeds())


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A seed with a few bytes changed, left out, put in or repeated."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 8)))
        fresh = data[start:end] * 2 if draw(st.booleans()) else draw(st.binary(max_size=8))
        data[start:end] = fresh
    return bytes(data)


@pytest.mark.parametrize("name", NAMES)
def test_seeds(name: str) -> None:
    """What real encoders make passes."""
    target = load(name)
    for seed in seeds_of(target):
        target.check(seed)


@pytest.mark.parametrize("name", NAMES)
def test_any_bytes(name: str) -> None:
    """No bytes make a decoder raise anything but its refusal."""
    target = load(name)

    @briefly
    @given(st.binary(max_size=200))
    def check(data: bytes) -> None:
        target.check(data)

    check()


@pytest.mark.parametrize("name", NAMES)
def test_damaged(name: str) -> None:
    """No damage to a request does, and what is left of it is stored or refused by name."""
    target = load(name)

    @briefly
    @given(damaged(seeds_of(target)))
    def check(data: bytes) -> None:
        target.check(data)

    check()


@needs_atheris
@pytest.mark.parametrize("name", NAMES)
def test_atheris(name: str, tmp_path: Path) -> None:
    """Inputs that atheris finds by watching the branches do not, either, within their bounds of memory and time."""
    done = _campaign(name, tmp_path, f"-max_total_time={SECONDS}")
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Done " in done.stderr


@needs_atheris
def test_atheris_finds_a_fault(tmp_path: Path) -> None:
    """A fault that any bytes would hardly meet is found, so that a clean run means something."""
    done = _campaign(PLANTED, tmp_path, "-runs=2000000", "-max_total_time=60")
    assert done.returncode != 0
    assert "IndexError: planted" in done.stdout + done.stderr


def _campaign(name: str, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run the program in a fork of a process that has instrumented the targets: that takes far longer than a try."""
    env = {**os.environ, "TMPDIR": str(folder)}
    return run([name, *options], env, script=PROGRAM, cwd=folder, imported="tests.fuzz.instrumented")
