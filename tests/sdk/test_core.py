"""The two cores of the calls: the same records for whatever they are given, and no crash, leak or error."""

import copy
import functools
import gc
import inspect
import pickle
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack

import stepscope
from stepscope.sdk.attributes import harmless, plain_texts
from stepscope.sdk.context import CARRIED_KEY, SPAN_KEY, attach, current_mark, detach, otel_variable
from stepscope.sdk.outcomes import Outcomes
from stepscope.sdk.recorder import Recorder
from stepscope.sdk.spans import StepSpan
from tests.repeats import repeats
from tests.sdk.conftest import python_core
from tests.waiting import wait_until

IS_COMPILED = hasattr(stepscope.Run.log, "__wrapped__")
IS_BUILT = find_spec("stepscope.sdk.loop_calls") is not None
needs_c = pytest.mark.skipif(not IS_COMPILED, reason="the calls are in Python here")


class Key(str):
    """A text of a class of its own."""


class Float(float):
    """A number of a class of its own."""


class Exits:
    """An object whose number is a call of `sys.exit`."""

    def __float__(self) -> float:
        sys.exit(3)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stepscope.Run]:
    """A run whose calls record into memory, away from its flusher."""
    home = tmp_path_factory.mktemp("home")
    run = stepscope.init(project="test", home=home, probes=False, otel=False, capture_logs=False, flush_interval=3600)
    assert run.flush(300)  # its first round is over, and the next is in an hour
    run.call_times.disarm()
    own = run.recorder
    harmless.update(("known", "other"))
    plain_texts.update(("forward", "text", "known"))
    yield run
    run.recorder = own
    run.finish()


def made_by(run: stepscope.Run, work: Callable[[], object]) -> tuple[list[bytes], Any]:
    """The records of some calls, and what was counted."""
    run.outcomes = Outcomes()
    run.recorder = Recorder(2**30, run.outcomes, lambda: None)
    run._counter, run.last_mark, run._given = 7, None, None
    work()
    return list(run.recorder.buffer), (run.outcomes.snapshot(), run._counter, run.last_mark, run._given)


def timeless(packed: bytes) -> bytes:
    """A packed metric without its time."""
    assert packed[:3] == b"\x96\x00\xcf", packed
    return packed[:3] + packed[11:]


TEXTS = st.text(st.characters(exclude_categories=()), max_size=40)
INTEGERS = st.integers() | st.sampled_from(
    [sign * (2**bits + off) for bits in (5, 7, 8, 15, 16, 31, 32, 63, 64) for off in (-1, 0, 1) for sign in (1, -1)]
)
FLOATS = st.floats()
PLAIN = FLOATS | INTEGERS | st.booleans()
ODD = (
    st.none()
    | TEXTS
    | st.binary(max_size=9)
    | FLOATS.map(Float)
    | FLOATS.map(np.float64)
    | st.decimals()
    | st.just(Exits())
)
NESTED = st.recursive(
    PLAIN | ODD, lambda inner: st.dictionaries(TEXTS, inner, max_size=4) | st.lists(inner, max_size=3), max_leaves=8
)
KEYS = TEXTS | TEXTS.map(Key) | INTEGERS | st.none()
METRICS = st.dictionaries(TEXTS, PLAIN, max_size=40) | st.dictionaries(KEYS, NESTED, max_size=6) | NESTED
STEPS = (
    st.none() | INTEGERS | st.booleans() | st.just("7") | st.just(Decimal(3)) | st.builds(np.int64, st.integers(0, 9))
)
WORDS = st.none() | TEXTS | st.sampled_from(["train", "eval", "system", " Actor/", Key("train")]) | st.integers()


