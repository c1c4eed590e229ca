"""Trace the walks of docs/architecture.md in running programs; `python -m tests.harness.walks` writes them there."""

import ast
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import stepscope
from tests.forked import NORMAL
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
TRACED = Path(__file__).with_name("traced.py")
TRAINER = """
import sys
from pathlib import Path
import stepscope
from tests.harness.traced import Trace
trace = Trace(Path(stepscope.__file__).parent)
trace.start()
run = stepscope.init(project="walk", run_id="walk", probes=False)
run.log({"loss": 2.0}, step=0)
run.flush()
trace.calls.clear()
for step in range(1, 4):
    with run.step(step):
        run.log({"loss": 1.0})
run.flush()
trace.write(Path(sys.argv[1]))
run.finish()
"""
SPANS = """
import sys
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
provider = TracerProvider(resource=Resource({"train.run.id": "walk", "service.name": "walk"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(sys.argv[1] + "/v1/traces")))
with provider.get_tracer("walk").start_as_current_span("train.step", attributes={"train.step": int(sys.argv[2])}):
    pass
provider.shutdown()
"""


IN_PYTHON = {"STEPSCOPE_PURE_PYTHON": "1"}
"""What is executed in C is not traced, so the walks are those of the Python core."""
MOVING = ("stepscope-pump", "stepscope-intake")
"""Threads that move records from journals to the store."""


def _read(path: Path) -> list[tuple[str, str]]:
    pairs = [line.split("\t") for line in path.read_text().splitlines()]
    return [(thread, file) for thread, file in pairs]


