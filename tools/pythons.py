"""Run the tests of the core on every newer Python that this machine has: `make test-pythons`.

What depends on the interpreter is tested with each: the C core, hooks, frames and threads, fork, asyncio, signals and
the end of a process. What only computes with numbers and texts, or reads files, `make test` proves for all of them.

Where there are several, the oldest has the calls in Python, the others the compiled ones. All are tested at once, and
what pytest said is printed when it ends: one waits for its longest files while another keeps the processors busy.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".venv-pythons"
VERSIONS = ("3.12", "3.13", "3.14")
CORE = (
    "tests/sdk",
    *("tests/journal/test_atomic_files.py", "tests/journal/test_full_disk.py", "tests/journal/test_live.py"),
    *("tests/journal/test_segments_read.py", "tests/journal/test_segments_write.py"),
    *("tests/model/test_errors.py", "tests/model/test_ports.py", "tests/model/test_records.py", "tests/test_pump.py"),
)
"""Tests of what runs inside a training process and depends on its interpreter."""
NEWEST = ("tests/diagnosis/detectors/test_every_kind.py",)
"""What the newest runs besides, first since it takes longest: each kind of finding, as it sums floats differently."""
PACKAGES = (
    *("msgspec", "opentelemetry-api", "opentelemetry-proto", "opentelemetry-sdk", "opentelemetry-test-utils"),
    *("psutil", "PyYAML", "numpy", "pillow", "setuptools"),
    *("opentelemetry-instrumentation-fastapi", "opentelemetry-instrumentation-httpx", "fastapi", "httpx"),
    *("opentelemetry-instrumentation-redis", "redis", "uvicorn"),
    *("opentelemetry-instrumentation-logging", "hypothesis", "pytest", "pytest-timeout"),
)


def interpreters() -> Iterator[tuple[str, str]]:
    """The newer interpreters of this machine: on the path, or installed beside this one."""
    for version in VERSIONS:
        beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python"))
        for found in (shutil.which(f"python{version}"), *map(str, beside)):
            # A command on the path may be a shim of pyenv without an interpreter behind it.
            if found is not None and not subprocess.run([found, "-c", ""], capture_output=True).returncode:
                yield version, found
                break


def main(arguments: list[str]) -> int:
    """Test with each interpreter and return 1 when one failed; `--setup` only makes their environments."""
    found = dict(interpreters())
    for version, python in found.items():
        set_up(version, python)
        build_core(version)
    if arguments == ["--setup"]:
        return 0
    for version in VERSIONS:
        if version not in found:
            print(f"pythons: no Python {version} on this machine, not tested")
    if not found:
        return 0
    versions = list(found)  # in the order of VERSIONS
    in_ci = os.environ.get("CI", "") not in ("", "0", "false")
    workers = -(-(8 if in_ci else 4) // len(versions))  # as many together as the Makefile has

    def test(version: str) -> bool:
        tests = NEWEST + CORE if version == versions[-1] else CORE
        in_python = version == versions[0] != versions[-1]
        return passes(version, tests, arguments, in_python=in_python, in_ci=in_ci, workers=workers)

    with ThreadPoolExecutor(len(versions)) as beside:
        failed = [version for version, passed in zip(versions, beside.map(test, versions), strict=True) if not passed]
    if failed:
        print(f"pythons: failed on {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def set_up(version: str, python: str) -> None:
    """Make the environment of an interpreter, with the versions of requirements/dev.lock."""
    venv, lock = ENVIRONMENTS / version, ROOT / "requirements" / "dev.lock"
    ready = venv / ".ready"
    if ready.exists() and ready.stat().st_mtime >= max(lock.stat().st_mtime, Path(__file__).stat().st_mtime):
        return
    print(f"setup: Python {version}", flush=True)
    subprocess.run([python, "-m", "venv", "--clear", "--without-pip", venv], check=True)
    line = ["sh", str(ROOT / "tools" / "install.sh"), str(venv)]
    subprocess.run([*line, "-c", str(lock), *PACKAGES], check=True)
    ready.touch()


def build_core(version: str) -> None:
    """Build the compiled core for an interpreter, beside the sources, unless it is as new as they are."""
    print(f"setup: the compiled core for Python {version}", flush=True)
    python = str(ENVIRONMENTS / version / "bin" / "python")
    subprocess.run([python, "setup.py", "-q", "build_ext", "--inplace"], cwd=ROOT, check=True)


def passes(
    version: str, tests: tuple[str, ...], arguments: list[str], *, in_python: bool, in_ci: bool, workers: int
) -> bool:
    """Run tests with an interpreter, and with the calls in Python if so; print what pytest said."""
    named = f"pythons: {version}{', the calls in Python' if in_python else ''}"
    print(f"{named}: testing", flush=True)
    options = ("-q", "-n", str(workers), "-p", "no:cacheprovider")
    program = ["tools/retest.py"] if in_ci else ["-m", "pytest"]
    line = [str(ENVIRONMENTS / version / "bin" / "python"), *program, *options, *tests, *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "STEPSCOPE_PURE_PYTHON": "1" if in_python else "0"}
    done = subprocess.run(line, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    print(f"{named}:\n{done.stdout}", end="", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