@given(
    metrics=METRICS, step=STEPS, category=WORDS, axis=WORDS, inside=st.none() | st.tuples(st.integers(0, 300), WORDS)
)
@settings(max_examples=repeats(150, 2000), deadline=None)
def test_log_records_the_same_in_both_cores(
    quiet: stepscope.Run, metrics: Any, step: Any, category: Any, axis: Any, inside: Any
) -> None:
    """Byte for byte but for the time, and with the same counters; with no step, in a step, with steps of any type."""

    def calls(log: Callable[..., None]) -> tuple[list[bytes], Any]:
        def work() -> None:
            if inside is None:
                log(quiet, metrics, step, category=category, axis=axis)
            else:
                with quiet.step(inside[0], inside[1]):
                    log(quiet, metrics, step, category, axis)
            log(quiet, {"after": 1.0})

        packed, counted = made_by(quiet, work)
        return [timeless(each) for each in packed if each[1] == 0 and each[0] == 0x96], counted

    assert calls(stepscope.Run.log) == calls(python_core(stepscope.Run.log))


ATTRS = st.dictionaries(
    st.sampled_from(["known", "other", "unknown", "name_", "\ud800"]), PLAIN | ODD | st.just("text"), max_size=4
)
NAMES = st.sampled_from(["forward", "dynamic 7", None, 3, Key("forward"), "\udfff"])
STEP = st.tuples(st.just("step"), STEPS, st.sampled_from([None, "episode", "step", Key("step"), 5]))
SPANS = st.recursive(
    st.tuples(st.just("span"), NAMES, ATTRS, st.just(())),
    lambda inner: (
        st.tuples(st.just("span"), NAMES, ATTRS, st.lists(inner, max_size=3))
        | st.tuples(STEP, st.lists(inner, max_size=3))
    ),
    max_leaves=8,
)


def spans_by(run: stepscope.Run, wanted: Callable[[Any], Any], tree: Any) -> None:
    """Open, enter and exit the spans of a tree with the functions of one core."""
    if tree[0] == "span":
        _, name, attrs, inside = tree
        span = wanted(stepscope.Run.span)(run, name, **attrs)
    else:
        (_, number, axis), inside = tree
        span = wanted(stepscope.Run.step)(run, number, **({} if axis is None else {"name": axis}))
    wanted(type(span).__enter__)(span)
    for each in inside:
        spans_by(run, wanted, each)
    wanted(type(span).__exit__)(span, None, None, None)


def without_chance(records: list[bytes]) -> list[bytes]:
    """Spans without times, with ids as the order in which they were seen; each is packed as msgspec packs it."""
    seen: dict[bytes, int] = {}
    rows = []
    for packed in records:
        row = msgpack.decode(packed)
        assert msgpack.encode(row) == packed
        row[1:3] = 0, 0
        row[5:8] = [each if each is None else seen.setdefault(each, len(seen)) for each in row[5:8]]
        for link in row[14] if len(row) > 14 else ():
            link[:2] = [seen.setdefault(each, len(seen)) for each in link[:2]]
        rows.append(msgpack.encode(row))  # as bytes, for a NaN equals nothing
    return rows


@given(tree=SPANS, carried=st.booleans())
@settings(max_examples=repeats(100, 1500), deadline=None)
def test_spans_are_recorded_the_same_in_both_cores(quiet: stepscope.Run, tree: Any, carried: bool) -> None:
    """Steps and spans of any nesting, names and attributes; what is current afterwards is what was before."""
    token = attach({CARRIED_KEY: {"carried": 1}}) if carried else None
    found = []
    try:
        for wanted in (lambda call: call, python_core):
            packed, counted = made_by(quiet, functools.partial(spans_by, quiet, wanted, tree))
            found.append(([type(each) for each in packed], without_chance(packed), counted))
            assert current_mark.get() is None
            assert quiet.active_mark is None
            assert not quiet.open_steps
            assert not quiet.open_spans
            assert not quiet.left_steps
            assert otel_variable.get().get(SPAN_KEY) is None
    finally:
        if token is not None:
            detach(token)
    assert found[0] == found[1]


