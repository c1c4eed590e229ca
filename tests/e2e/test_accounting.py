"""Every record offered is written, dropped or rejected, and the counters in the journal say how many of each."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.model import names
from stepscope.model.records import Alert, Event, Metric, Record, kind

Python = Callable[..., Any]
Read = Callable[..., Any]

# Offers 2,000 of each kind, one value in each metric, and as many values that are not numbers.
OFFER = """
    import json, logging, os, sys, threading, time
    import stepscope

    COUNT = 2000

    def offer(run, count=COUNT):
        log = logging.getLogger("trainer")
        for index in range(count):
            run.log({"loss": index}, step=index)
            run.log({"text": "no number"}, step=index)
            with run.span("work"):
                pass
            run.event("event", {"index": index})
            run.alert("alert", "WARN", "message")
            log.info("line")

    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger().addHandler(logging.NullHandler())
"""
KINDS = ("metric", "span", "log", "event", "alert")


def totals(counters: dict[str, int], outcome: str, reason: str = "") -> Counter[str]:
    """Add counters up by kind."""
    found: Counter[str] = Counter()
    for name, count in counters.items():
        parts = name.split("/")
        if parts[0] == outcome and (not reason or parts[-1] == reason):
            found[parts[1]] += count
    return found


def last_counters(records: list[Record]) -> dict[str, int]:
    """What the process says of itself in its last record of that sort."""
    own = [record.values for record in records if isinstance(record, Metric) and record.category == "stepscope"]
    return {key: int(value) for key, value in max(own, key=lambda values: values["beats"]).items()}  # type: ignore[arg-type]


def check(records: Read, offered: int = 2000, home: Path | None = None) -> dict[str, int]:
    """Compare what can be read, what the counters say and what was offered; they must agree exactly."""
    found: list[Record] = records() if home is None else records(home=home)
    counters = last_counters(found)
    read, dropped = Counter(map(kind, found)), totals(counters, "dropped")
    findings = sum(isinstance(record, Alert) and record.name == names.ALERT_FINDING for record in found)
    beats = [0, *sorted(each.time for each in found if isinstance(each, Metric) and each.category == "stepscope")]
    named = [record.time for record in found if isinstance(record, Event) and record.name == names.EVENT_REJECTED]
    own = {"metric": counters["beats"], "span": 1, "event": 2 + len(named), "alert": findings}
    assert {each: read[each] + dropped[each] for each in KINDS} == {each: offered + own.get(each, 0) for each in KINDS}
    written = totals(counters, "written") - totals(counters, "dropped", "disk")
    ended = 1 + sum(time > beats[-2] for time in named)
    last = Counter(metric=1, span=1, event=ended)  # written with the counters, so not in them
    assert {each: written[each] + last[each] for each in KINDS} == {each: read[each] for each in KINDS}
    assert totals(counters, "rejected") == {"value": offered}
    return counters


def test_nothing_is_dropped(python: Python, records: Read) -> None:
    """With enough memory and disk, every record is written."""
    done = python(OFFER + "    offer(stepscope.init())")
    assert done.returncode == 0, done.stderr
    assert not totals(check(records), "dropped")


def test_many_threads(python: Python, records: Read) -> None:
    """Threads that offer at the same time, with little memory and a fast disk."""
    done = python(
        OFFER
        + """
    run = stepscope.init(memory_quota="64KiB")
    threads = [threading.Thread(target=offer, args=(run, COUNT // 4)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    """
    )
    assert done.returncode == 0, done.stderr
    check(records)


def test_memory_is_full_for_a_while(python: Python, records: Read, home: Path) -> None:
    """A disk that cannot be written to, until it can: what did not fit into memory is counted, events are all there."""
    home.write_text("in the way")
    done = python(
        OFFER
        + """
    run = stepscope.init(memory_quota="512KiB")
    offer(run)
    waiting = sum(map(len, run.recorder.buffer))
    assert waiting < 600_000, waiting
    os.unlink(os.environ["STEPSCOPE_HOME"])
    assert run.flush()
    """
    )
    assert done.returncode == 0, done.stderr
    dropped = totals(check(records), "dropped", "memory")
    assert dropped["metric"] > 0
    assert dropped["log"] > 0
    assert dropped["event"] == dropped["alert"] == 0


def test_the_disk_quota_is_full(python: Python, records: Read, home: Path) -> None:
    """A journal that reaches its quota is thinned; what went is counted, events and alerts stay."""
    done = python(
        OFFER
        + """
    run = stepscope.init(disk_quota="600kB")
    for _ in range(20):  # in pieces, however busy the machine: what is written at once cannot be thinned before
        offer(run, COUNT // 20)
        assert run.flush()
    """
    )
    assert done.returncode == 0, done.stderr
    dropped = totals(check(records), "dropped", "disk")
    assert dropped["log"] > 0
    assert dropped["event"] == dropped["alert"] == 0
    size = sum(path.stat().st_size for path in home.rglob("*.seg"))
    assert size < 660_000


def test_a_full_disk_at_the_end(python: Python, small_disk: Path) -> None:
    """When the disk stays full, the process knows at its end what it could not keep."""
    (small_disk / "filler").write_bytes(bytes(2 * 1024 * 1024 - 64 * 1024))
    done = python(
        OFFER
        + """
    run = stepscope.init(exit_timeout=1)
    offer(run)
    assert not run.finish()
    run.log({"late": 1.0})
    print(json.dumps(run.outcomes.snapshot()))
    """,
        env={"STEPSCOPE_HOME": str(small_disk / "home")},
    )
    assert done.returncode == 0, done.stderr
    counters = json.loads(done.stdout)
    taken = totals(counters, "written") + totals(counters, "dropped")
    assert {each: taken[each] for each in ("span", "log", "alert")} == {"span": 2001, "log": 2000, "alert": 2000}
    assert (taken["event"], counters["dropped/metric/finished"] > 0) == (2003, True)


def test_bytes_in_memory_are_bounded(python: Python) -> None:
    """A dead disk and fifty megabytes of records leave the process about as large as it was."""
    done = python(
        """
    import resource
    import stepscope

    run = stepscope.init(home="/proc/nowhere", memory_quota="4MiB", exit_timeout=1)
    big = {f"metric/{index:04d}": float(index) for index in range(1000)}
    run.log(big)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for index in range(2000):
        run.log(big, step=index)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 35


def test_a_device_that_fails(python: Python, records: Read) -> None:
    """Values that a device never delivers are rejected or dropped by name; the others arrive."""
    pytest.importorskip("torch", reason="torch is not installed")
    done = python(
        """
    import torch
    import stepscope

    run = stepscope.init(exit_timeout=10)
    for index in range(100):
        run.log({"nowhere": torch.ones((), device="meta")}, step=index)
        run.log({"host": torch.tensor(float(index))}, step=index)
        run.log({"plain": index}, step=index)
    """
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    found = records()
    counters = last_counters(found)
    keys = Counter(key for record in found if isinstance(record, Metric) for key in record.values)
    assert (keys["host"], keys["plain"], keys["nowhere"]) == (100, 100, 0)
    assert sum((totals(counters, "dropped") + totals(counters, "rejected")).values()) == 100
