"""The thread that reads probes: one reading per interval, and nothing that goes wrong in a probe gets out."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.sdk.probes import amd, nvml, tpu
from stepscope.sdk.probes.system import Reading
from stepscope.sdk.probes.watch import GROUP, Probe, Probes, available, missing, survey


class Fake:
    """A probe under a test's control: the value is the number of readings so far."""

    def __init__(self, name: str, act: Callable[[int], None] = lambda count: None) -> None:
        self.name = name
        self.detail = "of a test"
        self.count = 0
        self.closed = 0
        self._act = act

    def read(self) -> Reading:
        self.count += 1
        self._act(self.count)
        return {f"{self.name}/count": self.count}

    def close(self) -> None:
        self.closed += 1


def fail(count: int) -> None:
    """Raise, as a broken probe does."""
    raise OSError("the sensor is gone")


class Rounds:
    """A wait that lets some rounds pass without time, then stops; it records what it was asked to wait."""

    def __init__(self, rounds: int) -> None:
        self.asked: list[float] = []
        self._rounds = rounds

    def __call__(self, seconds: float) -> bool:
        self.asked.append(seconds)
        return len(self.asked) >= self._rounds


def run(probes: list[Probe], rounds: int) -> tuple[list[Reading], list[str]]:
    """Let the thread do some rounds and end; return what it wrote and what it said."""
    written: list[Reading] = []
    said: list[str] = []
    thread = Probes(written.append, 5.0, probes, notice=said.append, wait=Rounds(rounds))
    thread.start()
    assert thread.stop(300)
    return written, said


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="this machine has no /proc")
def test_available_here() -> None:
    """On Linux the five probes of machine and process need nothing installed."""
    found, reasons = survey()
    names = [probe.name for probe in found]
    assert {"cpu", "memory", "disk", "network", "process"} <= set(names)
    assert any(name.startswith("gpu/") for name in names) or "NVIDIA" in reasons["gpu"]
    for probe in found:
        probe.close()


def test_what_is_not_available_is_missing_with_a_reason() -> None:
    """Every probe is in one of the two lists, and a reason is a sentence."""
    kinds = {probe.name.split("/")[0] for probe in available()}
    reasons = missing()
    assert kinds | {name.split("/")[0] for name in reasons} == {
        "cpu", "psi", "memory", "disk", "network", "process", "gpu"
    }  # fmt: skip
    assert all(len(reason) > 5 for reason in reasons.values())


TOY = """
class Meter:
    name, detail = "toy/0", "a meter of the power supply"
    def read(self): return {"toy/0/volts": 12.5}
    def close(self): pass
def meters(): return [Meter()]
def broken(): raise OSError("the meter is not plugged in")
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A package with two probes as an installer leaves it, of which one does not work here."""
    place = tmp_path / "site"
    about = place / "toy_probes-0.1.dist-info"
    about.mkdir(parents=True)
    (place / "toy_probes.py").write_text(TOY)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-probes\nVersion: 0.1\n")
    points = "meter = toy_probes:meters\nbroken = toy_probes:broken\nabsent = toy_probes:nothing\n"
    (about / "entry_points.txt").write_text(f"[{GROUP}]\n{points}")
    return place


