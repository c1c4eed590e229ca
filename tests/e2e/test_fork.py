"""After a fork: the child has its own writer, the parent's records are written once, nothing deadlocks."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.records import Event, Metric, Span

Python = Callable[..., Any]
Read = Callable[..., Any]

WORK = """
    import multiprocessing, os, sys
    import stepscope

    def work(name, count=50):
        for index in range(count):
            stepscope.log({name: index}, step=index)

    def join_and_work(name):
        stepscope.init()
        work(name)
"""


def counted(batches: Read) -> dict[str, list[int]]:
    """The logged indices by key, sorted."""
    found: dict[str, list[int]] = {}
    for batch in batches():
        for record in batch.records:
            if isinstance(record, Metric) and record.category is None:
                for key, value in record.values.items():
                    found.setdefault(key, []).append(value)
    return {key: sorted(values) for key, values in found.items()}


def writers(batches: Read) -> list[Writer]:
    """Everyone who wrote, the main one first."""
    found = {batch.writer.id: batch.writer for batch in batches()}
    return sorted(found.values(), key=lambda writer: (not writer.main, writer.pid))


def endings(records: Read) -> list[str]:
    """How the run says it ended."""
    return [event.attrs["status"] for event in records(Event) if event.name == names.EVENT_FINISHED]


def test_os_fork(python: Python, batches: Read, records: Read) -> None:
    """A forked child has its own writer in the same run and attempt; what the parent had buffered is written once."""
    done = python(
        WORK
        + """
    run = stepscope.init(flush_interval=5)
    work("before")
    if os.fork() == 0:
        work("child")
        sys.exit(7)
    work("after")
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert counted(batches) == {key: list(range(50)) for key in ("before", "child", "after")}
    parent, child = writers(batches)
    assert (parent.main, child.main) == (True, False)
    assert (parent.attempt, parent.rank) == (child.attempt, child.rank) == (1, 0)
    assert parent.pid != child.pid
    assert endings(records) == ["finished"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(python: Python, batches: Read, records: Read, method: str) -> None:
    """A child of multiprocessing, which leaves by os._exit, loses nothing and does not end the run."""
    done = python(
        WORK
        + f"""
    if __name__ == "__main__":
        run = stepscope.init()
        work("parent")
        assert run.flush()
        target = work if "{method}" == "fork" else join_and_work
        children = [
            multiprocessing.get_context("{method}").Process(target=target, args=(f"child{{n}}",)) for n in range(2)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join()
            assert child.exitcode == 0
        work("after")
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert counted(batches) == {key: list(range(50)) for key in ("parent", "child0", "child1", "after")}
    assert [(writer.main, writer.attempt) for writer in writers(batches)] == [(True, 1), (False, 1), (False, 1)]
    assert endings(records) == ["finished"]


def test_a_child_may_begin_its_own_run(python: Python, batches: Read, records: Read) -> None:
    """A child of multiprocessing that calls init loses nothing either."""
    done = python(
        """
    import multiprocessing, stepscope

    def work():
        run = stepscope.init(run_id="other")
        for index in range(100):
            run.log({"a": index}, step=index)

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len([record for record in records(Metric, run="other") if "a" in record.values]) == 100
    assert [event.name for event in records(Event, run="other")][-1] == names.EVENT_FINISHED


def test_nested_forks(python: Python, batches: Read, records: Read) -> None:
    """A child of a child writes too, and all agree on the attempt."""
    done = python(
        WORK
        + """
    stepscope.init()
    for depth in range(3):
        work(f"depth{depth}")
        if os.fork():
            os.wait()
            break
    else:
        work("deepest")
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert counted(batches) == {key: list(range(50)) for key in ("depth0", "depth1", "depth2", "deepest")}
    assert Counter((writer.main, writer.attempt) for writer in writers(batches)) == {(True, 1): 1, (False, 1): 3}
    assert endings(records) == ["finished"]


def test_forks_under_fire(python: Python, batches: Read, records: Read) -> None:
    """Fifty forks while another thread logs at full speed: no deadlock, nothing lost, nothing twice."""
    done = python(
        """
    import os, threading
    import stepscope

    run = stepscope.init()
    enough = threading.Event()

    def fire():
        index = 0
        while not enough.is_set():
            with run.span("shot"):
                run.log({"shot": index, "bad": "text"}, step=index)
            index += 1
        run.log({"shots": index})

    thread = threading.Thread(target=fire)
    thread.start()
    for number in range(50):
        if os.fork() == 0:
            run.log({"child": number}, step=number)
            os._exit(0 if run.finish() else 1)
        assert os.wait()[1] == 0, number
    enough.set()
    thread.join()
    """
    )
    assert done.returncode == 0, done.stderr
    found = counted(batches)
    assert found["child"] == list(range(50))
    assert found["shot"] == list(range(found["shots"][0]))
    assert endings(records) == ["finished"]


def test_an_open_step_is_the_parents(python: Python, records: Read) -> None:
    """A fork inside a step: the child logs at that step, and the parent alone records the step's span."""
    done = python(
        """
    import os
    import stepscope

    run = stepscope.init()
    with run.step(3), run.span("inner"):
        child = os.fork() == 0
        stepscope.log({"child" if child else "parent": 1.0})
        with run.span("child's own" if child else "parent's own"):
            pass
    if not child:
        os.wait()
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    spans = Counter(span.name for span in records(Span))
    assert spans == dict.fromkeys((names.SPAN_RUN, names.SPAN_STEP, "inner", "child's own", "parent's own"), 1)
    metrics = [record for record in records(Metric) if record.category is None]
    assert sorted((*record.values, record.step) for record in metrics) == [("child", 3), ("parent", 3)]
    inner, own = (next(s for s in records(Span) if s.name == name) for name in ("inner", "child's own"))
    assert own.parent_id == inner.span_id


def test_a_silent_child_leaves_nothing(python: Python, batches: Read) -> None:
    """Children that record nothing, and children forked after the end, make no writer."""
    done = python(
        """
    import multiprocessing
    import stepscope

    def silent():
        for _ in range(3):
            process = multiprocessing.get_context("fork").Process(target=int)
            process.start()
            process.join()
            assert process.exitcode == 0

    run = stepscope.init()
    silent()
    run.finish()
    silent()
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [writer.main for writer in writers(batches)] == [True]


def test_a_failing_child_does_not_fail_the_run(python: Python, records: Read) -> None:
    """An exception in a forked child is recorded; how the run ended is for the parent to say."""
    done = python(
        """
    import multiprocessing, os, sys
    import stepscope

    def fail():
        raise ValueError("in the child")

    stepscope.init()
    if os.fork() == 0:
        fail()
    os.wait()
    """
    )
    assert done.returncode == 0
    assert done.stderr.count("ValueError: in the child") == 1
    assert endings(records) == ["finished"]
    (event,) = [event for event in records(Event) if event.name == names.EVENT_EXCEPTION]
    assert event.attrs["exception.message"] == "in the child"


def test_data_loader_workers(python: Python, batches: Read, records: Read) -> None:
    """What the workers of a torch DataLoader log is recorded, each item once, from writers of their own."""
    pytest.importorskip("torch", reason="torch is not installed")
    done = python(
        """
    import stepscope
    from torch.utils.data import DataLoader, Dataset

    class Items(Dataset):
        def __init__(self, name):
            self.name = name

        def __len__(self):
            return 40

        def __getitem__(self, index):
            stepscope.log({self.name: index}, step=index)
            return index

    def join(worker):
        if stepscope.current_run() is None:
            stepscope.init()

    if __name__ == "__main__":
        run = stepscope.init()
        assert run.flush()
        for method, workers in (("fork", 2), ("spawn", 1)):
            loader = DataLoader(
                Items(method), num_workers=workers, multiprocessing_context=method, worker_init_fn=join
            )
            for step, item in enumerate(loader):
                with run.step(step):
                    run.log({f"{method} seen": item[0]})
    """
    )
    assert done.returncode == 0, done.stderr
    assert counted(batches) == {key: list(range(40)) for key in ("fork", "fork seen", "spawn", "spawn seen")}
    assert [(writer.main, writer.attempt) for writer in writers(batches)] == [(True, 1)] + [(False, 1)] * 3
    assert endings(records) == ["finished"]


def test_ranks_forked_before_init_have_ids_of_their_own(python: Python, batches: Read, records: Read) -> None:
    """Ranks that a launcher forks after `import stepscope` share no trace and no span."""
    done = python(
        """
    import multiprocessing, os, stepscope

    def work(rank):
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), "3"
        run = stepscope.init()
        with run.step(0):
            pass

    children = [multiprocessing.get_context("fork").Process(target=work, args=(rank,)) for rank in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    steps = [span for span in records(Span) if span.name == names.SPAN_STEP]
    assert (
        len(steps) == len({span.trace_id for span in steps}) == len({span.span_id for span in records(Span)}) // 2 == 3
    )


def test_a_rank_forked_again_is_a_new_attempt(python: Python, batches: Read) -> None:
    """A launcher that forks a rank anew after it ended starts the run's next attempt."""
    done = python(
        """
    import multiprocessing, stepscope

    def work():
        stepscope.init().log({"a": 1.0})

    for _ in range(3):
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join()
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(writer.attempt for writer in writers(batches)) == [1, 2, 3]