@pytest.mark.parametrize("wanted", [lambda call: call, python_core], ids=["chosen", "python"])
def test_steps_that_are_exited_in_another_order(quiet: stepscope.Run, wanted: Callable[[Any], Any]) -> None:
    """Two steps that overlap leave no step behind, in either core."""

    def work() -> None:
        first, second = (wanted(stepscope.Run.step)(quiet, number) for number in (1, 2))
        for each in (first, second):
            wanted(type(each).__enter__)(each)
        for each in (first, second):
            wanted(type(each).__exit__)(each, None, None, None)
        quiet.log({"after": 1.0})

    packed, _ = made_by(quiet, work)
    assert msgpack.decode(packed[-1])[2] == 2  # the last one: no step is current
    assert not quiet.open_steps
    assert not quiet.left_steps
    assert quiet.active_mark is None


def test_more_than_a_record_may_have(quiet: stepscope.Run) -> None:
    """10,000 keys, keys of a megabyte, and attributes beyond the limit of a record are the same in both cores."""
    many: dict[str, Any] = {f"key/{number}": number for number in range(10_000)}
    for metrics in (many, {"k" * 2**20: 1.0}, {"é" * 70_000: 1.0}):
        both = [
            made_by(quiet, functools.partial(log, quiet, metrics, 1))[0]
            for log in (stepscope.Run.log, python_core(stepscope.Run.log))
        ]
        assert [timeless(each) for each in both[0]] == [timeless(each) for each in both[1]]
    harmless.update(many)

    def span() -> None:
        quiet.span("forward", **many).end()

    (packed,), _ = made_by(quiet, span)
    assert len(packed) <= 64 * 1024 or len(msgpack.decode(packed)[12]) <= 256
    harmless.difference_update(many)


def test_a_signature_and_a_name_are_those_of_the_call(quiet: stepscope.Run) -> None:
    """Documentation, `inspect`, `functools.wraps` and `pickle` see a function."""
    for call in (stepscope.Run.log, quiet.log):
        assert list(inspect.signature(call).parameters)[-5:] == ["metrics", "step", "category", "axis", "unknown"]
        assert call.__name__ == "log"
        assert (call.__doc__ or "").startswith("Record numbers")
    assert pickle.loads(pickle.dumps(stepscope.Run.log)) is stepscope.Run.log
    assert copy.deepcopy(stepscope.Run.log) is stepscope.Run.log
    assert functools.wraps(stepscope.Run.log)(lambda: None).__qualname__ == "Run.log"
    with pytest.raises(AttributeError):
        stepscope.Run.log.nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda span: pickle.loads(pickle.dumps(span))])
def test_a_span_may_be_copied(quiet: stepscope.Run, copied: Callable[[Any], Any]) -> None:
    """An object that holds a span can be copied and sent elsewhere, in both cores, also while the span is entered."""
    with quiet.step(3) as step, quiet.span("forward", known=1) as span:
        for each in (step, span):
            other = copied(each)
            assert (other.id, other.mark, other.name, other.start) == (each.id, each.mark, each.name, each.start)
            assert type(other) is type(each)
            assert (other.duration, other.left, other._run) == (None, None, quiet)
            other.end()
            assert other.duration is not None


def test_a_wrong_self_is_an_error_of_python(quiet: stepscope.Run) -> None:
    """Calls on other objects, and without any, raise what the Python function raises."""
    for call in (
        stepscope.Run.log,
        stepscope.Run.step,
        stepscope.Run.span,
        *map(method, ("__enter__", "__exit__", "end")),
    ):
        with pytest.raises(TypeError):
            call()
        with pytest.raises((AttributeError, TypeError)):
            call(3)
    for name in ("__enter__", "__exit__"):
        with pytest.raises((AttributeError, TypeError)):
            getattr(StepSpan, name)()


def method(name: str) -> Any:
    """A method of the class of spans."""
    return getattr(stepscope.Span, name)


