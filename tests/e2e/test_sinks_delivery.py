"""Delivery by the shipper: everything arrives, whichever process is killed; no trainer notices a dead destination."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope.model.records import Event, Metric
from stepscope.pump import GROUP_BYTES
from tests.conftest import PACKAGE, Python, Start
from tests.forked import stepscope
from tests.repeats import repeats
from tests.sinks.servers import Reply, Server, running

pytest.importorskip("opentelemetry.proto")

MIN_BYTES = 25
"""No metric is shorter in the journal."""
TRAIN = """
    import sys, stepscope
    first, count = int(sys.argv[1]), int(sys.argv[2])
    run = stepscope.init(capture_logs=False, otel=False)
    for step in range(first, first + count):
        run.log({"loss": 1.0 / (step + 1)}, step=step, category="trainer")
    run.finish()
"""


@pytest.fixture
def server() -> Iterator[Server]:
    """An OTLP server."""
    with running() as made:
        yield made


@pytest.fixture
def ends(home: Path) -> Iterator[None]:
    """Kill the shippers that a failed test left."""
    yield
    for pid in shippers(home):
        os.kill(pid, signal.SIGKILL)


def sinks(*servers: Server, **options: object) -> str:
    """The setting, as a variable has it."""
    return json.dumps([{"otlp": {"endpoint": server.url, **options}} for server in servers])


def shippers(home: Path) -> list[int]:
    """The pids of the running shippers of a home."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if b"ship" in line and str(home).encode() in line and state not in "ZX":
                found.append(int(entry.name))
    return found


def trained(server: Server) -> list[int]:
    """The steps of the trainer's own metrics that arrived."""
    return sorted(server.steps())


