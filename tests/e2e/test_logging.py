"""Python's logging: each line is recorded once, where it belongs, and other handlers are not affected."""

from collections.abc import Callable
from typing import Any

import pytest

from stepscope.model.records import Log, Span

Python = Callable[..., Any]
Read = Callable[..., Any]


def bodies(records: Read) -> list[str]:
    """The recorded lines."""
    return [line.body for line in records(Log)]


def test_once_with_trace_and_step(python: Python, records: Read) -> None:
    """A line has its trace, span, step, severity, logger and source location."""
    done = python(
        """
    import logging
    import stepscope

    logging.basicConfig(level=logging.DEBUG)
    run = stepscope.init(log_level="DEBUG")
    log = logging.getLogger("trainer.data")
    with run.step(7), run.span("load"):
        log.info("read %d rows", 5, extra={"shard": 3, "api_key": "secret"})
    try:
        1 / 0
    except ZeroDivisionError:
        log.exception("failed")
    log.debug("quiet")
    """
    )
    assert done.returncode == 0
    assert done.stderr.count("read 5 rows") == 1
    info, error, debug = records(Log)
    load = next(span for span in records(Span) if span.name == "load")
    assert (info.body, info.severity, info.scope, info.step) == ("read 5 rows", 9, "trainer.data", 7)
    assert (info.trace_id, info.span_id) == (load.trace_id, load.span_id)
    assert (info.attrs["shard"], info.attrs["api_key"]) == (3, "[redacted]")
    assert info.attrs["code.file.path"].endswith("program.py")
    assert (error.severity, error.attrs["exception.type"], error.step) == (17, "ZeroDivisionError", None)
    assert (debug.body, debug.severity) == ("quiet", 5)


QUIET = """
    import logging
    {0}
    logging.getLogger("a").info("not shown")
    logging.getLogger("a").warning("shown")
    logging.warning("by the root")
    {1}
    logging.getLogger("a").error("after")
"""


def test_output_is_the_same(python: Python, records: Read) -> None:
    """A program that configures no logging shows the same lines with a run as without."""
    without = python(QUIET.format("", ""))
    within = python(QUIET.format("import stepscope; run = stepscope.init()", "run.finish()"))
    assert without.stderr.count("\n") == 3
    assert within.stderr == without.stderr
    assert within.stdout == without.stdout
    assert bodies(records) == ["shown", "by the root"]


@pytest.mark.parametrize(
    "configure",
    [
        "logging.basicConfig(level=logging.INFO, format='%(message)s')",
        "logging.basicConfig(level=logging.INFO, format='%(message)s', force=True)",
        "logging.config.dictConfig({'version': 1, 'disable_existing_loggers': False,"
        " 'handlers': {'h': {'class': 'logging.StreamHandler'}}, 'root': {'level': 'INFO', 'handlers': ['h']}})",
    ],
    ids=["basicConfig", "force", "dictConfig"],
)
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_configured_by_others(python: Python, records: Read, configure: str, first: bool) -> None:
    """Logging can be configured before or after init: it takes effect, and lines are still recorded."""
    begin = "run = stepscope.init()"
    lines = (configure, begin) if first else (begin, configure)
    done = python(
        f"""
    import logging, logging.config
    import stepscope
    {lines[0]}
    {lines[1]}
    before = [(type(h), h.level, h.formatter) for h in logging.getLogger().handlers]
    logging.getLogger("a").info("hello")
    run.finish()
    assert [(type(h), h.level, h.formatter) for h in logging.getLogger().handlers] == before
    logging.getLogger("a").info("again")
    """
    )
    assert (done.returncode, done.stderr) == (0, "hello\nagain\n")
    assert bodies(records) == ["hello"]


def test_loggers_that_do_not_propagate(python: Python, records: Read) -> None:
    """Libraries that keep their lines from the root logger are heard as well, each line once."""
    done = python(
        """
    import logging
    import stepscope

    library = logging.getLogger("library")
    library.propagate = False
    library.addHandler(logging.StreamHandler())
    library.addHandler(logging.StreamHandler())
    stepscope.init()
    logging.getLogger("library.deep").warning("twice on the screen")
    """
    )
    assert (done.returncode, done.stderr) == (0, "twice on the screen\n" * 2)
    assert bodies(records) == ["twice on the screen"]


def test_our_own_words_do_not_come_back(python: Python, records: Read) -> None:
    """What we warn of reaches the screen once and is never recorded as a line of the program."""
    done = python(
        """
    import logging
    import stepscope

    logging.basicConfig(level=logging.DEBUG, format="%(name)s %(message)s")
    run = stepscope.init(log_level="DEBUG")
    for step in range(1000):
        run.log({"text": "no number", "loss": 1.0}, step=step)
    assert run.flush()
    logging.getLogger("stepscope.sdk").warning("ours")
    logging.getLogger("stepscoped").warning("theirs")
    """
    )
    assert done.returncode == 0
    assert done.stderr.count("'text' was rejected (string)") == 1
    assert bodies(records) == ["theirs"]


def test_a_listener_that_fails(python: Python, records: Read) -> None:
    """Handlers of others that raise or log themselves cost nothing."""
    done = python(
        """
    import logging
    import stepscope

    class Broken(logging.Handler):
        def emit(self, record):
            if record.name != "inner":
                logging.getLogger("inner").warning("from the handler")
            raise RuntimeError("broken")

    logging.getLogger().addHandler(Broken())
    run = stepscope.init()
    assert run.flush()
    for _ in range(3):
        try:
            logging.getLogger("a").warning("line")
        except RuntimeError:
            pass
    run.log({"a": "text"})
    assert run.flush()
    """
    )
    assert (done.returncode, done.stderr) == (0, "")
    # One more is what the broken one logs when it hears our own warning of the text.
    assert sorted(bodies(records)) == ["from the handler"] * 4 + ["line"] * 3


def test_odd_lines(python: Python, records: Read) -> None:
    """Lines that cannot be formatted or stored are counted, without side effects."""
    done = python(
        """
    import logging
    import stepscope

    class Odd:
        def __str__(self):
            raise RuntimeError
        __repr__ = __str__

    logging.raiseExceptions = False
    run = stepscope.init()
    log = logging.getLogger("a")
    log.warning("%d", "not a number")
    log.warning("%s", Odd())
    log.warning("surrogate \\udc80", extra={"odd": Odd(), "\\udc80": 1})
    log.warning("fine")
    """
    )
    assert (done.returncode, done.stderr.count("fine")) == (0, 1)
    assert bodies(records)[-1] == "fine"
