"""Threads, tasks and generators: nothing is lost or torn, and each keeps its own step and span."""

from collections.abc import Callable
from typing import Any

from stepscope.model import names
from stepscope.model.records import Metric, Span

Python = Callable[..., Any]
Read = Callable[..., Any]


def logged(records: Read, key: str) -> list[Metric]:
    """The metrics that hold a key."""
    return [record for record in records(Metric) if key in record.values]


def spans(records: Read) -> dict[str, Span]:
    """The ended spans, by name."""
    return {span.name: span for span in records(Span) if span.duration is not None}


def test_eight_threads(python: Python, records: Read) -> None:
    """Eight threads with ten thousand logs each: all there, whole, and those of one thread in order."""
    done = python(
        """
    import threading
    import stepscope

    run = stepscope.init()

    def work(number):
        for index in range(10_000):
            run.log({"thread": number, "index": index, "check": number * index}, step=index)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[int, list[int]] = {}
    for metric in logged(records, "thread"):
        number, index, check = metric.values.values()
        assert check == number * index
        assert metric.step == index
        found.setdefault(number, []).append(index)
    assert found == {number: list(range(10_000)) for number in range(8)}


def test_flush_under_fire(python: Python) -> None:
    """Flush comes back with True while another thread logs at full speed."""
    done = python(
        """
    import threading
    import stepscope

    run = stepscope.init()

    def fire():
        while True:
            run.log({"a": 1.0})

    threading.Thread(target=fire, daemon=True).start()
    assert all(run.flush(300) for _ in range(3))
    """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_tasks(python: Python, records: Read) -> None:
    """Tasks that run at the same time keep their own step and span, and leave none behind."""
    done = python(
        """
    import asyncio
    import stepscope

    run = stepscope.init()

    async def work(number):
        async with run.step(number):
            await asyncio.sleep(0.001 * (number % 3))
            async with run.span(f"task{number}"):
                await asyncio.sleep(0.001 * (number % 5))
                run.log({"task": number})
                await asyncio.gather(*(child(number, index) for index in range(2)))

    async def child(number, index):
        with run.span(f"child{number}.{index}"):
            await asyncio.sleep(0.001)
            run.log({"child": number})

    async def main():
        await asyncio.gather(*(work(number) for number in range(30)))

    asyncio.run(main())
    run.log({"after": 1.0})
    with run.span("after"):
        pass
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(metric.step for metric in logged(records, "task")) == list(range(30))
    assert all(m.step == m.values["task"] for m in logged(records, "task"))
    assert all(m.step == m.values["child"] for m in logged(records, "child"))
    found = spans(records)
    for number in range(30):
        task = found[f"task{number}"]
        assert task.step == number
        for index in range(2):
            child = found[f"child{number}.{index}"]
            assert (child.parent_id, child.trace_id, child.step) == (task.span_id, task.trace_id, number)
    assert found["after"].parent_id is None
    assert found["after"].step is None
    assert [metric.step for metric in logged(records, "after")] == [29]  # the last that was entered


def test_steps_that_overlap(python: Python, records: Read) -> None:
    """Steps that overlap, as in a pipeline, leave nothing behind when all have ended, in whatever order."""
    done = python(
        """
    import itertools
    import stepscope

    run = stepscope.init()
    for number, order in enumerate(itertools.permutations(range(3))):
        steps = [run.step(index).__enter__() for index in range(3)]
        for index in order:
            steps[index].__exit__(None, None, None)
        run.log({"after": 1.0})
        with run.span(f"after{number}"):
            pass
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [metric.step for metric in logged(records, "after")] == [2] * 6  # the last that was entered
    found = spans(records)
    assert all((found[f"after{n}"].parent_id, found[f"after{n}"].step) == (None, None) for n in range(6))


def test_ended_elsewhere(python: Python, records: Read) -> None:
    """A span may be ended on another thread or task than began it; what follows in either is not inside it."""
    done = python(
        """
    import asyncio, threading
    import stepscope

    run = stepscope.init()

    def on_thread(work):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    span = run.span("ended by a thread").__enter__()
    on_thread(lambda: span.__exit__(None, None, None))
    with run.span("after thread"):
        pass
    step = run.step(5).__enter__()
    on_thread(lambda: step.__exit__(None, None, None))
    with run.span("after step"):
        pass

    async def main():
        span = run.span("ended by a task")
        span.__enter__()

        async def end():
            span.__exit__(None, None, None)

        await asyncio.create_task(end())
        with run.span("after task"):
            pass

    asyncio.run(main())
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = spans(records)
    assert {"ended by a thread", "ended by a task", names.SPAN_STEP} <= found.keys()
    after = [found[f"after {word}"] for word in ("thread", "step", "task")]
    assert [(span.parent_id, span.step) for span in after] == [(None, None)] * 3


def test_work_that_outlives_its_span(python: Python, records: Read) -> None:
    """A task that outlives its step and span still belongs to them."""
    done = python(
        """
    import asyncio
    import stepscope

    run = stepscope.init()

    async def later(ended):
        await ended.wait()
        with run.span("later"):
            run.log({"later": 1.0})

    async def main():
        ended = asyncio.Event()
        with run.step(5), run.span("request"):
            task = asyncio.create_task(later(ended))
            await asyncio.sleep(0)
        ended.set()
        await task

    asyncio.run(main())
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = spans(records)
    assert (found["later"].parent_id, found["later"].step) == (found["request"].span_id, 5)
    assert [metric.step for metric in logged(records, "later")] == [5]


def test_generators(python: Python, records: Read) -> None:
    """Traced generators that take turns, stop early or are dropped end their spans and do not become parents."""
    done = python(
        """
    import stepscope

    run = stepscope.init()

    @stepscope.traced
    def numbers(count):
        for index in range(count):
            with run.span(f"inside{count}"):
                pass
            got = yield index
            assert got is None or got == "sent"
        return "done"

    def by_hand(count):
        with run.span(f"by hand {count}"):
            yield from range(count)

    with run.span("loop"):
        for pair in zip(numbers(3), numbers(5)):
            with run.span("body"):
                pass
        for pair in zip(by_hand(3), by_hand(5)):
            pass
        with run.span("after"):
            pass
    dropped = numbers(9)
    next(dropped)
    dropped.send("sent")
    del dropped

    def outer():
        assert (yield from numbers(2)) == "done"

    assert list(outer()) == [0, 1]
    with run.span("at the end"):
        pass
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    ended = [span for span in records(Span) if span.duration is not None]
    loop, after = spans(records)["loop"], spans(records)["after"]
    traced = [span for span in ended if span.name == "numbers"]
    assert len(traced) == 4
    assert {span.status for span in traced} == {0}
    assert after.parent_id == loop.span_id
    assert spans(records)["at the end"].parent_id is None
    assert {span.parent_id for span in ended if span.name == "body"} == {loop.span_id}
    owners = {span.span_id for span in traced}
    assert all(span.parent_id in owners for span in ended if span.name.startswith("inside"))
