"""Limits of control groups, read from trees of real files laid out as the kernel does."""

from pathlib import Path

import pytest

from stepscope.sdk.probes import cgroup


def put(folder: Path, **files: str) -> None:
    """Write the files of a control group; `memory_max` becomes memory.max."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{text}\n")


def proc_of(tmp_path: Path, groups: str, mounts: str) -> Path:
    """Write the two files that tell where a process's groups lie."""
    own = tmp_path / "proc" / "self"
    own.mkdir(parents=True)
    (own / "cgroup").write_text(groups)
    (own / "mountinfo").write_text(mounts)
    return own.parent


@pytest.fixture
def v2(tmp_path: Path) -> Path:
    """A process in /job/rank of a cgroup2 mount; returns the top folder, beside which `proc` lies."""
    top = tmp_path / "cgroup"
    proc_of(tmp_path, "0::/job/rank\n", f"30 23 0:26 / {top} rw,nosuid - cgroup2 cgroup2 rw\n")
    put(top / "job" / "rank", memory_max="max", cpu_max="max 100000")
    return top


def test_v2_takes_the_tightest_limit_of_all_groups_around(v2: Path, tmp_path: Path) -> None:
    """A limit set on an outer group holds for the process inside it."""
    put(v2 / "job", memory_max="1000000", memory_current="700000", memory_stat="anon 1\ninactive_file 200000")
    put(v2 / "job" / "rank", memory_max="4000000")
    group = cgroup.find_memory(tmp_path / "proc")
    assert group is not None
    assert (group.limit(), group.used()) == (1_000_000, 500_000)


def test_v2_cpu_quota(v2: Path, tmp_path: Path) -> None:
    """A quota is given in CPUs, its use and its throttling in seconds."""
    put(v2 / "job" / "rank", cpu_max="150000 100000", cpu_stat="usage_usec 2500000\nthrottled_usec 500000")
    group = cgroup.find_cpu(tmp_path / "proc")
    assert group is not None
    assert (group.cores(), group.used(), group.throttled()) == (1.5, 2.5, 0.5)


def test_no_limit_is_none(v2: Path, tmp_path: Path) -> None:
    """`max` is no limit."""
    assert cgroup.find_memory(tmp_path / "proc") is None
    assert cgroup.find_cpu(tmp_path / "proc") is None


def test_v1_limits(tmp_path: Path) -> None:
    """The older layout, one mount per controller, is understood too, also beside an empty cgroup2 mount."""
    top = tmp_path / "a folder"
    escaped = str(top).replace(" ", "\\040")
    mounts = "".join(
        f"3{n} 29 0:3{n} /docker/x {escaped}/{name} rw - cgroup cgroup rw,{name}\n"
        for n, name in enumerate(("cpu", "cpuacct", "memory"))
    )
    proc = proc_of(
        tmp_path,
        "4:memory:/docker/x\n2:cpuacct:/docker/x\n1:cpu:/docker/x\n0::/\n",
        f"43 33 0:40 / {top}/unified rw - cgroup2 cgroup2 rw\n{mounts}",
    )
    put(top / "memory", memory_limit_in_bytes="2048", memory_usage_in_bytes="1024", memory_stat="cache 5")
    put(
        top / "cpu",
        cpu_cfs_quota_us="50000",
        cpu_cfs_period_us="100000",
        cpu_stat="throttled_time 1000000000",
    )
    put(top / "cpuacct", cpuacct_usage="3000000000")
    memory, cpu = cgroup.find_memory(proc), cgroup.find_cpu(proc)
    assert memory is not None
    assert (memory.limit(), memory.used()) == (2048, 1024)
    assert cpu is not None
    assert (cpu.cores(), cpu.used(), cpu.throttled()) == (0.5, 3.0, 1.0)


def test_v1_writes_no_limit_as_a_huge_number(tmp_path: Path) -> None:
    """A limit near 2**63 is none, and -1 is no quota."""
    top = tmp_path / "cgroup"
    mounts = f"37 33 0:34 / {top} rw - cgroup cgroup rw,memory,cpu,cpuacct\n"
    proc = proc_of(tmp_path, "4:memory,cpu,cpuacct:/\n", mounts)
    put(top, memory_limit_in_bytes=str(2**63 - 4096), cpu_cfs_quota_us="-1", cpu_cfs_period_us="100000")
    assert cgroup.find_memory(proc) is None
    assert cgroup.find_cpu(proc) is None


@pytest.mark.parametrize("groups", ["", "0::/../../elsewhere\n", "0::/gone\n"])
def test_odd_groups_mean_the_mount_itself_or_nothing(groups: str, tmp_path: Path) -> None:
    """A group outside our view, a vanished one, or none at all: never an error."""
    top = tmp_path / "cgroup"
    put(top, memory_max="4096")
    proc = proc_of(tmp_path, groups, f"30 23 0:26 / {top} rw - cgroup2 cgroup2 rw\n")
    found = cgroup.find_memory(proc)
    assert found is None if not groups else found is not None and found.folder == top


def test_this_machine() -> None:
    """Reading the limits of this process never fails."""
    for found in (cgroup.find_memory(), cgroup.find_cpu()):
        assert found is None or found.used() >= 0
