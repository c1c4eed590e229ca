"""The probes of the machine, against the real /proc of the machine that runs the test."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.sdk.probes import system, watch

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="this machine has no /proc")


class Clock:
    """A clock that only moves when the test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_first_rate_is_missing_not_zero() -> None:
    """A rate needs two readings; until then there is none."""
    clock = Clock()
    rates = system.Rates(clock)
    assert rates.per_second("sent", 1000) is None
    clock.now += 2
    assert rates.per_second("sent", 1500) == 250.0


def test_rate_over_no_time_is_missing_and_loses_nothing() -> None:
    """Two readings at nearly the same time give no rate, and the next one counts from the first."""
    clock = Clock()
    rates = system.Rates(clock)
    rates.per_second("sent", 1000)
    clock.now += 0.01
    assert rates.per_second("sent", 1100) is None
    clock.now += 0.99
    assert rates.per_second("sent", 1200) == pytest.approx(200.0)


def test_a_total_that_goes_back_gives_no_rate() -> None:
    """A counter that starts again (a new interface, a resumed machine) is no negative traffic."""
    clock = Clock()
    rates = system.Rates(clock)
    rates.per_second("sent", 1000)
    clock.now += 1
    assert rates.per_second("sent", 10) is None
    clock.now += 1
    assert rates.per_second("sent", 30) == 20.0


def spin(seconds: float) -> None:
    """Burn cpu time of this process, so that the kernel's counters move."""
    end = os.times().user + seconds
    while os.times().user < end:
        sum(range(10_000))


def test_cpu() -> None:
    """Utilisation is a fraction of the cpus we may use, absent from the first reading."""
    probe = system.Cpu()
    first = probe.read()
    spin(0.3)
    second = probe.read()
    assert "cpu/utilization" not in first
    assert 0 < second["cpu/utilization"] <= 1
    assert 0 < second["cpu/count"] <= (os.cpu_count() or 1)
    assert second["cpu/load_1m"] >= 0