def command(home: Path, *arguments: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run `stepscope`."""
    return stepscope(*arguments, "--home", home, **(env or {}))


def test_everything_arrives_and_the_shipper_goes(
    python: Python, home: Path, server: Server, until: Callable[..., None], ends: None
) -> None:
    """A trainer that ends at once leaves a shipper that delivers all of it, once, and ends."""
    done = python(TRAIN, 0, 5000, env={"STEPSCOPE_SINKS": sinks(server), "STEPSCOPE_QUIET": "1"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    until(lambda: len(server.steps()) >= 5000)
    until(lambda: not shippers(home))
    assert trained(server) == list(range(5000))
    assert not list((home / "shipping").glob("*.want"))
    (report,) = (home / "shipping").glob("*.report")
    counts = json.loads(report.read_text())["counts"]
    assert counts["written"] >= 5000
    assert set(counts) == {"written", "filtered"}


def test_one_shipper_serves_all_ranks(
    start: Start, home: Path, server: Server, until: Callable[..., None], ends: None
) -> None:
    """Processes that begin together share one shipper."""
    env = {"STEPSCOPE_SINKS": sinks(server), "WORLD_SIZE": "3", "MASTER_ADDR": "x"}
    programs = [start(TRAIN, rank * 1000, 1000, env={**env, "RANK": str(rank)}) for rank in range(3)]
    for program in programs:
        assert program.wait().returncode == 0
    until(lambda: not shippers(home))
    assert trained(server) == list(range(3000)), "two at work would have delivered twice"


def test_a_killed_trainer_is_delivered(
    start: Start,
    home: Path,
    server: Server,
    until: Callable[..., None],
    records: Callable[..., list[Metric]],
    ends: None,
) -> None:
    """Records arrive while the trainer runs; after its SIGKILL the shipper delivers all that is in the journal."""
    program = start(
        """
        import time, stepscope
        run = stepscope.init(capture_logs=False, otel=False)
        step = 0
        while True:
            run.log({"loss": 0.5}, step=step, category="trainer")
            step += 1
            time.sleep(0.0005)
        """,
        env={"STEPSCOPE_SINKS": sinks(server)},
    )
    until(lambda: len(server.steps()) >= 200)
    assert program.process.poll() is None
    program.send(signal.SIGKILL)
    program.process.wait()
    until(lambda: not shippers(home))
    written = [record.step for record in records(Metric) if record.category == "trainer"]
    assert len(written) >= 200
    assert trained(server) == written


@pytest.mark.parametrize("seed", range(repeats(1, 10)))
def test_killed_shippers_lose_nothing(
    python: Python, home: Path, server: Server, until: Callable[..., None], seed: int, ends: None
) -> None:
    """After SIGKILL at random moments the next shipper continues, with at most one group sent twice per kill."""
    chance = random.Random(seed)
    python(TRAIN, 0, 40_000, env={"STEPSCOPE_SINKS": sinks(server), "STEPSCOPE_SHIPPER": "none"})
    kills = 0
    for _ in range(3):
        shipper = subprocess.Popen(
            [sys.executable, "-m", "stepscope", "ship", "--home", str(home), "--sink", sinks(server)],
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = server.requests
        until(lambda before=before, shipper=shipper: server.requests > before or shipper.poll() is not None)
        time.sleep(chance.random() * 0.05)
        if shipper.poll() is None:
            shipper.kill()
            kills += 1
        shipper.wait()
    done = command(home, "ship", "--sink", sinks(server), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["delivered"] is True
    arrived = trained(server)
    assert sorted(set(arrived)) == list(range(40_000))
    assert kills > 0
    assert len(arrived) <= 40_000 + kills * GROUP_BYTES / MIN_BYTES


def test_dead_destinations_are_not_felt(python: Python, home: Path, server: Server, ends: None) -> None:
    """With a refusing and a hanging sink the trainer ends in time, and the healthy sink gets everything."""
    with running() as hangs, running() as gone:
        hangs.always = Reply(hang=True)
        gone.stop()
        began = time.monotonic()
        done = python(TRAIN, 0, 1000, env={"STEPSCOPE_SINKS": sinks(hangs, gone, server)})
        assert done.returncode == 0
        assert time.monotonic() - began < 15
        deadline = time.monotonic() + 300
        while len(server.steps()) < 1000:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert trained(server) == list(range(1000))
        assert shippers(home), "it still tries the others"


def test_in_a_thread(python: Python, home: Path, server: Server) -> None:
    """With shipper="thread" all arrives before the trainer ends, and no process is started."""
    done = python(TRAIN, 0, 2000, env={"STEPSCOPE_SINKS": sinks(server), "STEPSCOPE_SHIPPER": "thread"})
    assert (done.returncode, done.stderr) == (0, "")
    assert not shippers(home)
    assert trained(server) == list(range(2000))
    again = command(home, "ship", "--sink", sinks(server))
    assert again.returncode == 0
    assert len(trained(server)) == 2000


def test_a_dead_sink_in_a_thread_bounds_the_exit(python: Python, server: Server) -> None:
    """The end takes no longer than its bound."""
    server.always = Reply(hang=True)
    began = time.monotonic()
    env = {"STEPSCOPE_SINKS": sinks(server), "STEPSCOPE_SHIPPER": "thread", "STEPSCOPE_EXIT_TIMEOUT": "1"}
    assert python(TRAIN, 0, 100, env=env).returncode == 0
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("shipper", ["process", "thread"])
def test_finish_can_wait(python: Python, server: Server, until: Callable[..., None], shipper: str, ends: None) -> None:
    """With `wait`, finish returns when the sinks have everything, or tells that they have not."""
    program = """
        import sys, stepscope
        run = stepscope.init(capture_logs=False, otel=False)
        run.log({"loss": 1.0}, step=7, category="trainer")
        left = run.finish(wait=float(sys.argv[1]))
        print(bool(left), left.undelivered == 0, run.undelivered() == 0)
    """
    env = {"STEPSCOPE_SINKS": sinks(server), "STEPSCOPE_SHIPPER": shipper}
    assert python(program, 20, env=env).stdout == "True True True\n"
    assert trained(server) == [7]
    server.always = Reply(503)
    assert python(program, 0.2, env=env).stdout == "False False False\n"


@pytest.mark.parametrize("shipper", ["process", "thread"])
def test_finish_waits_through_trouble(python: Python, server: Server, shipper: str, ends: None) -> None:
    """A sink that refuses at first is retried while `finish` waits for it."""
    program = """
        import stepscope
        run = stepscope.init(capture_logs=False, otel=False)
        run.log({"loss": 1.0}, step=7, category="trainer")
        print(run.finish(wait=30))
    """
    server.replies = [Reply(503), Reply(503)]
    done = python(program, env={"STEPSCOPE_SINKS": sinks(server), "STEPSCOPE_SHIPPER": shipper})
    assert done.stdout == "recorded; nothing is undelivered\n"
    assert trained(server) == [7]


def test_a_sink_that_says_when_is_waited_for(python: Python, server: Server) -> None:
    """The end of a program waits for a sink of its own that asked for a second, and not for one that asked for more."""
    env = {"STEPSCOPE_SINKS": sinks(server), "STEPSCOPE_SHIPPER": "thread", "STEPSCOPE_EXIT_TIMEOUT": "20"}
    server.replies = [Reply(503, {"Retry-After": "1"})]
    assert python(TRAIN, 0, 10, env=env).returncode == 0
    assert trained(server) == list(range(10))
    server.always = Reply(503, {"Retry-After": "600"})
    began = time.monotonic()
    assert python(TRAIN, 10, 20, env=env).returncode == 0
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("shipper", ["process", "thread", "none"])
def test_flush_reports_what_is_undelivered(python: Python, server: Server, shipper: str, ends: None) -> None:
    """`finish` is true once the journal has everything; undelivered bytes are reported until there are none."""
    program = """
        import sys, time, stepscope
        run = stepscope.init(capture_logs=False, otel=False)
        run.log({"loss": 1.0}, step=7, category="trainer")
        left = run.flush(5.0)
        print(bool(left), left.undelivered > 20)
        deadline = time.monotonic() + float(sys.argv[1])
        while (left := run.flush(5.0)).undelivered and time.monotonic() < deadline:
            time.sleep(0.01)
        print(left.undelivered == 0)
    """
    env = {"STEPSCOPE_SINKS": sinks(server), "STEPSCOPE_SHIPPER": shipper, "STEPSCOPE_FLUSH_INTERVAL": "0.05"}
    server.always = Reply(503) if shipper == "none" else None
    wanted = "True True\nFalse\n" if shipper == "none" else "True True\nTrue\n"
    assert python(program, 0.1 if shipper == "none" else 20, env=env).stdout == wanted


def test_sink_news_are_in_the_run(
    start: Start,
    home: Path,
    server: Server,
    until: Callable[..., None],
    records: Callable[..., list[Event]],
    ends: None,
) -> None:
    """A reader of the run sees the first delivery, the death and the return of a sink, and what became of records."""
    program = start(
        """
        import time, stepscope
        run = stepscope.init(capture_logs=False, otel=False)
        while True:
            run.log({"loss": 0.5}, category="trainer")
            time.sleep(0.01)
        """,
        env={"STEPSCOPE_SINKS": sinks(server)},
    )

    def told() -> list[str]:
        return [event.name for event in records(Event) if event.name.startswith("stepscope.sink.")]

    until(lambda: told() == ["stepscope.sink.first_delivery"])
    server.always = Reply(503, {"Retry-After": "1"})
    until(lambda: told()[1:] == ["stepscope.sink.dead"])
    server.always = None
    until(lambda: told()[2:] == ["stepscope.sink.back"])
    program.send(signal.SIGKILL)
    program.process.wait()
    until(lambda: not shippers(home))
    assert len(told()) == 3
    dead = next(event for event in records(Event) if event.name == "stepscope.sink.dead")
    assert (dead.attrs["place"].split()[0], dead.severity) == (f"{server.url}/v1/traces", 13)
    assert "503" in dead.attrs["reason"]
    own = [record for record in records(Metric) if any(key.startswith("sink/") for key in record.values)]
    assert len(own) == 1, "its own words are no reason for more"
    (written,) = (count for key, count in own[0].values.items() if key.endswith("/written"))
    assert written >= len(trained(server)) > 0


def test_news_of_a_sink_in_a_thread(python: Python, server: Server, records: Callable[..., list[Event]]) -> None:
    """The thread records the same through the run itself."""
    program = """
        import time, stepscope
        run = stepscope.init(capture_logs=False, otel=False)
        run.log({"loss": 0.5}, category="trainer")
        deadline = time.monotonic() + 300
        while run.flush(5.0).undelivered and time.monotonic() < deadline:
            time.sleep(0.01)
        run.finish()
    """
    shown = json.dumps([*json.loads(sinks(server)), {"prometheus": {"port": 0}}])
    python(program, env={"STEPSCOPE_SINKS": shown, "STEPSCOPE_SHIPPER": "thread"})
    first = [event.attrs["place"] for event in records(Event) if event.name == "stepscope.sink.first_delivery"]
    assert len(first) == 2
    assert not any(":0/" in place for place in first), "the port that was found, not the one that was asked for"
    keys = [key for record in records(Metric) for key in record.values]
    assert any(key.startswith("sink/otlp-") and key.endswith("/written") for key in keys)


def test_console_lines(python: Python) -> None:
    """The trainer's terminal shows its metrics, each once, the last one too."""
    done = python(TRAIN, 0, 50, env={"STEPSCOPE_SINKS": "console"})
    lines = [line for line in done.stdout.splitlines() if line.startswith("TRAINER - Loss: ")]
    assert len(lines) == 50
    assert lines[1] == "TRAINER - Loss: 0.500000"
    assert "EVENT - train.run.finished" in done.stdout


def test_refused_then_retried(python: Python, home: Path, server: Server) -> None:
    """What a server refused is in quarantine with its words, can be shown, and is taken when offered again."""
    python(TRAIN, 0, 10, env={"STEPSCOPE_SHIPPER": "none"})
    server.decide = lambda got: Reply(404, {}, b"\x08\x07\x12\x08not you!") if got.path == "/v1/metrics" else Reply()
    assert command(home, "ship", "--sink", sinks(server)).returncode == 0
    listed = json.loads(command(home, "quarantine", "--json", "list").stdout)
    assert {each["reason"] for each in listed} == {"HTTP 404: not you!"}
    shown = "".join(command(home, "quarantine", "show", each["id"]).stdout for each in listed)
    assert "trainer" in shown
    assert command(home, "quarantine", "retry", "--sink", sinks(server)).returncode == 1
    server.decide = None
    assert command(home, "quarantine", "retry", "--sink", sinks(server)).returncode == 0
    assert trained(server) == list(range(10))
    assert "nothing" in command(home, "quarantine").stdout


def test_doctor_explains(home: Path, server: Server) -> None:
    """One line says what works, or why not and what to do."""
    env = {"STEPSCOPE_SINKS": sinks(server)}
    well = command(home, "doctor", "--sink", "otlp", env=env)
    assert (well.returncode, "accepted a record" in well.stdout) == (0, True)
    server.always = Reply(404, {}, b"")
    lost = command(home, "doctor", "--sink", "otlp", env=env)
    assert lost.returncode == 1
    assert "check the path" in lost.stdout
    server.stop()
    assert "tunnel closed" in command(home, "doctor", "--sink", "otlp", env=env).stdout


def test_secrets_stay_in(python: Python, home: Path, server: Server, ends: None) -> None:
    """Tokens reach the server, and no file that others can read, nor the doctor's page."""
    secret = "hunter2-and-more"
    env = {"STEPSCOPE_SINKS": sinks(server, headers={"authorization": secret})}
    python(TRAIN, 0, 1, env=env)
    for path in home.rglob("*"):
        if path.is_file() and secret.encode() in path.read_bytes():
            assert path.stat().st_mode & 0o077 == 0, path
            assert path.suffix == ".want"
    assert secret not in command(home, "doctor", "--json", env=env).stdout


def test_a_wrong_sink_is_told_by_init(python: Python) -> None:
    """`init` raises, naming the fix."""
    done = python(TRAIN, 0, 1, env={"STEPSCOPE_SINKS": "otpl"})
    assert done.returncode == 1
    assert "did you mean 'otlp'" in done.stderr
