"""The probes for machines without /proc, with the real psutil."""

import sys

import pytest

from stepscope.sdk.probes import system

NAMES = ("cpu", "memory", "disk", "network", "process")


@pytest.mark.parametrize("name", NAMES)
def test_reads_the_same_keys_as_the_probes_of_proc(name: str) -> None:
    """A chart looks the same whichever way its values were read."""
    pytest.importorskip("psutil")
    now = [0.0]
    probe = system.open_portable(name, clock=lambda: now[0])
    first = probe.read()
    now[0] = 1.0
    second = probe.read()
    assert not {key for key in first if "per_second" in key or key.endswith("cpu_cores")}
    assert set(second) <= KEYS
    assert all(key.startswith(f"{name}/") for key in second)


def test_without_psutil_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing psutil is reported with the command that installs it."""
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(ImportError, match=r"pip install 'stepscope\[probes\]'"):
        system.open_portable("cpu")


KEYS = {
    "cpu/count",
    "cpu/load_1m",
    "cpu/utilization",
    "memory/used_bytes",
    "memory/limit_bytes",
    "memory/utilization",
    "memory/swap_used_bytes",
    "disk/total_bytes",
    "disk/free_bytes",
    "disk/used_bytes",
    "disk/utilization",
    "disk/read_bytes_per_second",
    "disk/written_bytes_per_second",
    "network/received_bytes_per_second",
    "network/sent_bytes_per_second",
    "process/rss_bytes",
    "process/threads",
    "process/open_files",
    "process/cpu_cores",
}