class TracedHub:
    """A hub whose executed files are written down."""

    def __init__(self, folder: Path) -> None:
        self._out = folder / "hub-files"
        place = {"STEPSCOPE_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
        self._env = {**os.environ, **NORMAL, **IN_PYTHON, **place}
        line = [sys.executable, str(TRACED), str(self._out), "hub", "--port", "0", "--grpc-port", "0"]
        self._process = subprocess.Popen(line, env=self._env, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().split()[2].rstrip(",")

    def run(self, program: str, *arguments: str) -> None:
        """Run a program beside it."""
        subprocess.run([sys.executable, "-c", program, *arguments], env=self._env, check=True, cwd=ROOT)

    def begin(self) -> None:
        """Forget what ran until now."""
        self._process.send_signal(signal.SIGUSR1)

    def ask(self, path: str) -> Any:
        """Get an answer of the API; None when there is none yet."""
        with contextlib.suppress(OSError), urllib.request.urlopen(self.address + path) as answer:
            return json.load(answer)

    def calls(self) -> list[tuple[str, str]]:
        """Threads and files of what ran since `begin`."""
        self._out.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR2)
        wait_until(self._out.exists)
        return _read(self._out)

    def stored(self, is_there: Callable[[], bool]) -> list[str]:
        """Files that moved records to the store since `begin`, once what was sent last is there."""
        wait_until(is_there)
        return [file for thread, file in self.calls() if thread.startswith(MOVING)]

    def answered(self, path: str) -> list[str]:
        """Files that answer one request."""
        self.begin()
        assert self.ask(path) is not None
        return [file for thread, file in self.calls() if not thread.startswith(MOVING)]

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.communicate()


@contextlib.contextmanager
def traced_hub() -> Iterator[tuple[TracedHub, Path]]:
    """A traced hub on a home of its own."""
    with tempfile.TemporaryDirectory() as place:
        hub = TracedHub(Path(place))
        try:
            wait_until(lambda: hub.ask("/api/health"))
            yield hub, Path(place)
        finally:
            hub.stop()


def log_to_series() -> list[str]:
    """Files executed from `log()` in a trainer to the answer that a chart draws."""
    with traced_hub() as (hub, folder):
        hub.begin()
        hub.run(TRAINER, str(folder / "trainer-files"))
        trainer = [file for _, file in _read(folder / "trainer-files")]
        stored = hub.stored(lambda: (hub.ask("/api/runs/walk") or {}).get("status") == "finished")
        return _once(trainer, stored, hub.answered("/api/runs/walk/series?key=loss"))


def otlp_to_inspector() -> list[str]:
    """Files executed from an OTLP span to the answer of the step inspector."""
    with traced_hub() as (hub, _):
        hub.begin()
        hub.run(SPANS, hub.address, "3")
        received = [file for thread, file in hub.calls() if not thread.startswith(MOVING)]
        hub.run(SPANS, hub.address, "4")  # when it is stored, everything that follows the first commit has run
        stored = hub.stored(lambda: bool((hub.ask("/api/runs/walk/steps/4") or {}).get("ranks")))
        return _once(received, stored, hub.answered("/api/runs/walk/steps/3"))


def record_to_mlflow(server: str) -> list[str]:
    """Files executed by `stepscope ship`, from journaled records to an MLflow server; those of the command are not."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        env = {**os.environ, **IN_PYTHON, "STEPSCOPE_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
        out = folder / "files"
        subprocess.run([sys.executable, "-c", TRAINER, str(out)], env=env, check=True, cwd=ROOT)
        sink = json.dumps({"mlflow": {"uri": server}})
        subprocess.run([sys.executable, str(TRACED), str(out), "ship", "--sink", sink], env=env, check=True)
        return _once([file for _, file in _read(out) if not file.startswith("cli/")])


def _once(*parts: list[str]) -> list[str]:
    return list(dict.fromkeys(file for part in parts for file in part))


SERIES = "From `log()` to the series of a chart"
INSPECTOR = "From an OTLP span to the step inspector"
MLFLOW = "From a record to MLflow"
_PERIODIC = ("dialects/otlp/listener/eviction.py", "hub/service.py", "hub/serving/serve.py", "sdk/overhead.py")
_RETRYING = ("model/errors.py", "model/goodput_sums.py", "sdk/masking.py", "sdk/outcomes.py")
_REPORTING = ("model/formatting.py",)
"""What the command shows of a sink that is behind."""
SOMETIMES = {SERIES: _PERIODIC, INSPECTOR: _PERIODIC, MLFLOW: (*_PERIODIC, *_RETRYING, *_REPORTING)}
"""Executed in some traces and not in others: periodic work, and a part of a sink that waits for the other part."""
PAGE = ROOT / "docs" / "architecture.md"
_SECTION = r"(?ms)^### {title} \((\d+) files\)\n\n(.*?)(?=^##|\Z)"


def documented(title: str) -> tuple[int, list[str]]:
    """The number of files that the document gives for a walk, and the files that it lists."""
    found = re.search(_SECTION.format(title=re.escape(title)), PAGE.read_text())
    assert found is not None, title
    return int(found[1]), re.findall(r"^\d+\. `([^`]+)`", found[2], re.M)


def describe(title: str, files: list[str]) -> str:
    """The section of a walk: its files in order, each with the sentence of its docstring."""
    package = Path(stepscope.__file__).parent
    lines = []
    for number, file in enumerate([each for each in files if each not in SOMETIMES[title]], 1):
        text = (ast.get_docstring(ast.parse((package / file).read_text())) or "").partition("\n")[0]
        lines.append(f"{number}. `{file}`: {text.removesuffix('.')}")
    return f"### {title} ({len(lines)} files)\n\n" + "\n".join(lines) + "\n\n"


def main() -> None:
    """Write the traced walks into the document; the third one needs the address of an MLflow server."""
    traced = {SERIES: log_to_series(), INSPECTOR: otlp_to_inspector()}
    if len(sys.argv) > 1:
        traced[MLFLOW] = record_to_mlflow(sys.argv[1])
    text = PAGE.read_text()
    for title, files in traced.items():
        made = describe(title, files)
        text = re.sub(_SECTION.format(title=re.escape(title)), made.replace("\\", r"\\"), text)
    PAGE.write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    main()
