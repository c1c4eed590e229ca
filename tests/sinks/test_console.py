"""What people read on the terminal."""

import contextlib
import os
import pty
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from stepscope.model.metric_labels import number
from stepscope.model.ports import Batch, Sink
from stepscope.model.records import Alert, Event, Instrument, Log, Metric, Record, Span
from stepscope.sdk.settings import load
from stepscope.sinks.console import Console, ConsoleSink, Pace
from stepscope.testing.sinks import WRITERS, SinkContract
from tests.conftest import PACKAGE


class Terminal:
    """What was printed; the contract reads the steps back from the losses."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, text: str) -> None:
        self.lines += text.split("\n")

    def busy(self, seconds: float) -> None:
        """A terminal is never busy."""

    def refuse(self) -> None:
        """It refuses nothing."""

    def steps(self) -> list[int]:
        """The steps, from losses that are 1 / (step + 1)."""
        losses = [float(line.partition(": ")[2]) for line in self.lines if line.startswith("TRAINER")]
        return [round(1 / loss) - 1 for loss in losses]


@pytest.fixture
def peer() -> Terminal:
    """A terminal."""
    return Terminal()


@pytest.fixture
def sink(peer: Terminal) -> Sink:
    """Its sink."""
    return ConsoleSink(Console(), peer)


class TestContract(SinkContract):
    """Every sink's contract."""

    can_be_busy = False
    can_refuse = False


def lines(*records: Record, env: dict[str, str] | None = None, **options: object) -> list[str]:
    """What is printed of some records."""
    terminal = Terminal()
    ConsoleSink(Console.read(options, env or {}), terminal).write([Batch(WRITERS[0], 0, list(records))])
    return terminal.lines