def test_cpu_under_a_quota(tmp_path: Path) -> None:
    """Under a quota the whole is the quota, and throttled time is reported."""
    top, own, clock = tmp_path / "cgroup", tmp_path / "self", Clock()
    top.mkdir()
    own.mkdir()
    (own / "cgroup").write_text("0::/\n")
    (own / "mountinfo").write_text(f"30 23 0:26 / {top} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "loadavg").write_text("0.50 0.40 0.30 1/100 123\n")
    (top / "cpu.max").write_text("50000 100000\n")
    (top / "cpu.stat").write_text("usage_usec 1000000\nthrottled_usec 0\n")
    probe = system.Cpu(tmp_path, clock)
    assert probe.read() == {"cpu/load_1m": 0.5, "cpu/count": 0.5}
    (top / "cpu.stat").write_text("usage_usec 2000000\nthrottled_usec 400000\n")
    clock.now += 4
    assert probe.read() == {
        "cpu/load_1m": 0.5,
        "cpu/count": 0.5,
        "cpu/utilization": pytest.approx(0.5),
        "cpu/throttled_seconds_per_second": pytest.approx(0.1),
    }


def test_cpu_counts_only_the_cpus_given(tmp_path: Path) -> None:
    """The cpus of others do not count, nor the sum over all."""
    stat = "cpu 9 9 9 9 9 9 9 9 9 9\ncpu0 10 0 10 70 10 0 0 0 5 0\ncpu1 99 0 0 1 0 0 0 0 0 0\nintr 5\n"
    assert system._ticks(stat, {0}) == (20, 100)


def test_pressure(tmp_path: Path) -> None:
    """The shares of time that tasks waited for CPU, storage and memory, as the kernel writes them."""
    (tmp_path / "pressure").mkdir()
    for name, share in (("cpu", "62.50"), ("io", "0.70"), ("memory", "0.00")):
        text = f"some avg10={share} avg60=57.66 avg300=33.76 total=8839561909\nfull avg10=1.00 avg60=0.00 total=0\n"
        (tmp_path / "pressure" / name).write_text(text)
    assert system.Pressure(tmp_path).read() == {
        "psi/cpu": pytest.approx(0.625),
        "psi/io": pytest.approx(0.007),
        "psi/memory": 0.0,
    }


def test_pressure_of_this_machine() -> None:
    """Where the kernel counts it, the shares are recorded with the other readings of the machine."""
    found, reasons = watch.survey()
    for probe in found:
        probe.close()
    readings = [probe.read() for probe in found if probe.name == "psi"]
    assert "psi" in reasons or all(0 <= share <= 1 for reading in readings for share in reading.values())
    assert ("psi" in reasons) == (not readings)


def test_memory() -> None:
    """Used memory is part of the limit."""
    reading = system.Memory().read()
    assert 0 < reading["memory/used_bytes"] < reading["memory/limit_bytes"]
    assert reading["memory/utilization"] == reading["memory/used_bytes"] / reading["memory/limit_bytes"]
    assert reading["memory/swap_used_bytes"] >= 0


def test_memory_under_a_limit(tmp_path: Path) -> None:
    """The limit of the control group is the limit, unless the machine has less."""
    own, top = tmp_path / "self", tmp_path / "cgroup"
    own.mkdir()
    top.mkdir()
    (own / "cgroup").write_text("0::/\n")
    (own / "mountinfo").write_text(f"30 23 0:26 / {top} rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "meminfo").write_text("MemTotal: 8 kB\nMemAvailable: 6 kB\n")
    (top / "memory.max").write_text("4096\n")
    (top / "memory.current").write_text("1024\n")
    (top / "memory.stat").write_text("inactive_file 0\n")
    probe = system.Memory(tmp_path)
    reading = probe.read()
    assert (reading["memory/used_bytes"], reading["memory/limit_bytes"]) == (1024, 4096)
    (top / "memory.max").write_text("999999999\n")
    reading = probe.read()
    assert (reading["memory/used_bytes"], reading["memory/limit_bytes"]) == (2048, 8192)


def test_disk(tmp_path: Path) -> None:
    """Space is that of the folder's file system; traffic appears with the second reading."""
    clock = Clock()
    probe = system.Disk(str(tmp_path), clock=clock)
    first = probe.read()
    clock.now += 1
    second = probe.read()
    assert 0 < first["disk/used_bytes"] <= first["disk/total_bytes"]
    assert 0 <= first["disk/utilization"] <= 1
    assert "disk/read_bytes_per_second" not in first
    assert second["disk/read_bytes_per_second"] >= 0
    assert second["disk/written_bytes_per_second"] >= 0


def test_disk_counts_each_byte_once(tmp_path: Path) -> None:
    """Whole disks count; partitions, loops and stacked devices do not."""
    clock = Clock()
    (tmp_path / "block" / "sda").mkdir(parents=True)
    (tmp_path / "block" / "dm-0").mkdir()

    def write_stats(sectors: int) -> None:
        names = ("sda", "sda1", "dm-0")
        rows = [f"8 0 {name} 1 0 {sectors} 0 1 0 {sectors * 2} 0 0 0 0" for name in names]
        (tmp_path / "diskstats").write_text("\n".join(rows))

    write_stats(0)
    probe = system.Disk("/", tmp_path, tmp_path, clock)
    probe.read()
    write_stats(10)
    clock.now += 1
    reading = probe.read()
    assert reading["disk/read_bytes_per_second"] == 5120
    assert reading["disk/written_bytes_per_second"] == 10240


def test_network() -> None:
    """Received and sent bytes per second, never those of the loopback."""
    clock = Clock()
    probe = system.Network(clock=clock)
    assert probe.read() == {}
    clock.now += 1
    reading = probe.read()
    assert set(reading) == {"network/received_bytes_per_second", "network/sent_bytes_per_second"}
    assert "lo" not in probe.detail.split(", ")


def test_process() -> None:
    """The values of this process are those of the kernel."""
    probe = system.Process()
    first = probe.read()
    release = threading.Event()
    with open("/dev/null"):
        thread = threading.Thread(target=release.wait)
        thread.start()
        spin(0.2)
        second = probe.read()
    release.set()
    thread.join()
    assert "process/cpu_cores" not in first
    assert second["process/cpu_cores"] > 0
    assert second["process/rss_bytes"] > 1_000_000
    assert second["process/threads"] == first["process/threads"] + 1
    assert second["process/open_files"] == first["process/open_files"] + 1


@pytest.mark.parametrize("open_probe", [system.Cpu, system.Memory, system.Disk, system.Network, system.Process])
def test_a_probe_tells_what_it_reads(open_probe: Callable[[], system.Cpu]) -> None:
    """Every probe has a name, in front of all its keys, and a detail for people."""
    probe = open_probe()
    assert probe.detail
    assert all(key.startswith(f"{probe.name}/") for key in probe.read())
    probe.close()