def test_a_dict_that_other_threads_change(quiet: stepscope.Run) -> None:
    """Each record is whole, whatever is added to and removed from the dict meanwhile."""
    shared: dict[str, Any] = {str(number): float(number) for number in range(20)}
    done = threading.Event()

    def change() -> None:
        number = 0
        while not done.is_set():
            number += 1
            shared[f"new {number % 300}"] = number
            shared.pop(f"new {(number - 50) % 300}", None)

    def work() -> None:
        threads = [threading.Thread(target=log) for _ in range(4)]
        changing = threading.Thread(target=change)
        changing.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        changing.join()

    def log() -> None:
        for number in range(2000):
            with quiet.step(number), quiet.span("forward", known=number):
                quiet.log(shared)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        packed, _ = made_by(quiet, work)
    finally:
        sys.setswitchinterval(before)
    rows = [msgpack.decode(each) for each in packed]
    assert [sum(row[0] == kind for row in rows) for kind in (0, 1)] == [4 * 2000, 2 * 4 * 2000]
    assert not quiet.open_spans
    assert not quiet.open_steps
    assert len({row[6] for row in rows if row[0] == 1}) == 2 * 4 * 2000


class Late:
    """Part of a cycle; logs and opens a span when it is collected."""

    def __init__(self, run: stepscope.Run) -> None:
        self.run, self.own = run, self

    def __del__(self) -> None:
        with self.run.step(3), self.run.span("forward", known=1):
            self.run.log({"late": 1.0})


def test_calls_in_finalizers(quiet: stepscope.Run) -> None:
    """The collector may run in the middle of a call, and what it finalizes may call again."""
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:

        def work() -> None:
            for number in range(300):
                Late(quiet)
                with quiet.step(number), quiet.span("forward", known=2), quiet.span("forward"):
                    quiet.log({"a": 1.0, "b": number})
            gc.collect()

        packed, _ = made_by(quiet, work)
    finally:
        gc.set_threshold(*before)
    rows = [msgpack.decode(each) for each in packed]
    assert sum(row[0] == 0 for row in rows) == 600
    assert not quiet.open_spans
    assert not quiet.open_steps


class Meddling:
    """A key of OpenTelemetry's context that is asked whether it is the current span's, and meddles with the run."""

    def __init__(self, run: stepscope.Run, does: Callable[[], object]) -> None:
        self.run, self.does = run, does

    def __hash__(self) -> int:
        return hash(SPAN_KEY)

    def __eq__(self, other: object) -> bool:
        self.does()
        return False


def test_keys_of_the_context_that_run_code(quiet: stepscope.Run) -> None:
    """What they do to the run and to its spans while these are opened, entered and exited is survived."""
    held: list[Any] = []

    def end_all() -> None:
        for span in held:
            span.duration = None
            span._token = None
            span.left = None
        quiet.open_spans = {}
        quiet.open_steps = []

    def work() -> None:
        for _ in range(50):
            held.append(quiet.span("forward", known=1))
            with held[-1]:
                held.append(quiet.step(3))
                with held[-1]:
                    quiet.log({"a": 1.0})

    token = attach({Meddling(quiet, end_all): 1})  # type: ignore[dict-item]
    try:
        made_by(quiet, work)
    finally:
        detach(token)
    end_all()
    current_mark.set(None)
    quiet.left_steps.clear()
    quiet.active_mark = None


def test_nothing_is_kept(quiet: stepscope.Run) -> None:
    """Tens of thousands of calls leave no reference and no memory behind, not the smallest object of each tenth."""
    value, name, key = 0.125, "forward", "known"
    metrics = {key: value}
    odd = {key: Float(1.0)}

    def calls(number: int) -> None:
        for step in range(number):
            with quiet.step(step), quiet.span(name, known=value):
                quiet.log(metrics, category="train")
            if step % 10 == 0:
                quiet.log(odd)
                quiet.span("other than known").end()
            quiet.recorder.buffer.clear()

    def counts() -> list[int]:
        gc.collect()
        singles = (
            value,
            name,
            key,
            metrics,
            quiet,
            None,
            quiet.recorder,
            quiet.open_spans,
            type(quiet.step(1)),
            stepscope.Span,
        )
        quiet.open_spans.clear()
        return [sys.getrefcount(each) for each in singles if sys.getrefcount(each) < 2**29]

    def work() -> None:
        calls(1000)
        before = counts()
        tracemalloc.start()
        calls(1000)
        gc.collect()
        first = tracemalloc.get_traced_memory()[0]
        calls(repeats(40_000, 100_000))
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - first
        tracemalloc.stop()
        assert grown < 50_000
        assert all(abs(now - then) < 50 for now, then in zip(counts(), before, strict=True))

    made_by(quiet, work)