def test_lines_in_the_manner_of_the_seed() -> None:
    """Category, labels, six places."""
    values = {"loss": 0.5, "global_grad_norm": 2.3, "steps_per_second": 12345.6, "n_updates": 7}
    assert lines(Metric(1, 1, None, "trainer", values)) == [
        "TRAINER - Loss: 0.500000 | Grad norm: 2.300000 | Steps per second: 1.234560e+04 | N updates: 7"
    ]
    assert lines(Metric(1, 1, None, None, {"x": 1})) == ["MISC - X: 1"]
    assert lines(Metric(1, 1, None, "actor", {})) == ["ACTOR - No metrics"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.001, "0.001000"),
        (0.0009, "9.000000e-04"),
        (9999.0, "9999.000000"),
        (-20000.0, "-2.000000e+04"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Inf"),
        (True, "1"),
        (12, "12"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    """Zero is short, very small and large numbers have an exponent."""
    assert number(value) == text


def test_labels_can_be_configured() -> None:
    """Options stand above ours, ours above the seed's variable; broken parts are passed over."""
    env = {
        "RUST_RL_METRIC_LABELS": "loss=Seed,entropy=H",
        "STEPSCOPE_METRIC_LABELS": "loss = Ours , lr=Rate,=x,y=,broken",
    }
    record = Metric(1, 1, None, "trainer", {"loss": 0, "entropy": 1, "lr": 2, "y": 3})
    assert lines(record, env=env) == ["TRAINER - Ours: 0 | H: 1 | Rate: 2 | Y: 3"]
    assert lines(record, env=env, labels={"loss": "Mine"})[0].startswith("TRAINER - Mine: 0")


def test_other_kinds() -> None:
    """Alerts and events always, logs from a severity up, spans that failed; machine readings never."""
    ids = bytes(16), bytes(8)
    records: list[Record] = [
        Alert(1, 1, None, None, None, 17, "loss is NaN", "at step 1"),
        Event(1, 1, None, None, None, 9, "milestone"),
        Log(1, 1, None, None, None, 13, "careful"),
        Log(1, 1, None, None, None, 9, "chatter"),
        Span(1, 2_000_000_000, 1, None, *ids, None, "save", 0, 2, "disk full"),
        Span(1, 5, 1, None, *ids, None, "fine"),
        Metric(1, 1, None, "system", {"cpu": 1.0}),
        Metric(1, 1, None, None, {"http.requests": 1.0}, {}, Instrument("sum")),
    ]
    assert lines(*records) == [
        "ALERT - ERROR loss is NaN: at step 1",
        "EVENT - milestone",
        "LOG - WARN careful",
        "SPAN - save failed after 2 s: disk full",
    ]
    assert len(lines(*records, debug=True)) == len(records)
    for name in ("TUFT_OTEL_DEBUG", "STEPSCOPE_DEBUG"):
        assert len(lines(*records, env={name: "1"})) == len(records)


def test_debug_is_a_console() -> None:
    """The variable alone is enough; a console that is there already keeps its options."""
    env = {"STEPSCOPE_DEBUG": "1"}
    (alone,) = load({"home": "/tmp"}, env).sinks
    assert (alone.name, alone.config.debug) == ("console", True)
    (given,) = load({"sinks": [{"console": {"severity": "ERROR"}}]}, env).sinks
    assert (given.config.severity, given.config.debug) == ("ERROR", True)
    assert load({}, {"STEPSCOPE_DEBUG": "0"}).sinks == ()


def test_pace() -> None:
    """The furthest step, the rate of the last half minute, the time since the start; drawn ten times a second."""
    now = 0.0
    pace = Pace(lambda: now)
    assert pace.text() == ""
    for step in range(100):
        now += 1.0
        pace.reach(step * 10)
    pace.reach(5)
    assert pace.text("Loss: 1") == "step 990 · 10 steps/s · 1m 40s · Loss: 1"
    assert [pace.is_due(), pace.is_due()] == [True, False]
    now += 0.2
    assert pace.is_due()


PROGRAM = """
import stepscope, time
run = stepscope.init(home={home!r}, sinks=["console"], capture_logs=False, otel=False, probes=False)
for step in range(40):
    run.log({{"loss": 0.5}}, step=step, category="trainer")
    time.sleep(0.03)
run.finish()
"""


@pytest.mark.parametrize("tty", [True, False])
def test_progress_on_a_terminal_only(tmp_path: Path, tty: bool) -> None:
    """With rich on a real terminal there is a line of progress below; in a file there are plain lines and no more."""
    pytest.importorskip("rich")
    text = _output(PROGRAM.format(home=str(tmp_path / "home")), tty=tty)
    assert text.count("TRAINER - Loss: 0.500000") == 40
    assert ("steps/s" in text) == tty
    assert ("\x1b[" in text) == tty


def _output(program: str, *, tty: bool) -> str:
    """What a program writes, to a terminal or to a pipe."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("STEPSCOPE_", "OTEL_"))}
    env |= {"PYTHONPATH": str(PACKAGE), "TERM": "xterm", "COLUMNS": "100"}
    ours, theirs = pty.openpty() if tty else os.pipe()
    process = subprocess.Popen([sys.executable, "-c", program], env=env, stdin=subprocess.DEVNULL, stdout=theirs)
    os.close(theirs)
    parts = []
    with contextlib.suppress(OSError):  # a terminal whose last user left
        while data := os.read(ours, 65536):
            parts.append(data)
    os.close(ours)
    assert process.wait(300) == 0
    return b"".join(parts).decode()


def test_letters_that_the_terminal_lacks() -> None:
    """They are printed as escapes, and cost neither their line nor the alert beside it; with a progress line too."""
    program = r"""
        from stepscope.sinks.console import Console
        from stepscope.model.ports import Batch
        from stepscope.model.records import Alert, Metric
        from stepscope.model.ports import Writer
        alert = Alert(1, 1, None, None, None, 17, "NaN", "\u640d \ud800")
        records = [Metric(1, 1, None, "trainer", {"h\u00e9": 0.5}), alert]
        sink = Console().open()
        sink.write([Batch(Writer(id="w", run="r", project="p"), 0, records)])
        sink.close()
    """
    for encoding, key, message in (("ascii", r"H\xe9", r"\u640d \ud800"), ("utf-8", "H\u00e9", "\u640d \\ud800")):
        env = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONIOENCODING": encoding, "TERM": "xterm"}
        line = [sys.executable, "-c", textwrap.dedent(program)]
        wanted = [f"TRAINER - {key}: 0.500000", f"ALERT - ERROR NaN: {message}"]
        piped = subprocess.run(line, env=env, capture_output=True, check=True).stdout.decode()
        assert piped.splitlines() == wanted
        main, child = pty.openpty()
        subprocess.run(line, env=env, stdout=child, check=True)
        os.close(child)
        shown = read_all(main)
        assert all(each in shown for each in wanted)


def read_all(fd: int) -> str:
    """The output on a terminal after its writer closed it."""
    found = b""
    with contextlib.suppress(OSError):
        while part := os.read(fd, 65536):
            found += part
    os.close(fd)
    return found.decode()
