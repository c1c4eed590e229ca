"""Bytes on disk and CPU seconds of the store for points, spans and questions: embedded, on a server, on a cluster."""

# CPU seconds, unlike seconds, hold on a machine that is busy with other things.

import argparse
import contextlib
import math
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from stepscope.hub.questions.series import SeriesQuery, read_series
from stepscope.hub.questions.step.step_sql import read_step
from stepscope.hub.store import maintenance
from stepscope.hub.store.read.run_catalog import list_runs, run_number
from stepscope.hub.store.store import Store, open_server, open_store
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric, Record, Span
from stepscope.testing.clickhouse import ServerProcess, free_port, program, running
from stepscope.testing.clickhouse_cluster import ZooKeeperProcess, missing, running_cluster

KEYS = 50
RANKS = 8
SPANS = 10
START = 1_790_000_000_000_000_000
STEP_NS = 500_000_000


def noise(step: int, key: int) -> float:
    """The same small number each time."""
    return ((step * 7919 + key * 104729) % 1000) / 1e5


def points_of(rank: int, steps: range) -> list[Record]:
    """What a rank logs: values that change a little from step to step, as measured ones do."""
    return [
        Metric(
            START + step * STEP_NS + rank, step, None, "trainer",
            {f"metric_{key}": math.sin(step / 300 + key) + noise(step, key) for key in range(KEYS)},
        )
        for step in steps
    ]  # fmt: skip


def spans_of(rank: int, steps: range) -> list[Record]:
    """The phases of each step, in a trace of their own."""
    made: list[Record] = []
    for step in steps:
        trace = (step * RANKS + rank).to_bytes(8, "big") * 2
        for index in range(SPANS):
            begin = START + step * STEP_NS + index * STEP_NS // SPANS
            took = STEP_NS // SPANS - (step * 31 + index * 17 + rank) % 1_000_003
            attrs = {"batch_size": 32, "layer": index, "device": f"cuda:{rank}"}
            made.append(
                Span(
                    begin, took, step, None, trace, (index + 1).to_bytes(8, "big"), None, f"phase_{index}", attrs=attrs
                )
            )
    return made


def write(store: Store, make: Callable[[int, range], list[Record]], name: str, steps: int, commits: int) -> None:
    """Write the steps of all ranks in a number of commits."""
    portion = steps // commits
    for seq in range(commits):
        part = range(seq * portion, (seq + 1) * portion)
        ranks = range(RANKS)
        batches = [
            Batch(Writer(id=f"{name}{rank}", run=name, project="bench", rank=rank), seq, make(rank, part))
            for rank in ranks
        ]
        assert store.write_many(batches) == [None] * RANKS


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured: its name, CPU seconds or milliseconds of it, and a line about it."""

    name: str
    cpu: float
    line: str


def measure(store: Store, cpu: Callable[[], float], steps: int, commits: int) -> Iterator[Figure]:
    """Yield the figures of points and those of spans."""
    kinds = (("point", points_of, KEYS, ("metrics", "totals")), ("span", spans_of, SPANS, ("spans", "traces")))
    for noun, make, each, tables in kinds:
        count = steps * RANKS * each
        built = resource.getrusage(resource.RUSAGE_SELF)
        made = [make(rank, range(steps)) for rank in range(RANKS)]
        spent = resource.getrusage(resource.RUSAGE_SELF)
        making = spent.ru_utime + spent.ru_stime - built.ru_utime - built.ru_stime
        del made
        before = cpu()
        write(store, make, noun, steps, commits)
        writing = cpu() - before - making
        maintenance.compact(store.engine)
        after = cpu() - before - making
        sizes = {table.name: table.bytes for table in maintenance.info(store.engine).tables}
        size = sum(sizes[table] for table in tables)
        yield Figure(
            f"ingest of {noun}s",
            after / count * 1e6,
            f"{noun}: {count:,} written, {writing / count * 1e6:.2f} CPU s per million when written, "
            f"{after / count * 1e6:.2f} with all merges, {size / count:.2f} bytes",
        )


def ask(store: Store, cpu: Callable[[], float], times: int) -> Iterator[Figure]:
    """Yield the figures of each kind of question."""
    number = run_number(store.engine, "point")
    spans = run_number(store.engine, "span")
    assert number is not None
    assert spans is not None
    engine = store.engine
    kinds: dict[str, Callable[[], object]] = {
        "runs table": lambda: list_runs(engine, keys=["trainer/metric_0"]),
        "series": lambda: read_series(engine, SeriesQuery(number, "trainer/metric_0")),
        "step": lambda: read_step(engine, spans, 10),
    }
    for noun, question in kinds.items():
        question()
        before, began = cpu(), time.monotonic()
        for _ in range(times):
            question()
        used, took = (cpu() - before) / times, (time.monotonic() - began) / times
        yield Figure(noun, used * 1e3, f"{noun}: {used * 1e3:.1f} CPU ms a question, {took * 1e3:.0f} ms")


def own_cpu() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_of(pid: int) -> float:
    """CPU seconds of another process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pid_of(process: ServerProcess | ZooKeeperProcess) -> int:
    """The id of a process that runs."""
    assert process.process is not None
    return process.process.pid


def compare(measured: Mapping[str, Sequence[Figure]]) -> Iterator[str]:
    """Yield the ratio of each figure to that of the embedded store."""
    for index, figure in enumerate(measured["embedded"]):
        others = (name for name in measured if name != "embedded")
        ratios = ", ".join(f"{name} {measured[name][index].cpu / figure.cpu:.2f}" for name in others)
        yield f"{figure.name}, CPU of embedded = 1: {ratios}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="steps of each of the eight ranks")
    parser.add_argument("--commits", type=int, default=20, help="commits in which they are written")
    parser.add_argument("--questions", type=int, default=20, help="how often each question is asked")
    given = parser.parse_args(arguments)

    measured: dict[str, list[Figure]] = {}

    def show(name: str, store: Store, processes: Mapping[str, int]) -> None:
        def cpu() -> float:
            return own_cpu() + sum(map(cpu_of, processes.values()))

        measured[name] = []
        with contextlib.closing(store):
            before = {"this process": own_cpu(), **{each: cpu_of(pid) for each, pid in processes.items()}}
            for figure in chain(measure(store, cpu, given.steps, given.commits), ask(store, cpu, given.questions)):
                measured[name].append(figure)
                print(f"{name}: {figure.line}", flush=True)
                now = {"this process": own_cpu(), **{each: cpu_of(pid) for each, pid in processes.items()}}
                parts = ", ".join(f"{each} {now[each] - before[each]:.2f}" for each in now)
                print(f"{name}:   CPU s of each process: {parts}", flush=True)
                before = now

    with tempfile.TemporaryDirectory() as folder:
        show("embedded", open_store(Path(folder) / "store"), {})
        if program() is None:
            return
        with running(ServerProcess(Path(folder) / "server", free_port())) as server:
            show("server", open_server(server.url()), {"server": pid_of(server)})
        if not missing():
            with running_cluster(Path(folder) / "cluster") as cluster:
                processes = {
                    f"shard {shard + 1} replica {replica + 1}": pid_of(each)
                    for shard, replicas in enumerate(cluster.servers)
                    for replica, each in enumerate(replicas)
                }
                show("cluster", open_server(cluster.url()), {**processes, "ZooKeeper": pid_of(cluster.zookeeper)})
        for line in compare(measured):
            print(line)


if __name__ == "__main__":
    main()