def test_a_span_in_a_cycle_is_collected(quiet: stepscope.Run) -> None:
    """The collector sees what spans hold."""
    gc.collect()
    span: Any = quiet.span("forward")
    quiet.open_spans.clear()
    span._attrs["self"] = span
    alive = len([each for each in gc.get_objects() if type(each) is type(span)])
    del span
    gc.collect()
    assert len([each for each in gc.get_objects() if type(each) is stepscope.Span]) < alive


def test_fields_of_a_span_are_read_and_written(quiet: stepscope.Run) -> None:
    """A field that was never set has its default in both cores, and odd values are refused or kept, never a crash."""
    span: Any = stepscope.Span.__new__(stepscope.Span)
    defaults = (
        span.parent,
        span.duration,
        span.announced,
        span.joins,
        span._links,
        span.usual,
        span.unmasked,
        span._token,
    )
    assert defaults == (None, None, False, True, (), True, False, None)
    assert (span.left, span._origin, span.special, span._step_token) == (None, None, False, None)
    span.duration = 5
    assert span.duration == 5
    span.duration = None
    assert span.duration is None
    for work in (lambda fresh: fresh.end(), lambda fresh: fresh.__exit__(None, None, None)):
        with pytest.raises((AttributeError, TypeError)):
            work(stepscope.Span.__new__(stepscope.Span))


@needs_c
def test_the_usual_calls_do_not_reach_the_python_core(quiet: stepscope.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers, known names and known attributes are recorded by the compiled core alone."""
    called = []

    def trace(frame: Any, event: str, argument: object) -> None:
        if event == "call" and "/sdk/" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename:
            called.append(frame.f_code.co_qualname)

    def work() -> None:
        quiet.recorder.limit = 10**9
        sys.setprofile(trace)
        with quiet.step(1), quiet.span("forward", known=1, other="text"), quiet.span("forward"):
            quiet.log({"a": 1.0, "é": 3, "yes": True}, category="train")
        quiet.log({"a": 1.0}, step=3, axis="episode")
        quiet.span("forward").end()
        sys.setprofile(None)

    packed, _ = made_by(quiet, work)
    assert called == []
    assert len(packed) == 6


def test_ids_differ_after_a_fork(start: Any) -> None:
    """Parent and child, and children of one parent, draw different ids."""
    program = """
        import os
        import stepscope
        run = stepscope.init(project="test", probes=False, otel=False)
        for child in range(3):
            if os.fork() == 0:
                break
        steps = [run.step(number) for number in range(50)]
        ids = [each.hex() for step in steps for each in (step.id, step.trace)]
        os.write(1, (" ".join(ids) + "\\n").encode())
        os._exit(0)
    """
    parent = start(program)
    parent.wait()
    out = parent.place / "out"
    wait_until(lambda: out.read_text().count("\n") == 4)
    ids = out.read_text().split()
    assert len(ids) == 4 * 100 == len(set(ids))


@pytest.mark.parametrize(("value", "forced"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_the_python_core_can_be_chosen(start: Any, value: str, forced: bool) -> None:
    """STEPSCOPE_PURE_PYTHON leaves the compiled core aside, and neither core warns of the variable."""
    program = """
        import stepscope
        from stepscope.sdk import core
        run = stepscope.init(project="test", probes=False, otel=False)
        with run.step(1), run.span("forward"):
            run.log({"a": 1.0})
        run.finish()
        print(core.chosen())
    """
    ended = start(program, env={"STEPSCOPE_PURE_PYTHON": value}, fresh=True).wait()
    assert ended.stdout.strip() == ("Python" if forced or not IS_BUILT else "compiled")
    assert "PURE_PYTHON" not in ended.stderr