def test_probes_of_other_packages_are_found_by_their_entry_point(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read like our own, by the first rank of a host; one that does not work gives its reason."""
    monkeypatch.syspath_prepend(str(toy))
    found, reasons = survey()
    assert [probe.read() for probe in found if probe.name == "toy/0"] == [{"toy/0/volts": 12.5}]
    assert reasons["broken"] == "the meter is not plugged in"
    assert "nothing" in reasons["absent"]
    assert [probe.name for probe in available(host=False)] == ["process"]


def test_gpus_of_no_maker_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a GPU of one maker, nobody is told about the others; without any there is one reason."""

    def none() -> list[Probe]:
        raise OSError("none of these")

    for maker in (nvml, amd, tpu):
        monkeypatch.setattr(maker, "open_gpus", none)
    assert missing()["gpu"] == "none of these; none of these; none of these"
    monkeypatch.setattr(amd, "open_gpus", lambda: [Fake("gpu/0")])
    found, reasons = survey()
    assert "gpu/0" in [probe.name for probe in found]
    assert not [name for name in reasons if name.startswith("gpu")]


def test_a_rank_that_does_not_speak_for_its_host_reads_itself_only() -> None:
    """Several ranks of one host need not all report the same machine."""
    assert [probe.name for probe in available(host=False)] == ["process"]


def test_one_write_per_round_holds_all_probes() -> None:
    """All values of one moment arrive together, every interval."""
    written, said = run([Fake("a"), Fake("b")], rounds=3)
    assert written == [{"a/count": n, "b/count": n} for n in (1, 2, 3)]
    assert said == []


def test_a_probe_that_raises_is_off_and_reported_once() -> None:
    """One broken sensor costs its own values only."""
    broken, sound = Fake("broken", fail), Fake("sound")
    written, said = run([broken, sound], rounds=3)
    assert written == [{"sound/count": n} for n in (1, 2, 3)]
    assert said == ["the broken probe is off: OSError: the sensor is gone"]
    assert broken.count == 1
    assert (broken.closed, sound.closed) == (1, 1)


def test_no_probe_left_ends_the_thread() -> None:
    """A thread with nothing to read is not kept."""
    written, said = run([Fake("broken", fail)], rounds=99)
    assert written == []
    assert len(said) == 1


def test_a_write_that_raises_is_reported_once_and_reading_goes_on() -> None:
    """A failing destination does not stop the probes."""
    said: list[str] = []
    probe = Fake("a")

    def write(reading: Reading) -> None:
        raise RuntimeError("no")

    thread = Probes(write, 5.0, [probe], notice=said.append, wait=Rounds(3))
    thread.start()
    assert thread.stop(300)
    assert said == ["probe values cannot be written: RuntimeError: no"]
    assert probe.count == 3


def test_a_notice_that_raises_hurts_nobody() -> None:
    """A callback that raises does not stop the probes."""
    written: list[Reading] = []

    def notice(text: str) -> None:
        raise RuntimeError("no")

    thread = Probes(written.append, 5.0, [Fake("x", fail), Fake("a")], notice=notice, wait=Rounds(2))
    thread.start()
    assert thread.stop(300)
    assert len(written) == 2


def test_rounds_keep_their_pace_and_missed_ones_are_not_made_up_for() -> None:
    """A slow reading shortens the next wait; after a long halt there is one reading, not many."""
    now = [0.0]
    wait = Rounds(3)
    takes = iter((1.0, 60.0, 2.0))

    def act(count: int) -> None:
        now[0] += next(takes)

    thread = Probes(lambda reading: None, 5.0, [Fake("slow", act)], clock=lambda: now[0], wait=wait)
    thread.start()
    assert thread.stop(300)
    assert wait.asked == [4.0, 0.0, 3.0]


def test_stop_is_prompt_while_waiting() -> None:
    """A stop does not wait for the interval to pass."""
    first = threading.Event()
    thread = Probes(lambda reading: first.set(), 3600.0, [Fake("a")])
    thread.start()
    assert first.wait(300)
    assert thread.stop(300)


def test_stop_is_bounded_when_a_probe_hangs() -> None:
    """A probe that never returns is left behind."""
    reading, release = threading.Event(), threading.Event()

    def hang(count: int) -> None:
        reading.set()
        release.wait(300)

    thread = Probes(lambda values: None, 5.0, [Fake("hung", hang)])
    thread.start()
    assert reading.wait(300)
    assert not thread.stop(0.05)
    release.set()
    assert thread.stop(300)


def test_starting_twice_is_starting_once_and_a_stopped_one_starts_again() -> None:
    """Starting twice starts one thread; a stopped watch can be started again."""
    seen: list[str] = []
    told = threading.Event()

    def write(reading: Reading) -> None:
        seen.append(threading.current_thread().name)
        told.set()

    before = threading.active_count()
    thread = Probes(write, 3600.0, [Fake("a")])
    for _ in range(2):
        thread.start()
        thread.start()
        assert told.wait(300)
        assert threading.active_count() == before + 1
        assert thread.stop(300)
        told.clear()
    assert seen == ["stepscope-probes"] * 2


def test_stop_without_start() -> None:
    """Stopping before the start succeeds."""
    assert Probes(lambda reading: None).stop(0)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_nothing_runs_in_a_forked_child() -> None:
    """The child has no probe thread, and stopping there neither waits nor fails."""
    written: list[Reading] = []
    thread = Probes(written.append, 0.01, [Fake("a")])
    thread.start()
    child = os.fork()
    if child == 0:
        count = len(written)
        alone = threading.active_count() == 1
        os._exit(0 if alone and thread.stop(5) and len(written) == count else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert thread.stop(300)
