"""Exceptions: recorded with type, message and stack, and passed on untouched, wherever they happen."""

from collections.abc import Callable
from typing import Any

from stepscope.model import names
from stepscope.model.records import Event, Span

Python = Callable[..., Any]
Read = Callable[..., Any]


def exceptions(records: Read) -> list[Event]:
    """The recorded exceptions."""
    return [event for event in records(Event) if event.name == names.EVENT_EXCEPTION]


def endings(records: Read) -> list[str]:
    """How the run says it ended."""
    return [event.attrs["status"] for event in records(Event) if event.name == names.EVENT_FINISHED]


def test_on_spans(python: Python, records: Read) -> None:
    """An exception marks every span it passes through, and is the same object outside."""
    done = python(
        """
    import stepscope

    run = stepscope.init()
    error = KeyError("missing")
    try:
        with run.step(4), run.span("outer"), run.span("inner"):
            raise error
    except KeyError as caught:
        assert caught is error and caught.__context__ is None and caught.__cause__ is None
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    hit = {span.name: span for span in records(Span) if span.name != names.SPAN_RUN}
    assert set(hit) == {names.SPAN_STEP, "outer", "inner"}
    for span in hit.values():
        assert (span.status, span.events[0].attrs["exception.type"]) == (2, "KeyError")
    assert endings(records) == ["finished"]


def test_captured(python: Python, records: Read) -> None:
    """Decorated functions and blocks record what passes, at the step it happened, and let it go on."""
    done = python(
        """
    import asyncio
    import stepscope

    run = stepscope.init()

    @stepscope.capture_exceptions
    def plain(x):
        raise ValueError(x)

    @stepscope.capture_exceptions(fatal=True)
    async def later():
        raise TypeError("later")

    class Trainer:
        @stepscope.capture_exceptions
        def method(self):
            raise LookupError("method")

    for step, call in enumerate((lambda: plain("plain"), lambda: asyncio.run(later()), Trainer().method)):
        with run.step(step):
            try:
                call()
            except Exception:
                continue
        raise SystemExit("nothing was raised")
    try:
        with stepscope.capture_exceptions():
            raise OSError("block")
    except OSError:
        pass
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = [(e.attrs["exception.type"], e.attrs["exception.message"], e.step, e.severity) for e in exceptions(records)]
    assert found == [
        ("ValueError", "plain", 0, 17),
        ("TypeError", "later", 1, 21),
        ("LookupError", "method", 2, 17),
        ("OSError", "block", None, 17),
    ]


def test_on_other_threads(python: Python, records: Read) -> None:
    """An exception that ends a thread is recorded; the run continues and finishes."""
    done = python(
        """
    import threading
    import stepscope

    run = stepscope.init()
    thread = threading.Thread(target=lambda: 1 / 0, name="loader")
    thread.start()
    thread.join()
    """
    )
    assert done.returncode == 0
    assert done.stderr.count("ZeroDivisionError") == 1
    (event,) = exceptions(records)
    assert (event.attrs["exception.type"], event.attrs["thread"]) == ("ZeroDivisionError", "loader")
    assert endings(records) == ["finished"]


def test_odd_exceptions(python: Python, records: Read) -> None:
    """Exceptions without a text, endless ones, groups and deep recursion are recorded, within bounds."""
    done = python(
        """
    import stepscope

    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def deep():
        deep()

    run = stepscope.init()

    def attempt(call):
        try:
            with run.span("attempt"):
                call()
        except BaseException as error:
            run.exception(error)

    def odd():
        raise Odd

    def huge():
        raise ValueError("x" * 10**7)

    def group():
        raise ExceptionGroup("many", [ValueError(n) for n in range(1000)])

    def chained():
        try:
            odd()
        except Odd as error:
            raise KeyboardInterrupt from error

    for call in (odd, huge, group, chained, deep):
        attempt(call)
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = {event.attrs["exception.type"].rpartition(".")[2]: event.attrs for event in exceptions(records)}
    assert list(found) == ["Odd", "ValueError", "ExceptionGroup", "KeyboardInterrupt", "RecursionError"]
    assert all(len(attrs["exception.stacktrace"]) < 70_000 for attrs in found.values())
    assert all(len(attrs["exception.message"]) < 70_000 for attrs in found.values())
    assert len([span for span in records(Span) if span.name == "attempt" and span.status == 2]) == 5


def test_a_child_of_multiprocessing_fails(python: Python, records: Read) -> None:
    """A child with a run of its own that ends by an exception or a status fails its run."""
    done = python(
        """
    import multiprocessing, sys
    import stepscope

    def work(name, call):
        stepscope.init(run_id=name)
        call()

    def fail():
        raise ValueError("in the child")

    for name, call in (("raises", fail), ("leaves", lambda: sys.exit(3)), ("ends", int)):
        try:
            raise KeyError("of the parent, handled")
        except KeyError:
            child = multiprocessing.get_context("fork").Process(target=work, args=(name, call))
            child.start()
            child.join()
        print(child.exitcode)
    """
    )
    assert done.returncode == 0
    assert done.stdout.split() == ["1", "3", "0"]
    for run, status, count in (("raises", "failed", 1), ("leaves", "failed", 1), ("ends", "finished", 0)):
        events = records(Event, run=run)
        assert [event.attrs["status"] for event in events if event.name == names.EVENT_FINISHED] == [status]
        # Since Python 3.13 multiprocessing shows a child's exception to nobody, only its status is known.
        reasons = [event.name for event in events if event.name in ("exit", names.EVENT_EXCEPTION)]
        assert len(reasons) == count


def test_one_exception_is_one_event(python: Python, records: Read) -> None:
    """What passes a decorator and a fatal block, and then ends the program, is recorded once, by the innermost."""
    done = python(
        """
    import stepscope

    stepscope.init()

    @stepscope.capture_exceptions
    def work():
        with stepscope.capture_exceptions(fatal=True):
            raise ValueError("once")

    work()
    """
    )
    assert (done.returncode, done.stderr.count("ValueError: once")) == (1, 1)
    (event,) = exceptions(records)
    assert (event.attrs["exception.message"], event.severity) == ("once", 21)
    assert endings(records) == ["failed"]
